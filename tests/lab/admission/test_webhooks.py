"""Admission at the simulated API server: failures, what history says of it, what is not modelled.

Rounds, order and the words of refusals are compared with the real server by the contract.
"""

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from rollout_lab.admission.webhooks import HookCall
from rollout_lab.model.history import Reviewed
from rollout_lab.model.request import ApiAnswer, NotModelled

from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    JsonObject,
)
from tests.lab.server import Fields, Server, config_map, hook_on
from tests.virtual_time import in_virtual_time

POST = 'Post "https://hooks.default.svc:443/a?timeout=10s"'
FAILED = 'Internal error occurred: failed calling webhook "a.example.com": '
Response = Mapping[str, object] | bytes | OSError
"""The response of a review without its uid, a body, or what breaks."""


class Guarded:
    """A server with a ConfigMap `c` that is changed, and a webhook behind each path."""

    def __init__(self, *hooks: str, kind: str = "Validating", **fields: object) -> None:
        self.server = Server()
        self.server.create(CONFIG_MAPS, config_map())
        self.server.api.hooks = self.answer
        self.responses: dict[str, Response] = {}
        self.delays: dict[str, float] = {}
        self.requests: list[JsonObject] = []
        body: Any = hook_on(CONFIG_MAPS, "UPDATE", kind=kind)
        (common,) = body["webhooks"]
        body["webhooks"] = [{**common, **_client(name)} for name in hooks]
        resource = VALIDATING_WEBHOOKS if kind == "Validating" else MUTATING_WEBHOOKS
        made: Any = self.server.create(resource, body)
        # Older configurations may say what new ones may not: they are put back, not created.
        stored = [{**hook, **fields} for hook in made["webhooks"]]
        self.server.api.put({**made, "webhooks": stored}, actor="person")

    async def answer(self, call: HookCall) -> bytes:
        path = call.path.partition("?")[0]
        call.taken_by.append(f"behind {path}")
        request = json.loads(call.body)["request"]
        self.requests.append(request)
        await asyncio.sleep(self.delays.get(path, 0))
        match self.responses.get(path, {"allowed": True}):
            case bytes(raw):
                return raw
            case OSError() as error:
                raise error
            case response:
                return review({"uid": request["uid"], **response})

    async def change(self, key: str = "2", **query: str) -> ApiAnswer:
        fields = Fields(body={"data": {"key": key}}, query=query)
        return await self.server.call("patch", CONFIG_MAPS, "c", fields)

    @property
    def reviewed(self) -> list[Reviewed]:
        return self.server.history.list_all(Reviewed)


def _client(name: str) -> JsonObject:
    service = {"name": "hooks", "namespace": "default", "path": f"/{name}"}
    return {"name": f"{name}.example.com", "clientConfig": {"service": service}}


def review(response: Mapping[str, object]) -> bytes:
    """Return an AdmissionReview with a response."""
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(body)


def deny(message: str) -> Response:
    return {"allowed": False, "status": {"message": message}}


