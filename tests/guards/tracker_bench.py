"""The zone tracker on an API server of dictionaries, and what tests check of its ConfigMap."""

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rollout_operator.guards.downscales import (
    DownscaleGrant,
    DownscaleReservation,
    Downscales,
    GroupTimes,
)
from rollout_operator.guards.tracker import Tracker
from rollout_operator.model.names import GROUP_LABEL, MIN_TIME_BETWEEN_DOWNSCALES, ApiError, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.scaling import format_entry
from rollout_operator.model.units import format_next_second
from rollout_operator.planning.downscales import Blocker
from tests.builders import sts
from tests.controllers.fake_client import FakeClient, Json
from tests.fakes_clock import EPOCH, FakeClock
from tests.ledger import key

NAME: Final = "zones"
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)
FRESH: Final = format_entry("2026-01-02T03:04:06Z")
"""What a map that is created at the beginning says: by a clock that may be a second behind."""


def entry(ago: timedelta = HOUR) -> str:
    """Return the entry of a downscale so long before the beginning."""
    return format_entry(format_next_second(EPOCH - ago))


def member(letter: str, *, wait: str = "", group: str | None = "ingester") -> StatefulSet:
    """Return a set; `wait` is what its label requests."""
    labels = {GROUP_LABEL: group} if group is not None else {}
    if wait:
        labels[MIN_TIME_BETWEEN_DOWNSCALES] = wait
    return sts(letter, labels=labels)


class TrackerBench:
    """One tracker; `data` is what the API server holds, None for no ConfigMap."""

    def __init__(self, data: Mapping[str, str] | None = None) -> None:
        self.clock = FakeClock()
        self.client = FakeClient([], [])
        self.downscales = Downscales(self.clock, late_calls=10 * SECOND)
        self.tracker = self._make(self.downscales)
        if data is not None:
            self.put(data)

    def another(self) -> Tracker:
        """Return the tracker of another process, of which this one knows nothing."""
        return self._make(Downscales(self.clock, late_calls=10 * SECOND))

    def _make(self, downscales: Downscales) -> Tracker:
        return Tracker(self.client, downscales, namespace="test", name=NAME, now=self.clock.now)

    def put(self, data: Mapping[str, object], **changes: Json) -> None:
        """Let another client write the whole ConfigMap."""
        held = self.client.objects.get(("configmaps", NAME))
        version = 0 if held is None else int(str(_meta(held)["resourceVersion"]))
        metadata: Json = {
            "name": NAME,
            "uid": "uid-zones",
            "labels": {"owner": "another-team"},
            "annotations": {"note": "kept"},
            "resourceVersion": str(version + 1),
        }
        self.client.objects["configmaps", NAME] = {
            "metadata": metadata,
            "data": {**data},
            **changes,
        }

    def set(self, name: str, text: str) -> None:
        """Let another client write one entry."""
        self.put({**self.data, name: text})

    @property
    def held(self) -> Json:
        """Return the ConfigMap as the API server has it."""
        return copy.deepcopy(self.client.objects["configmaps", NAME])

    @property
    def others(self) -> Json:
        """Return all of the ConfigMap that is neither entries nor version."""
        meta = {**_meta(self.held), "resourceVersion": ""}
        return {**self.held, "data": {}, "metadata": meta}

    @property
    def data(self) -> Mapping[str, str]:
        """Return its entries."""
        data = self.held["data"]
        assert isinstance(data, dict)
        return data

    def fail(self, call: str | tuple[str, ...], error: ApiError, times: int = 10**6) -> None:
        """Let calls that begin so end in an error, without effect."""
        left = [times]

        def before(made: str) -> None:
            if made.startswith(call) and left[0] > 0:
                left[0] -= 1
                raise error

        self.client.before = before

    def reservation(self, one: StatefulSet) -> DownscaleReservation:
        """Reserve the downscale of a set from three replicas to one."""
        letter = one.name.removeprefix("zone-")
        return self.downscales.begin(one, key(letter), self.clock.now(), ())

    async def grant(self, one: StatefulSet, *others: StatefulSet) -> Blocker | None:
        """Read, reservation and record, as a review does."""
        seen = GroupTimes()
        if others:
            seen = await self.tracker.fetch_times((one, *others), but=one.uid)
        return await self.tracker.record(self.granting(one, others, seen))

    def granting(
        self,
        one: StatefulSet,
        others: Sequence[StatefulSet] = (),
        seen: GroupTimes | None = None,
    ) -> DownscaleGrant:
        """Return a downscale that is about to be allowed now."""
        reservation = self.downscales.get(one.uid) or self.reservation(one)
        return DownscaleGrant(
            reservation=reservation,
            sts=one,
            others=tuple(others),
            seen=seen or GroupTimes(),
            at=self.clock.now(),
        )

    def remember(self, letter: str, at: datetime) -> None:
        """Let this process have seen a downscale."""
        self.downscales.last.record(Uid(f"uid-{letter}"), at)


def _meta(one: Json) -> Json:
    meta = one["metadata"]
    assert isinstance(meta, dict)
    return meta
