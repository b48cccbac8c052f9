"""Where the times of downscales are kept, for other processes and for this process after a restart.

Two places with the same methods: annotations of the StatefulSets, which is here, and the
zone tracker, see `zone_tracker`. Whether a time forbids a downscale is decided in
`planning.downscales.spacing`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from rollout_operator.guards.downscales.reservations import DownscaleReservation, Downscales
from rollout_operator.kube.api import STATEFULSETS, JsonObject, Patcher
from rollout_operator.model.decode.objects import decode_version
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import LAST_DOWNSCALE, Uid
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.model.tracker import TimesSource, TrackerEntry, ZoneMap
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.downscales.spacing import Blocker, format_downscale_time
from rollout_operator.telemetry.logs import log

Member = StatefulSet | Unreadable


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a group by one read of the records."""

    times: Mapping[Uid, datetime] = {}
    """When its zones were scaled down last, beyond what annotations show."""
    zone_map: ZoneMap | None = None
    """The state of the zone tracker that says it."""


class DownscaleGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that is about to be allowed."""

    reservation: DownscaleReservation
    sts: StatefulSet
    others: tuple[StatefulSet, ...]
    """The rest of its group."""
    seen: GroupTimes
    """What the decision rests on."""
    at: datetime
    """When it is allowed, in the API server's time."""


class DownscaleTimes(Protocol):
    """When zones of a group were scaled down last, kept as downscales come and go."""

    @property
    def source(self) -> TimesSource:
        """Where they are kept, for `planning.downscales.spacing`."""
        ...

    def recall(self, sets: Sequence[Member]) -> Mapping[Uid, datetime]:
        """Return the times of these sets of a group, as they were read last.

        Beyond what their annotations show. What this process has seen counts until the record
        shows it; from then on the record does, also where a person has changed it (D-66).
        """
        ...

    async def read(self, sets: Sequence[Member]) -> Mapping[Uid, datetime]:
        """Return the same, read from the store now.

        Raises ApiError, and InvalidInput whose text is fit for the client.
        """
        ...

    async def refresh(self) -> bool:
        """Read again what no cache shows, unless that was done lately; return whether it changed.

        Raises as `read`.
        """
        ...

    async def keep(self, sts: StatefulSet, at: datetime) -> str:
        """Write down a downscale that has happened, unless a later time is there.

        Returns the version from which on the record shows it. Raises ApiError; Conflict where
        another client wrote meanwhile: read again.
        """
        ...

    async def fetch_times(self, sets: Sequence[Member], *, but: Uid) -> GroupTimes:
        """Return times as `read` does, and what a write needs, but not the time of the set `but`.

        Raises as `read`.
        """
        ...

    async def record(self, grant: DownscaleGrant) -> Blocker | None:
        """Write down a downscale before it is allowed, or return why it must not happen after all.

        Records on the reservation what was written. Raises as `read`.
        """
        ...

    async def restore(self, sts: StatefulSet, entry: TrackerEntry) -> None:
        """Restore the time from before a downscale that did not happen, if its own is still there.

        Raises as `keep`.
        """
        ...


class AnnotationTimes:
    """Times on the sets themselves: the answer to a review carries them where it can (D-23)."""

    source = TimesSource.ANNOTATIONS

    def __init__(self, client: Patcher, downscales: Downscales) -> None:
        self._client = client
        self._downscales = downscales

    def recall(self, sets: Sequence[Member]) -> Mapping[Uid, datetime]:
        """Return what these cached sets are too old to show: annotations are read with them."""
        return self._downscales.last.map_unshown({sts.uid: sts.resource_version for sts in sets})

    async def read(self, sets: Sequence[Member]) -> Mapping[Uid, datetime]:
        """Return the same: sets are read live by the caller."""
        return self.recall(sets)

    async def refresh(self) -> bool:
        """Read nothing: the cache shows annotations."""
        return False

    async def fetch_times(self, sets: Sequence[Member], *, but: Uid) -> GroupTimes:
        """Return what these sets are too old to show."""
        return GroupTimes(times=self.recall(sets))

    async def record(self, grant: DownscaleGrant) -> Blocker | None:
        """Write nothing: the object under review must not be written meanwhile."""
        return None

    async def keep(self, sts: StatefulSet, at: datetime) -> str:
        """Annotate the set where no answer to a review did, or did with too early a time."""
        if is_annotated(sts, at):
            return sts.resource_version
        text = format_downscale_time(at)
        # With the version, so that a patch that is long on its way does not put back the time of a
        # downscale that came after it.
        patch: JsonObject = {
            "metadata": {
                "uid": sts.uid,
                "resourceVersion": sts.resource_version,
                "annotations": {LAST_DOWNSCALE: text},
            }
        }
        body = await self._client.patch(STATEFULSETS, sts.namespace, sts.name, patch)
        log.info("Recorded downscale", zone=sts.name, at=text, reason=Code.DOWNSCALE_RECORDED)
        return decode_version("StatefulSet", body)

    async def restore(self, sts: StatefulSet, entry: TrackerEntry) -> None:
        """Leave the set alone: a downscale that was not written has left no time on it."""


def is_annotated(sts: StatefulSet, at: datetime) -> bool:
    """Return whether a set carries this time of a downscale, or a later time."""
    try:
        return parse_rfc3339(sts.annotations.get(LAST_DOWNSCALE, "")) >= at
    except InvalidInput:
        return False
