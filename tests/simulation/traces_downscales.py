"""Another webhook behind ours, for golden scenarios and the tests of the operator."""

from dataclasses import dataclass
from typing import Final, cast

import msgspec
from rollout_lab.admission.webhooks import HookCall, HookCaller

from rollout_operator.kube.api import JsonObject

QUOTA_PATH: Final = "/quota"


@dataclass
class Quota:
    """Another webhook behind ours: a `HookCaller` around the one to the operator."""

    _inner: HookCaller
    is_used_up: bool = True

    async def __call__(self, call: HookCall) -> bytes:
        if not call.path.startswith(QUOTA_PATH):
            return await self._inner(call)
        review = cast(JsonObject, msgspec.json.decode(call.body))
        response: JsonObject = {"uid": cast(JsonObject, review["request"])["uid"], "allowed": True}
        if self.is_used_up:
            response |= {"allowed": False, "status": {"code": 403, "message": "not today"}}
        return msgspec.json.encode({**review, "response": response})
