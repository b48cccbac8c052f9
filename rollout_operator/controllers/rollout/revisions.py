"""Record the revision that a zone has been rolled out to, in its status.

The controller of `OnDelete` sets does not. It is written only where the store shows the zone as the
decision had it (ROLL-39).
"""

from typing import Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.live_reads import LIVE_READ_LASTS, describe_slow
from rollout_operator.controllers.rollout.rule import RolloutRule
from rollout_operator.kube.api import STATEFULSETS, JsonObject, LiveReader, Writer
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.errors import Conflict, DecodeError
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, RecordRevision, Severity
from rollout_operator.telemetry.logs import log


class RolloutClient(LiveReader, Writer, Protocol):
    """The part of the API that rollouts need."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of recording: why it was not done, if so."""

    reasons: tuple[Reason, ...] = ()
    cut_short: str = ""
    """Why the live read was too old, if it was."""


class Revisions:
    """Writes revisions of zones that are rolled out."""

    def __init__(self, client: RolloutClient, rule: RolloutRule, clock: Clock) -> None:
        self._client = client
        self._rule = rule
        self._clock = clock

    async def record(self, group: GroupName, action: RecordRevision) -> Recording:
        """Record it, unless the caches or the store show by now that it is not true.

        Raises ApiError.
        """
        zone = action.zone
        await self._client.wait_turn(STATEFULSETS, zone.namespace)
        if not _records(self._rule.plan(self._rule.observe(group)), action):
            return _moved(action)  # while it waited for its turn
        sent_at = self._clock.elapsed()
        body = await self._client.fetch(STATEFULSETS, zone.namespace, zone.name, has_turn=True)
        if self._clock.elapsed() - sent_at > LIVE_READ_LASTS:
            # A pod may have been evicted since the pods were read, and the status not know it.
            return Recording(cut_short=describe_slow(zone.name))
        try:
            live = decode_statefulset(body)
        except DecodeError as error:
            raise Conflict(str(error), call=f"read statefulset {zone.name}") from error
        if not _is_rolled_out(live, action):
            return _moved(action)
        if live.current_revision == live.update_revision:
            return Recording()  # by an earlier attempt; the cache will show it
        log.info(
            "Recording revision",
            **self._rule.name_set(group, zone),
            revision=action.revision, reason=action.reason.code,
            why=action.reason.text,
        )  # fmt: skip
        whole = msgspec.json.decode(body, type=JsonObject)
        status = msgspec.convert(whole["status"], type=JsonObject)
        whole["status"] = {**status, "currentRevision": action.revision}
        await self._client.replace_status(STATEFULSETS, zone.namespace, zone.name, whole)
        return Recording()


def _is_rolled_out(live: StatefulSet, action: RecordRevision) -> bool:
    """Return whether the store shows a zone as the decision had it.

    More replicas: it is not known yet whether the new pods are ready (ROLL-39). Nor whether all
    still are, where the record of the zone before took its time. Nor which revision they
    have by now, where the cache shows those of before a rollback.
    """
    zone = action.zone
    return (
        live.uid == zone.uid
        and live.update_revision == action.revision
        and live.replicas == zone.replicas
        and min(live.ready_replicas, live.updated_replicas) >= live.replicas
        and live.observed_generation >= live.generation
    )


def _records(plan: Plan, action: RecordRevision) -> bool:
    """Return whether a plan still records the same revision of the same zone."""
    return any(
        isinstance(other, RecordRevision)
        and (other.zone.uid, other.revision) == (action.zone.uid, action.revision)
        for other in plan.actions
    )


def _moved(action: RecordRevision) -> Recording:
    zone = action.zone.name
    text = f"{zone} is no longer as it was, rolled out to {action.revision}; looking again"
    reason = Reason(code=Code.SNAPSHOT_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)
    return Recording(reasons=(reason,))
