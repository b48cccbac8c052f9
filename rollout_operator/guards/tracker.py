"""The zone tracker: the times of downscales in one ConfigMap of the namespace.

Every write is of one entry and holds only for the state that was read: where several operators look
after one namespace for a while, this is what keeps two of them from letting two zones go at a time.
The format is decided in `model.scaling`; whether a time forbids a downscale, in
`planning.downscales`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from rollout_operator.aio.clock import CLOCK_ERROR
from rollout_operator.guards.downscales import DownscaleGrant, Downscales, GroupTimes, Member
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
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.downscales import (
    BROKEN_TIMES,
    Blocker,
    find_recent_downscale,
    format_downscale_time,
)
from rollout_operator.telemetry.logs import log

# Each group writes its own entry, all into one object: so often another may be faster.
ATTEMPTS: Final = 10
# Written times have whole seconds: by so much later may be what this process knew before.
ROUNDING: Final = timedelta(seconds=1)
# The Role has no right to watch it: so late at most is a change of a person seen that sets a time
# back. A grant and a write are decided on a read of their own.
READ_AGAIN: Final = timedelta(seconds=30)

_NOT_LOADED: Final = "loading zones failed."
# Older than any other version.
_NO_VERSION: Final = "0"
_ANY_VERSION: Final = ""


class TrackerClient(Reader, Writer, Protocol):
    """The parts of `kube.api` that are needed."""


@dataclass(slots=True)
class Tracker:
    """Reads and writes the ConfigMap. Implements `times.DownscaleTimes`."""

    source = TimesSource.TRACKER

    client: TrackerClient
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
        """Return the times of these sets. Raises ApiError and InvalidInput."""
        return dict((await self.fetch_times(sets, but=Uid(""))).times)

    def recall(self, sets: Sequence[Member]) -> dict[Uid, datetime]:
        """Return the times as they were read last, without those of unreadable entries."""
        zone_map = self._last
        times = self._map_unshown(sets, zone_map)
        if zone_map is None:
            return times
        for sts in sets:
            with suppress(InvalidInput):
                _add_later(times, sts.uid, self._read_entry(zone_map, sts, Uid("")))
        return times

    async def refresh(self) -> bool:
        """Read the ConfigMap again; a ConfigMap that is gone is made anew by the next reconcile."""
        now = self.now()
        if self._read_at is not None and abs(now - self._read_at) < READ_AGAIN:
            return False
        self._read_at = now
        before, fetched = self._last, await self._fetch()
        return fetched is not None and (before is None or before.data != fetched.data)

    async def fetch_times(self, sets: Sequence[Member], *, but: Uid) -> GroupTimes:
        """Read the ConfigMap, or create it with the present time for these sets (ZONE-03).

        Raises ApiError and InvalidInput.
        """
        zone_map = await self._fetch() or await self._create(sets)
        times = self._map_unshown(sets, zone_map)
        for sts in sets:
            _add_later(times, sts.uid, self._read_entry(zone_map, sts, but))
        return GroupTimes(times=times, zone_map=zone_map)

    async def record(self, grant: DownscaleGrant) -> Blocker | None:
        """Write the own entry and no other; decide again where another of the group has changed.

        Raises ApiError: then it is unknown what is written, and the grant is released later.
        """
        seen, problem = grant.seen, Conflict("the ConfigMap is written all the time")
        for _ in range(ATTEMPTS):
            zone_map = seen.zone_map or await self._open(grant.sts)
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
        """Write the time of a downscale that has happened. Raises ApiError and InvalidInput."""
        zone_map = await self._fetch()
        if zone_map is None:
            # The next reader lets all zones wait from then on: ZONE-03.
            return _ANY_VERSION
        if is_recorded(zone_map.data.get(sts.name), at):
            return zone_map.version
        written = await self._write(zone_map, sts.name, _format(at))
        log.info(
            "Recorded downscale", zone=sts.name, at=format_downscale_time(at),
            config_map=self.name, reason=Code.DOWNSCALE_RECORDED,
        )  # fmt: skip
        return written.version

    async def restore(self, sts: StatefulSet, entry: TrackerEntry) -> None:
        """Put back the former entry. Raises ApiError and InvalidInput."""
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
        """Decode a ConfigMap, and remember it unless a newer version is known."""
        tracker = self._decode(body)
        if self._last is None or not is_older(tracker.version, than=self._last.version):
            self._last = tracker
        return tracker

    def _decode(self, body: bytes) -> ZoneMap:
        try:
            return decode_zone_map(body)
        except DecodeError as error:
            raise InvalidInput(f"{_NOT_LOADED} ConfigMap {self.name}: {error}") from error

    async def _create(self, sets: Sequence[Member]) -> ZoneMap:
        """Create it, or read that of a faster process. Raises Conflict where it is gone again."""
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

    async def _open(self, sts: StatefulSet) -> ZoneMap:
        """Return the present state, for a set without a group: its entries do not matter."""
        return await self._fetch() or await self._create([sts])

    def _read_entry(self, zone_map: ZoneMap, member: Member, but: Uid) -> datetime | None:
        """Return the time of one set, None where it has none. Raises InvalidInput."""
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
        """Remember the entry that is about to be written: it may be stored without an answer."""
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
            if now is not None and (granted_at is None or now - granted_at > ROUNDING):
                text = f"statefulset {other.name} was scaled down meanwhile; try again"
                return Blocker(Code.CHANGED_MEANWHILE, text)
        return None

    async def _write(self, zone_map: ZoneMap, key: str, text: str | None) -> ZoneMap:
        """Write one entry if the ConfigMap is still as it was read. Raises ApiError.

        Returns what is stored then.
        """
        where = (CONFIG_MAPS, self.namespace, self.name)
        patch: JsonObject = {
            "metadata": {"resourceVersion": zone_map.version},
            "data": {key: text},
        }
        try:
            body = await self.client.patch(*where, patch)
        except Denied as denied:
            # The Role of other releases has `update` only.
            try:
                body = await self.client.replace(*where, render_changed(zone_map, key, text))
            except Denied:
                raise denied from None
            self._report_denied(denied)
        return self._take(body)

    def _map_unshown(self, sets: Sequence[Member], zone_map: ZoneMap | None) -> dict[Uid, datetime]:
        """Return what this process has seen and a state of the ConfigMap is too old to show."""
        version = _NO_VERSION if zone_map is None else zone_map.version
        return self.downscales.last.map_unshown({sts.uid: version for sts in sets})

    def _report_denied(self, denied: Denied) -> None:
        if not self._has_logged:
            log.warn("Zone tracker is written as a whole, for want of a right", err=denied)
        self._has_logged = True


def _add_later(times: dict[Uid, datetime], uid: Uid, at: datetime | None) -> None:
    if at is not None:
        times[uid] = max(at, times.get(uid, at))


def _format(at: datetime) -> str:
    return format_entry(format_downscale_time(at))
