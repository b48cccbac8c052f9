"""Replicas that another client puts back: how soon they are rewritten, and by which clients.

An autoscaler, an owner or GitOps may write the count of a zone that follows or mirrors. The
operator goes on with its orders, ever more seldom, and names the other writer to people. Its name
stands in `managedFields`, which no cache keeps: it is read from the store, once for each write that
did not stay.
"""

import asyncio
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.backoff import Rewrites
from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import STATEFULSETS, Reader
from rollout_operator.model.decode.managers import decode_replica_writers
from rollout_operator.model.errors import ApiError
from rollout_operator.model.names import DOWNSCALE_INTENT, FIELD_MANAGER, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import ScaleZone
from rollout_operator.planning.downscales.spacing import format_left

# A name is worth a short wait, and no more: without it the sentence says "something else".
NAMED_WITHIN: Final = timedelta(seconds=2)


class _Named(msgspec.Struct, frozen=True):
    """Which clients undid a count, by a read that followed so many writes of it."""

    times: int
    writers: tuple[str, ...]


class Contests:
    """The replicas that were written last, by UID of the set, and which clients revert them."""

    def __init__(self, client: Reader, clock: Clock, name: str = FIELD_MANAGER) -> None:
        """`name` is the field manager of our own writes."""
        self._client = client
        self._name = name
        self._rewrites: Rewrites[Uid, int] = Rewrites(clock)
        self._named: dict[Uid, _Named] = {}

    def record(self, action: ScaleZone) -> None:
        """Remember that a count was written."""
        self._rewrites.record(action.zone.uid, action.replicas)

    def wait_before(self, action: ScaleZone) -> timedelta:
        """Return how long a count that did not stay must wait; zero for go.

        Another count never waits: the followed zone, or the mirrored object, wants it now.
        """
        return self._rewrites.wait_before(action.zone.uid, action.replicas)

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self._rewrites.forget(set_uid)
        self._named.pop(set_uid, None)

    async def describe(self, action: ScaleZone, wait: timedelta) -> Reason:
        """Return why replicas are not written now, with the clients that revert them."""
        zone, replicas = action.zone, action.replicas
        times = self._rewrites.count(zone.uid, replicas)
        writers = " and ".join(await self._list_writers(zone, times)) or "something else"
        stable_text = (
            f"{action.reason.text} waits: spec.replicas was set to {replicas} and did not stay,"
            f" {writers} writes it too"
        )
        return Reason(
            code=Code.COUNT_CONTESTED,
            text=f"{stable_text}; set {times} times, again in {format_left(wait)}",
            stable_text=stable_text,
            severity=Severity.WARN,
            zone=zone.name,
        )

    async def _list_writers(self, zone: StatefulSet, times: int) -> tuple[str, ...]:
        named = self._named.get(zone.uid)
        if named is None or named.times != times:
            named = self._named[zone.uid] = _Named(times, await self._fetch_writers(zone))
        return named.writers

    async def _fetch_writers(self, zone: StatefulSet) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(NAMED_WITHIN.total_seconds()):
                body = await self._client.fetch(STATEFULSETS, zone.namespace, zone.name)
        except (ApiError, TimeoutError):
            return ()
        return decode_replica_writers(body, but=self._name)


def describe_mark(sts: StatefulSet) -> Reason:
    """Return why a mark of a downscale that comes back is not removed now."""
    text = (
        f"annotation {DOWNSCALE_INTENT} of {sts.name} was removed and did not stay so, something"
        " else writes it too; remove it there"
    )
    return Reason(code=Code.COUNT_CONTESTED, text=text, severity=Severity.WARN, zone=sts.name)
