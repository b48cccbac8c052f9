"""The zone tracker: the times of downscales in one ConfigMap of the namespace.

Each write changes one entry and holds only for the version that was read: while several operators
look after one namespace, this keeps two of them from letting two zones go at once. `model.scaling`
has the format; `planning.downscales` decides whether a time forbids a downscale.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from rollout_operator.aio.clock import CLOCK_ERROR
from rollout_operator.guards.downscales import (
    AnnotationTimes,
    DownscaleGrant,
    Downscales,
    GroupTimes,
    Member,
)
from rollout_operator.kube.api import CONFIG_MAPS, JsonObject, Reader, Writer
from rollout_operator.kube.store import is_older
from rollout_operator.model.names import Conflict, DecodeError, Denied, InvalidInput, NotFound, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import (
    TimesSource,
    TrackerEntry,
    ZoneMap,
    decode_entry,
    decode_zone_map,
    format_entry,
    is_recorded,
    render_changed,
)
from rollout_operator.model.units import format_next_second, parse_rfc3339
from rollout_operator.planning.downscales import BROKEN_TIMES, Blocker, find_recent_downscale
from rollout_operator.telemetry.logs import log

# All groups write their entries into one object: another writer may be faster so often.
ATTEMPTS: Final = 10
# Written times have whole seconds: the time that this process knew before may be later.
_ROUNDING: Final = timedelta(seconds=1)
# The Role has no right to watch it: a time that a person sets back is seen so late at most. A grant
# and a write are decided on a read of their own.
READ_AGAIN: Final = timedelta(seconds=30)

_NOT_LOADED: Final = "loading zones failed."
_ANY_VERSION: Final = ""


class _TrackerClient(Reader, Writer, Protocol): ...


@dataclass(slots=True)
class Tracker:
    """Reads and writes the ConfigMap, by the methods of `AnnotationTimes`."""

    source = TimesSource.TRACKER

    client: _TrackerClient
    downscales: Downscales
    _: KW_ONLY
    namespace: str
    name: str
    """Of the ConfigMap."""
    now: Callable[[], datetime]
    """The API server's time."""
    _has_logged: bool = field(default=False, init=False)
    _last: ZoneMap | None = field(default=None, init=False)
    _read_at: datetime | None = field(default=None, init=False)

    async def read(self, sets: Sequence[Member]) -> dict[Uid, datetime]:
        return dict((await self.fetch_times(sets, but=Uid(""))).times)

    def recall(self, sets: Sequence[Member]) -> dict[Uid, datetime]:
        """Return the times as they were read last; an unreadable entry has none."""
        zone_map = self._last
        times = self._map_unshown(sets, zone_map)
        if zone_map is None:
            return times
        for sts in sets:
            with suppress(InvalidInput):
                _add_later(times, sts.uid, self._read_entry(zone_map, sts, Uid("")))
        return times

    async def refresh(self) -> bool:
        """Read the ConfigMap again; one that is gone is created by the next reconcile."""
        now = self.now()
        if self._read_at is not None and abs(now - self._read_at) < READ_AGAIN:
            return False
        self._read_at = now
        before, fetched = self._last, await self._fetch()
        return fetched is not None and (before is None or before.data != fetched.data)

    async def fetch_times(self, sets: Sequence[Member], *, but: Uid) -> GroupTimes:
        """Read the ConfigMap, or create it with the present time for these sets (ZONE-03)."""
        zone_map = await self._fetch() or await self._create(sets)
        times = self._map_unshown(sets, zone_map)
        for sts in sets:
            _add_later(times, sts.uid, self._read_entry(zone_map, sts, but))
        return GroupTimes(times=times, zone_map=zone_map)

    async def record(self, grant: DownscaleGrant) -> Blocker | None:
        """Write the zone's own entry; decide again where another of the group has changed.

        After an ApiError it is unknown whether it was written, and the grant is released later.
        """
        seen, problem = grant.seen, Conflict("the ConfigMap is written all the time")
        for _ in range(ATTEMPTS):
            # A set without a group has no others whose entries would matter.
            zone_map = seen.zone_map or await self._fetch() or await self._create([grant.sts])
            self._record_entry(grant, zone_map)
            try:
                await self._write(zone_map, grant.sts.name, _format(grant.at))
            except (Conflict, NotFound) as error:
                problem = Conflict(str(error), call=error.call, status=error.status)
            else:
                return None
            if not grant.others:
                seen = GroupTimes()
                continue
            seen = await self.fetch_times((grant.sts, *grant.others), but=grant.sts.uid)
            refusal = self._judge_again(grant, seen)
            if refusal is not None:
                return refusal
        raise problem

    async def keep(self, sts: StatefulSet, at: datetime) -> str:
        zone_map = await self._fetch()
        if zone_map is None:
            # The next reader lets all zones wait from then on: ZONE-03.
            return _ANY_VERSION
        if is_recorded(zone_map.data.get(sts.name), at):
            return zone_map.version
        written = await self._write(zone_map, sts.name, _format(at))
        log.info(
            "Recorded downscale", zone=sts.name, at=format_next_second(at),
            config_map=self.name, reason=Code.DOWNSCALE_RECORDED,
        )  # fmt: skip
        return written.version

    async def restore(self, sts: StatefulSet, entry: TrackerEntry) -> None:
        zone_map = await self._fetch()
        if zone_map is None or zone_map.data.get(sts.name) != entry.text:
            return
        await self._write(zone_map, sts.name, entry.before)
        log.info("Took the record of a downscale back", zone=sts.name, config_map=self.name)

    async def _fetch(self) -> ZoneMap | None:
        try:
            body = await self.client.fetch(CONFIG_MAPS, self.namespace, self.name)
        except NotFound:
            return None
        return self._take(body)

    def _take(self, body: bytes) -> ZoneMap:
        try:
            tracker = decode_zone_map(body)
        except DecodeError as error:
            raise InvalidInput(f"{_NOT_LOADED} ConfigMap {self.name}: {error}") from error
        # A newer version may be known by now.
        if self._last is None or not is_older(tracker.version, than=self._last.version):
            self._last = tracker
        return tracker

    async def _create(self, sets: Sequence[Member]) -> ZoneMap:
        names = [sts.name for sts in sets if sts.name]
        entry = _format(self.now() + CLOCK_ERROR)
        body: JsonObject = {
            "apiVersion": CONFIG_MAPS.version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "data": dict.fromkeys(names, entry),
        }
        try:
            created = await self.client.create(CONFIG_MAPS, self.namespace, body)
        except Conflict as error:
            tracker = await self._fetch()
            if tracker is None:
                raise error from None
            return tracker
        log.info("Created the zone tracker", config_map=self.name, zones=names)
        return self._take(created)

    def _read_entry(self, zone_map: ZoneMap, member: Member, but: Uid) -> datetime | None:
        """Return the time of one set, None without one and for `but`, whose time is not read."""
        text = zone_map.data.get(member.name)
        if text is None:
            return None
        try:
            time = decode_entry(text)
        except InvalidInput as error:
            place = f"ConfigMap {self.name}: data.{member.name}"
            raise InvalidInput(f"{_NOT_LOADED} {place}: {error}") from error
        if member.uid == but:
            return None
        try:
            return parse_rfc3339(time)
        except InvalidInput as error:
            place = f"statefulset {member.name}: entry in ConfigMap {self.name}"
            raise InvalidInput(f"{BROKEN_TIMES[self.source]} {place}: {error}") from error

    def _record_entry(self, grant: DownscaleGrant, zone_map: ZoneMap) -> None:
        # It may be stored without an answer.
        held, ours = zone_map.data.get(grant.sts.name), grant.reservation.entry
        # The present entry may be of a downscale of ours that never happened.
        before = ours.before if ours is not None and ours.text == held else held
        grant.reservation.entry = TrackerEntry(_format(grant.at), before)

    def _judge_again(self, grant: DownscaleGrant, seen: GroupTimes) -> Blocker | None:
        recent = find_recent_downscale(grant.sts, grant.others, seen.times, self.now(), self.source)
        if recent is not None:
            return recent
        # Whatever the wait: another process has let that zone go since our read (D-25).
        for other in grant.others:
            granted_at, now = grant.seen.times.get(other.uid), seen.times.get(other.uid)
            if now is not None and (granted_at is None or now - granted_at > _ROUNDING):
                text = f"statefulset {other.name} was scaled down meanwhile; try again"
                return Blocker(Code.CHANGED_MEANWHILE, text)
        return None

    async def _write(self, zone_map: ZoneMap, key: str, text: str | None) -> ZoneMap:
        """Write one entry if the ConfigMap is as it was read; return what is stored then."""
        where = (CONFIG_MAPS, self.namespace, self.name)
        patch: JsonObject = {"metadata": {"resourceVersion": zone_map.version}, "data": {key: text}}
        try:
            body = await self.client.patch(*where, patch)
        except Denied as denied:
            # The Role of earlier releases has `update` only.
            try:
                body = await self.client.replace(*where, render_changed(zone_map, key, text))
            except Denied:
                raise denied from None
            if not self._has_logged:
                log.warn("Zone tracker is written as a whole, for want of a right", err=denied)
            self._has_logged = True
        return self._take(body)

    def _map_unshown(self, sets: Sequence[Member], zone_map: ZoneMap | None) -> dict[Uid, datetime]:
        """Return the times that this process has seen and the ConfigMap is too old to show."""
        version = "0" if zone_map is None else zone_map.version  # older than any other
        return self.downscales.last.map_unshown({sts.uid: version for sts in sets})


DownscaleTimes: TypeAlias = AnnotationTimes | Tracker


def _add_later(times: dict[Uid, datetime], uid: Uid, at: datetime | None) -> None:
    if at is not None:
        times[uid] = max(at, times.get(uid, at))


def _format(at: datetime) -> str:
    return format_entry(format_next_second(at))
