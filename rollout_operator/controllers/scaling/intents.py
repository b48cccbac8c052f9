"""Write and remove the marks of our own downscales: what they are for, see `planning`.

A mark is written and answered before the live read that the downscale rests on, and that shows it;
the write that rests on it comes last. The mark stays where that gets no answer, and the process
that finds it removes it: this process at its next reconcile, or the process after it. Where that
write was answered, or not sent at all, the next attempt of the same rests on the mark that stands.
When a mark is removed is decided in `removals`.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from rollout_operator.controllers.scaling.removals import Removals
from rollout_operator.guards.downscales.reservations import Downscales
from rollout_operator.kube.api import STATEFULSETS, JsonObject, Patcher, Reader
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.errors import (
    Conflict,
    DecodeError,
    NotFound,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.names import DOWNSCALE_INTENT, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.planning.downscales.intents import announces, render_intent
from rollout_operator.telemetry.logs import log

_PATH: Final = f"/metadata/annotations/{DOWNSCALE_INTENT.replace('/', '~1')}"


class IntentClient(Reader, Patcher, Protocol):
    """The part of `kube.api.ApiClient` that is needed."""


@dataclass(slots=True)
class IntentWriter:
    """Writes and removes the marks of one process."""

    client: Patcher
    """Writes marks."""
    removing: IntentClient
    """Removes them."""
    removals: Removals
    downscales: Downscales
    process: str
    """No two of one namespace may have the same name."""
    _attempts: int = field(default=0, init=False)

    def begin(self, sts: StatefulSet, replicas: int) -> str:
        """Return the mark of an attempt: that of the last where it stands and says the same."""
        if self.downscales.intents.is_idle(sts) and announces(sts, replicas):
            text = sts.annotations[DOWNSCALE_INTENT]
        else:
            self._attempts += 1
            text = render_intent(sts, replicas, f"{self.process}-{self._attempts}")
        self.downscales.intents.begin(sts.uid, text)
        return text

    async def write(self, sts: StatefulSet, text: str) -> None:
        """Mark a set, in place of any other mark, unless the set carries this mark already.

        Raises ApiError. Without an answer no write may be sent that rests on the mark, so that this
        is no UnknownOutcome of the downscale.
        """
        if sts.annotations.get(DOWNSCALE_INTENT) == text:
            return
        # The live read confirms all the rest: this spares a mark where the cache is behind.
        spec: JsonObject = {"op": "test", "path": "/metadata/generation", "value": sts.generation}
        add: JsonObject = {"op": "add", "path": _PATH, "value": text}
        try:
            await _patch(self.client, sts, [_test_uid(sts.uid), spec, add])
        except UnknownOutcome as error:
            raise Unreachable(f"{error}", call=error.call) from error

    async def revoke(self, sts: StatefulSet) -> bool:
        """Remove the mark of a set; return whether it was still there.

        From then on the write that rests on it fails, however late. Raises ApiError; Conflict where
        the API server shows something else than it says.
        """
        text = sts.annotations[DOWNSCALE_INTENT]
        underway = self.downscales.intents.find([sts])
        if underway is not None:
            was_removed = self.removals.count(sts) > 0
            log.info(
                "Removing mark of a downscale that was removed before and is back"
                if was_removed
                else "Revoking downscale without an answer",
                zone=sts.name,
                replicas_from=underway.replicas_from,
                replicas_to=underway.replicas_to,
            )
        with self.removals.turn(sts):
            return await self._take_off(sts, text)

    async def _take_off(self, sts: StatefulSet, text: str) -> bool:
        client = self.removing
        try:
            now = await _patch(client, sts, [_test_uid(sts.uid), *render_steps(text)])
        except NotFound as error:
            raise Conflict(f"{error}", call=error.call) from error
        except Conflict:
            now = _decode(await client.fetch(STATEFULSETS, sts.namespace, sts.name))
            if now.uid != sts.uid or now.annotations.get(DOWNSCALE_INTENT) != text:
                self.downscales.record_revoked(sts, text, now.resource_version)
                return False
            now = await self._remove(now)
        self.downscales.record_revoked(sts, text, now.resource_version)
        return True

    async def _remove(self, sts: StatefulSet) -> StatefulSet:
        """Remove the mark of a set in this very version. Raises ApiError.

        A test of the text of a mark fails in the API server where it has characters that Go's JSON
        writes otherwise. Ours have none, but a person who may annotate a set can write one.
        """
        head: JsonObject = {"uid": sts.uid, "resourceVersion": sts.resource_version}
        patch: JsonObject = {"metadata": {**head, "annotations": {DOWNSCALE_INTENT: None}}}
        return _decode(await self.removing.patch(STATEFULSETS, sts.namespace, sts.name, patch))


def render_steps(text: str) -> list[JsonObject]:
    """Return the steps of a patch that fails without a mark, and removes it."""
    return [
        {"op": "test", "path": _PATH, "value": text},
        {"op": "remove", "path": _PATH},
    ]


async def _patch(client: Patcher, sts: StatefulSet, steps: list[JsonObject]) -> StatefulSet:
    return _decode(await client.patch(STATEFULSETS, sts.namespace, sts.name, steps))


def _test_uid(uid: Uid) -> JsonObject:
    return {"op": "test", "path": "/metadata/uid", "value": uid}


def _decode(body: bytes) -> StatefulSet:
    try:
        return decode_statefulset(body)
    except DecodeError as error:
        raise Conflict(f"{error}") from error
