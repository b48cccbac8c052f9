"""RolloutGates that schedules keep: their known state, and writes of them.

Writes of this process count until the caches show them, or that the gate is gone, and for half a
minute at most. Each write holds only for the gate in the version of the decision.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import JsonObject, Precondition, TimedPatcher, Writer
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.kube.cache.store import is_older
from rollout_operator.kube.release_kinds import ROLLOUT_GATES
from rollout_operator.model import names
from rollout_operator.model.decode.releases.gate import decode_gate
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import AnyWatched, WatchedObject
from rollout_operator.model.releases.rollout import ReleaseGate
from rollout_operator.model.releases.schedule import (
    CorrectGate,
    CreateGate,
    DeleteGate,
    GateAction,
    WantedGate,
)
from rollout_operator.telemetry.logs import log

OWN_WRITES_LAST: Final = timedelta(seconds=30)
_LABELS: Final = (
    *(names.SCHEDULE_NAME, names.SCHEDULE_NAMESPACE, names.SCHEDULE_KIND),
    *(names.GATED_ROLLOUT, names.MANAGED_BY),
)


class GateClient(Writer, TimedPatcher, Protocol):
    """What a KeptGates calls."""


class KeptGates:
    """All gates of one namespace, or of the cluster."""

    def __init__(self, client: GateClient, cached: FollowedKind, clock: Clock) -> None:
        self._client = client
        self._cached = cached
        self._clock = clock
        self._written: dict[str, tuple[ReleaseGate, timedelta]] = {}
        self._deleted: dict[Uid, timedelta] = {}
        cached.on_change(self._on_change)

    def list_all(self) -> tuple[ReleaseGate, ...]:
        """Return the newest known state of each gate that can be read."""
        self._forget_old()
        gates: dict[str, ReleaseGate] = {}
        for watched in self._cached.store.list_all():
            if isinstance(watched, WatchedObject) and isinstance(watched.decoded, ReleaseGate):
                gates[watched.decoded.head.key] = _restore(
                    watched.decoded, watched.resource_version
                )
        for key, (gate, _) in self._written.items():
            cached = gates.get(key)
            if cached is None or is_older(cached.head.resource_version, gate.head.resource_version):
                gates[key] = gate
        return tuple(each for each in gates.values() if each.head.uid not in self._deleted)

    async def carry_out(
        self, action: GateAction, still_holds: Callable[[], bool] = lambda: True
    ) -> bool:
        """Create, correct or delete a gate. Raises as `Writer`, and DecodeError.

        Return whether it was sent: a plan that no longer holds when our own limits let the request
        go opens and closes no gate.
        """
        client = self._client
        match action:
            case CreateGate(wanted=wanted):
                self._log("Creating gate", wanted)
                body = render_gate(wanted)
                self._record(await client.create(ROLLOUT_GATES, wanted.namespace, body))
            case CorrectGate(head=head, wanted=wanted):
                place = (ROLLOUT_GATES, head.namespace, head.name)
                await client.wait_turn_to_patch(*place)
                if not still_holds():
                    return False
                self._log("Correcting gate", wanted)
                patch = render_correction(action)
                self._record(await client.patch(*place, patch, has_turn=True))
            case DeleteGate(head=head):
                log.info("Deleting gate", gate=head.key)
                is_this = Precondition(uid=head.uid, resource_version=head.resource_version)
                await client.delete(ROLLOUT_GATES, head.namespace, head.name, precondition=is_this)
                self._deleted[head.uid] = self._clock.elapsed()
        return True

    def _on_change(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Forget the writes to a gate that is gone."""
        if old is not None and new is None:
            written, _ = self._written.get(f"{old.namespace}/{old.name}", (None, None))
            if written is not None and written.head.uid == old.uid:
                del self._written[written.head.key]

    def _record(self, body: bytes) -> None:
        gate = decode_gate(body)
        self._written[gate.head.key] = gate, self._clock.elapsed()

    def _forget_old(self) -> None:
        begin = self._clock.elapsed() - OWN_WRITES_LAST
        self._written = {
            key: written for key, written in self._written.items() if written[1] >= begin
        }
        self._deleted = {uid: at for uid, at in self._deleted.items() if at >= begin}

    def _log(self, message: str, wanted: WantedGate) -> None:
        log.info(message, gate=wanted.key, rollout=wanted.rollout, is_passing=wanted.is_passing)


def render_gate(wanted: WantedGate) -> JsonObject:
    """Return a new gate."""
    metadata = _render_metadata(wanted)
    for part in ("labels", "annotations"):
        fields = metadata[part]
        assert isinstance(fields, dict)
        metadata[part] = {key: value for key, value in fields.items() if value is not None}
    return {
        "apiVersion": f"{ROLLOUT_GATES.group}/{ROLLOUT_GATES.version}",
        "kind": ROLLOUT_GATES.kind,
        "metadata": {"name": wanted.name, "namespace": wanted.namespace, **metadata},
        "spec": _render_spec(wanted),
    }


def render_correction(action: CorrectGate) -> JsonObject:
    """Return the merge patch that makes a gate as wanted, and changes nothing else of it."""
    head, wanted = action.head, action.wanted
    same: JsonObject = {"uid": head.uid, "resourceVersion": head.resource_version}
    return {
        "metadata": {**same, **_render_metadata(wanted)},
        "spec": _render_spec(wanted),
    }


def _render_metadata(wanted: WantedGate) -> JsonObject:
    """Return labels, annotations and owners; unwanted fields are null."""
    origin = wanted.origin
    return {
        "labels": {key: origin.labels.get(key) for key in _LABELS},
        "annotations": {
            names.PRETTY_NAME: origin.pretty_name,
            names.GATE_DESCRIPTION: origin.description,
        },
        "ownerReferences": [msgspec.to_builtins(owner) for owner in origin.owners],
    }


def _render_spec(wanted: WantedGate) -> JsonObject:
    return {"rolloutRef": {"name": wanted.rollout}, "passing": wanted.is_passing}


def _restore(gate: ReleaseGate, version: str) -> ReleaseGate:
    """Return a gate with the version that its cached object leaves out."""
    head = msgspec.structs.replace(gate.head, resource_version=version)
    return msgspec.structs.replace(gate, head=head)