def patch(*steps: JsonObject) -> Response:
    """Allow, and change the object by these steps."""
    coded = base64.b64encode(msgspec.json.encode(steps)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": coded}


@in_virtual_time
async def test_no_answer_in_time_is_a_failure() -> None:
    world = Guarded("a")
    world.delays["/a"] = 11
    answer = await world.change()
    assert asyncio.get_running_loop().time() == 10
    assert (answer.status, answer.reason) == (500, "InternalError")
    late = f"failed to call webhook: {POST}: context deadline exceeded"
    assert answer.message == f"{FAILED}{late}"
    assert world.reviewed == [
        Reviewed(
            at=timedelta(seconds=10),
            begun=timedelta(0),
            call=world.server.calls()[-1].number,
            actor="behind /a",
            path="/a",
            namespace="default",
            name="c",
            resource="configmaps",
            dry_run=False,
            allowed=False,
            status=-1,
            message=late,
        )
    ]


@in_virtual_time
async def test_a_webhook_out_of_reach_is_a_failure() -> None:
    world = Guarded("a")
    text = f"{FAILED}failed to call webhook: {POST}: "
    for error, said in (
        (ConnectionResetError("connection reset by peer"), "connection reset by peer"),
        (OSError(), "EOF"),
    ):
        world.responses["/a"] = error
        assert (await world.change()).message == f"{text}{said}"
    world.server.api.hooks = None
    refused = "dial tcp default/hooks: connect: connection refused"
    assert (await world.change()).message == f"{text}{refused}"


@in_virtual_time
async def test_a_dry_run_spares_webhooks_with_side_effects() -> None:
    world = Guarded("a")
    assert (await world.change(dryRun="All")).is_ok
    assert world.requests[0]["dryRun"] is world.reviewed[0].dry_run is True
    world = Guarded("a", failurePolicy="Ignore", sideEffects="Some")
    answer = await world.change(dryRun="All")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == 'admission webhook "a.example.com" does not support dry run'
    assert not world.requests
    assert (await world.change()).is_ok


@in_virtual_time
async def test_validating_webhooks_are_called_together_and_the_first_refusal_counts() -> None:
    world = Guarded("a", "b", "c")
    world.responses.update({"/a": deny("late"), "/b": deny("first")})
    world.delays.update({"/a": 3, "/c": 5})
    assert (await world.change()).message.endswith("first")
    assert asyncio.get_running_loop().time() == 5, "all are waited for"
    assert [one.path for one in world.reviewed] == ["/b", "/a", "/c"]


@in_virtual_time
async def test_a_request_that_is_given_up_stands_in_the_history() -> None:
    world = Guarded("a")
    world.delays["/a"] = 5
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await world.change()
    assert [(one.status, one.message, one.at) for one in world.reviewed] == [
        (-1, "the request was given up", timedelta(seconds=1))
    ]


@pytest.mark.parametrize(
    ("kind", "response"),
    [
        *(
            ("Validating", body)
            for body in (
                b"{",
                b"[]",
                b"\xff",
                b"{}",
                b'{"kind":"AdmissionReview"}',
                review({"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}),
            )
        ),
        *(
            ("Mutating", {"allowed": True, **fields})
            for fields in (
                {"patch": "W10="},
                {"patchType": "JSONPatch"},
                {"patchType": "MergePatch", "patch": "e30="},
                {"patchType": "JSONPatch", "patch": "?"},
                {"patchType": "JSONPatch", "patch": "e30="},
            )
        ),
        ("Mutating", patch({"op": "test", "path": "/data/key", "value": "9"})),
        ("Mutating", patch({"op": "replace", "path": "/spec", "value": "text"})),
    ],
)
@in_virtual_time
async def test_an_answer_or_a_patch_that_is_none_is_not_modelled(
    kind: str, response: Response
) -> None:
    world = Guarded("a", kind=kind)
    world.responses["/a"] = response
    with pytest.raises(NotModelled):
        await world.change()


@in_virtual_time
async def test_match_conditions_are_not_modelled_where_they_would_count() -> None:
    conditions = [{"name": "x", "expression": "true"}]
    other = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    assert (await Guarded("a", matchConditions=conditions, rules=other).change()).is_ok
    with pytest.raises(NotModelled, match="matchConditions, which the webhook a"):
        await Guarded("a", matchConditions=conditions).change()


@in_virtual_time
async def test_a_second_call_of_a_webhook_is_not_modelled() -> None:
    world = Guarded("a", "b", kind="Mutating", reinvocationPolicy="IfNeeded")
    world.responses["/b"] = patch({"op": "add", "path": "/data/key", "value": "2"})
    assert (await world.change()).is_ok, "nothing is changed"
    with pytest.raises(NotModelled, match=r"a second call of a\S+, after b"):
        await world.change("3")


@in_virtual_time
async def test_configurations_of_webhooks_are_never_reviewed() -> None:
    every = {key: ["*"] for key in ("operations", "apiGroups", "apiVersions", "resources")}
    world = Guarded("a", rules=[every])
    for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
        body: JsonObject = {"metadata": {"name": "other"}, "webhooks": []}
        assert world.server.create(resource, body)
    assert not world.requests
