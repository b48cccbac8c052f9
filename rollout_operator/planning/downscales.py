"""Decide whether a zone may lose pods now, and which of them must be prepared first.

Works on one live read of the group. The time between downscales of two zones is judged by one
function for the webhook and every controller (D-22), on the API server's clock. What became of a
downscale only the set itself tells: the answer may have been lost, another webhook may have refused
it, or a person may have reverted it right away.

`requests` decides what a review requests at all, and where pods are called.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.names import (
    LAST_DOWNSCALE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    PREPARE_DOWNSCALE,
    InvalidInput,
    Uid,
)
from rollout_operator.model.objects import (
    Decrease,
    Endpoint,
    Group,
    Key,
    Pod,
    StatefulSet,
    Target,
    Zone,
)
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import TimesSource
from rollout_operator.model.units import (
    format_duration,
    format_go_time,
    format_rfc3339,
    parse_duration,
    parse_rfc3339,
)
from rollout_operator.planning.readiness import (
    count_used,
    explain_left,
    is_behind,
    is_paused,
    measure_departed,
    measure_readiness,
    order_zones,
    render_behind,
    render_settling,
)
from rollout_operator.planning.requests import RETRY, plan_endpoint, refuse_decrease
from rollout_operator.planning.rollout import count_outdated_used
from rollout_operator.planning.wording import NAMES_SHOWN, count, join_names, join_some, verb

_SECOND: Final = timedelta(seconds=1)
# Worded as in all releases: people search for these texts.
BROKEN_TIMES: Final = {
    TimesSource.ANNOTATIONS: "parsing downscale annotations failed.",
    TimesSource.TRACKER: "parsing parsing downscale timestamps from the zone ConfigMap failed.",
}
# The answer stays the same until a person acts.
FORBIDDEN: Final = 403
_WAY_OUT: Final = f"take the label {PREPARE_DOWNSCALE} off"
# Not `Unknown`: the containers may run on a node that is unreachable.
_IDLE_PHASES: Final = frozenset({"Pending", "Succeeded", "Failed"})
# A pod's creation time is rounded down to a second, a recorded time rounded up.
_ROUNDING: Final = timedelta(seconds=2)


class Blocker(msgspec.Struct, frozen=True):
    """Why a zone may not lose pods now."""

    code: Code
    why: str
    """Follows `is not allowed because`."""
    status: int = 0
    """HTTP, 0 for the API server's default."""


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale of another zone that is too recent."""

    sts: StatefulSet
    last: datetime
    wait: timedelta
    left: timedelta
    """More than zero."""


class BadTime(msgspec.Struct, frozen=True, kw_only=True):
    """A time or duration that cannot be parsed."""

    sts: StatefulSet
    why: str
    """Names key and value."""


class PreparePods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that must confirm before they go, highest ordinal first."""

    endpoints: tuple[Endpoint, ...]
    going: tuple[Pod, ...]
    """All pods in the range, called or not, in the order in which they go."""
    staying: tuple[Pod, ...] = ()
    """Up to two pods that stay, one of which is to carry the record of the downscale."""
    skipped: str = ""
    """Which pods are not called, and why; empty if all are."""


class EarlierDownscale(msgspec.Struct, frozen=True, kw_only=True):
    """The last downscale of a set that was reserved."""

    key: Key
    is_preparing: bool
    """Its pods are being called, and it is not answered yet."""
    is_persisted: bool
    is_adopted: bool
    """Another process began it, and may never have granted it."""
    is_late: bool
    """It can no longer persist: a new request is a retry by its client."""
    is_elsewhere: bool
    """It was judged in another group, or beside other zones."""
    prepared: Set[Uid]
    """Pods that have confirmed."""

    def may_be(self, key: Key) -> bool:
        """Return whether it is the requested downscale and may still happen."""
        is_over = self.is_persisted or (self.is_preparing and self.is_elsewhere)
        return not is_over and self.key.may_be(key)

    def is_repeated_by(self, key: Key) -> bool:
        """Return whether the request repeats this downscale, and is not judged again (D-24).

        An adopted downscale was perhaps never granted; a late one is a new request, since the
        cluster and the time to record have changed; and one that was granted beside other zones
        does not hold back those that are neighbours now.
        """
        is_known = not (self.is_adopted or self.is_elsewhere)
        return self.may_be(key) and is_known and not self.is_late

    def may_persist_beside(self, target: Target) -> bool:
        """Return whether it may still be written while another downscale is requested.

        The API server takes the write only for the very version that was reviewed: a set that names
        another target has changed since.
        """
        if self.is_persisted:
            return False
        return self.is_preparing or self.key.target in (None, target)


class DownscaleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `plan_reservation`."""

    decrease: Decrease
    key: Key
    target: Target
    """Where the pods are called, by the set itself."""
    zone: Zone
    group: Group
    """From a live read, with other downscales."""
    is_grouped: bool
    """Whether the set belongs to a rollout group."""
    times: Mapping[Uid, datetime] | None
    """Downscales of other zones; None where they were not read for a repeated request."""
    recalled: Mapping[Uid, datetime] = {}
    """Those of them that this process remembers."""
    source: TimesSource
    earlier: EarlierDownscale | None
    cluster_domain: str


class ReservationPlan(msgspec.Struct, frozen=True, kw_only=True):
    pods: PreparePods
    missing: tuple[Endpoint, ...]
    """The pods that have not confirmed yet."""
    is_repeated: bool
    """Then the time of the first answer stays."""


@unique
class DownscaleOutcome(StrEnum):
    OPEN = "open"
    HAPPENED = "happened"
    FAILED = "failed"


def find_blocker(
    decrease: Decrease,
    scaled: StatefulSet,
    group: Group,
    times: Mapping[Uid, datetime],
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> Blocker | None:
    """Return why the group does not let a zone lose pods now (PREP-10..19).

    Checks other downscales, under way or recent, and whether the other zones are whole and rolled
    out. `times` and `source` are those of `find_recent_downscale`.
    """
    if group.unreadable:
        lost = min(group.unreadable, key=lambda lost: lost.name)
        why = f"finding other statefulsets failed. {lost.kind} {lost.name}: {lost.error}"
        return Blocker(Code.GROUP_NOT_READ, why)
    if blocker := _find_other_downscale(scaled, group, times, source):
        return blocker
    if takes_newcomers_only(scaled, decrease, group):
        return None  # D-67: no data is lost by it
    others = [zone for zone in order_zones(group.zones) if zone.sts.uid != scaled.uid]
    for readiness in measure_departed(group):
        if not readiness.is_whole:
            left = explain_left(readiness)
            return Blocker(left.code, f"statefulset {left.text}", RETRY)
    for other in others:
        why = _explain_unsettled(other, group)
        if why:
            return _block_unsettled(decrease, scaled, group, other, why)
    return None


def _find_other_downscale(
    scaled: StatefulSet, group: Group, times: Mapping[Uid, datetime], source: TimesSource
) -> Blocker | None:
    if group.downscale is not None:
        why = f"statefulset {group.downscale.zone} is already in process of updating replicas"
        return Blocker(Code.OTHER_DOWNSCALE_UNDERWAY, why, RETRY)
    others = [zone.sts for zone in order_zones(group.zones) if zone.sts.uid != scaled.uid]
    return find_recent_downscale(scaled, others, times, group.now, source)


def assess_neighbours(
    decrease: Decrease,
    scaled: StatefulSet,
    group: Group,
    times: Mapping[Uid, datetime],
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> Verdict | None:
    """Return the refusal where the group does not let a zone lose pods now."""
    blocker = find_blocker(decrease, scaled, group, times, source)
    if blocker is None:
        return None
    return refuse_decrease(decrease, blocker.code, blocker.why, status=blocker.status)


def plan_reservation(snapshot: DownscaleSnapshot) -> ReservationPlan | Verdict:
    decrease, zone, earlier = snapshot.decrease, snapshot.zone, snapshot.earlier
    is_same = earlier is not None and earlier.may_be(snapshot.key)
    if earlier is not None and not is_same and earlier.may_persist_beside(snapshot.target):
        why = f"statefulset {zone.sts.name} is already in process of updating replicas"
        return refuse_decrease(decrease, Code.OTHER_DOWNSCALE_UNDERWAY, why, status=RETRY)
    is_repeated = earlier is not None and earlier.is_repeated_by(snapshot.key)
    if snapshot.is_grouped and not is_repeated:
        if snapshot.times is None:
            why = "the same was requested before, and is over meanwhile; try again"
            return refuse_decrease(decrease, Code.CHANGED_MEANWHILE, why, status=RETRY)
        refusal = assess_neighbours(
            decrease, zone.sts, snapshot.group, snapshot.times, snapshot.source
        )
        if refusal is not None:
            return refusal
    elif snapshot.is_grouped:
        # While it waited to be written, a zone may have been scaled down in another group.
        blocker = _find_other_downscale(
            zone.sts, snapshot.group, snapshot.recalled, snapshot.source
        )
        if blocker is not None:
            return refuse_decrease(decrease, blocker.code, blocker.why, status=blocker.status)
    pods = choose_pods_to_prepare(decrease, zone, snapshot.target, snapshot.cluster_domain)
    if isinstance(pods, Verdict):
        return pods
    confirmed = earlier.prepared if earlier is not None and is_repeated else frozenset[Uid]()
    missing = tuple(endpoint for endpoint in pods.endpoints if endpoint.uid not in confirmed)
    return ReservationPlan(pods=pods, missing=missing, is_repeated=is_repeated)


def choose_pods_to_prepare(
    decrease: Decrease, zone: Zone, target: Target, cluster_domain: str
) -> PreparePods | Verdict:
    """Return which pods of a range to call before they go, or a refusal where that is unknown.

    Pods that do not exist, do not run or were never ready need no preparation (D-26); every other
    pod must confirm.
    """
    sts = zone.sts
    first = sts.first_ordinal
    wanted = range(first + decrease.replicas_to, first + decrease.replicas_from)
    held = zone.list_pods(wanted)
    going = tuple(pod for _, pod in reversed(held))
    why, status = _explain_doubt(zone, wanted, going), RETRY
    if not why:
        why, status = _explain_lasting_doubt(zone, wanted)
    if why:
        return _refuse_pod(decrease, why, status=status)
    staying = zone.list_pods(range(first, wanted.start))
    endpoints: list[Endpoint] = []
    missing = len(wanted) - len({ordinal for ordinal, _ in held})
    skipped = [f"{count(missing, 'pod')} of the range: no such pod"] if missing else []
    for pod in going:
        idle = _explain_idle(pod)
        if idle:
            skipped.append(f"{pod.name} {idle}")
            continue
        endpoint = plan_endpoint(pod, target, cluster_domain)
        if isinstance(endpoint, str):
            return _refuse_pod(decrease, endpoint)
        endpoints.append(endpoint)
    return PreparePods(
        endpoints=tuple(endpoints),
        going=going,
        staying=tuple(pod for _, pod in staying if not pod.is_terminating)[:2],
        skipped=join_some(skipped[:NAMES_SHOWN], total=len(skipped)),
    )


def assess_unanswered(
    decrease: Decrease, endpoints: Sequence[Endpoint], waits: Mapping[Uid, timedelta]
) -> Verdict | None:
    """Return the refusal while a pod may still act on an unanswered call that it stays.

    SI-10: that call would revert what the pod confirms now. `waits` says for how long, by pod.
    """
    pods = [endpoint.pod for endpoint in endpoints if endpoint.uid in waits]
    if not pods:
        return None
    left = max(waits[endpoint.uid] for endpoint in endpoints if endpoint.uid in waits)
    be, have = verb(len(pods), "was", "were"), verb(len(pods), "has", "have")
    stay = verb(len(pods), "it stays", "they stay")
    why = f"{join_names(pods)} {be} told that {stay}, and {have} not answered"
    return _refuse_pod(decrease, f"{why}; try again in {format_left(left)}", status=RETRY)


def judge_downscale(key: Key, sts: StatefulSet, *, may_persist: bool) -> DownscaleOutcome:
    """Return what became of a downscale; `may_persist`: the API server may still write it.

    A downscale that was reverted stays open as long: it may be requested again, and a pod that may
    still be taken away must not be un-prepared (SI-12).
    """
    if sts.replicas <= key.replicas_to:
        return DownscaleOutcome.HAPPENED
    return DownscaleOutcome.OPEN if may_persist else DownscaleOutcome.FAILED


def find_recent_downscale(
    scaled: StatefulSet,
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    now: datetime,
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> Blocker | None:
    """Return why a zone may not be scaled down yet, None where it may.

    The longest wait of all zones counts, this one included. `remembered` has downscales that the
    annotations may not show yet, or all of them where `source` is the zone tracker. A time that
    cannot be parsed refuses, on any zone (PREP-12, PREP-15).
    """
    downscales = list_recent(scaled, others, remembered, now, source)
    if isinstance(downscales, BadTime):
        text = f"{BROKEN_TIMES[source]} statefulset {downscales.sts.name}: {downscales.why}"
        return Blocker(Code.BAD_DOWNSCALE_TIME, text)
    if not downscales:
        return None
    recent = downscales[0]
    return Blocker(
        Code.ZONE_DOWNSCALED_LATELY,
        f"statefulset {recent.sts.name} was downscaled at {format_go_time(recent.last)} and is"
        f" labelled to wait {format_duration(recent.wait)} between zone downscales"
        f"{hint_future(recent, now, source)}",
    )


def list_recent(
    scaled: StatefulSet,
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    now: datetime,
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> tuple[Recent, ...] | BadTime:
    """Return the same as data: all downscales that are too recent, in the order of `others`."""
    others = tuple(others)
    spans: list[timedelta] = []
    times: list[tuple[StatefulSet, datetime]] = []
    for other in (scaled, *others):
        try:
            spans.append(_read_span(other))
            # The scaled zone's own time does not matter, even if it cannot be parsed.
            last = None if other is scaled else _read_last(other, remembered, source)
        except InvalidInput as error:
            return BadTime(sts=other, why=str(error))
        if last is not None:
            times.append((other, last))
    wait = max(spans)
    return tuple(
        Recent(sts=time, last=last, wait=wait, left=wait - (now - last))
        for time, last in times
        if wait and now - last < wait
    )


def explain_bad_time(sts: StatefulSet, source: TimesSource) -> str:
    """Return why times of a zone cannot be read; empty where they can be."""
    try:
        _read_span(sts)
        _read_last(sts, {}, source)
    except InvalidInput as error:
        return str(error)
    return ""


def knows_downscale(
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> bool:
    """Return whether any of these zones was ever scaled down."""
    has_times = source is TimesSource.ANNOTATIONS
    return any(
        other.uid in remembered or (has_times and LAST_DOWNSCALE in other.annotations)
        for other in others
    )


def hint_future(
    recent: Recent, now: datetime, source: TimesSource = TimesSource.ANNOTATIONS
) -> str:
    """Return what a person must fix where a time lies in the future, with its semicolon."""
    # Times are rounded up by a second.
    if recent.last - now <= timedelta(minutes=1):
        return ""
    is_tracked = source is TimesSource.TRACKER
    place = "entry in the zone ConfigMap" if is_tracked else f"annotation {LAST_DOWNSCALE}"
    return f"; that time lies in the future: see its {place}"


def format_left(left: timedelta) -> str:
    """Format the time left in whole seconds, rounded up."""
    return format_duration(-(-left // _SECOND) * _SECOND)


def format_moment(time: datetime) -> str:
    """Format a time that another client wrote, in UTC if it can be expressed there."""
    try:
        return format_rfc3339(time)
    except OverflowError:
        return format_go_time(time)


def takes_idle_only(scaled: StatefulSet, decrease: Decrease, group: Group) -> bool:
    """Return whether no pod in the range is up, or was."""
    going = _list_going(scaled, decrease, group)
    is_known = _find_zone(scaled, group) is not None
    return is_known and all(_explain_idle(pod) and not pod.was_ready for pod in going)


def takes_newcomers_only(scaled: StatefulSet, decrease: Decrease, group: Group) -> bool:
    """Return whether no pod in the range was ever ready, nor any before it."""
    zone = _find_zone(scaled, group)
    return zone is not None and count_used(zone) <= decrease.replicas_to < zone.sts.replicas


def choose_staying(
    sts: StatefulSet, pods: Iterable[Pod], called: Mapping[Uid, str]
) -> dict[Uid, Pod]:
    """Return the pods to un-prepare, by the UID that was prepared, in order of ordinals.

    `called` has the names. A prepared pod that is gone though wanted gets a successor, which may
    find on its disk that it is to go: it is called once it runs.
    """
    present = {pod.name: pod for pod in pods if not pod.is_terminating}
    candidates: list[tuple[int, Uid, Pod]] = []
    for uid, name in called.items():
        pod, ordinal = present.get(name), sts.find_ordinal(name, sts.ordinals)
        if pod is not None and ordinal is not None and (pod.uid == uid or pod.ip):
            candidates.append((ordinal, uid, pod))
    return {uid: pod for _, uid, pod in sorted(candidates, key=lambda pair: pair[0])}


def took_pods(sts: StatefulSet, pods: Iterable[Pod], called: Mapping[Uid, str]) -> bool:
    """Return whether a prepared pod is gone or going although its set wants it.

    Then the downscale happened and was reverted, even if no watch has shown it.
    """
    present = {pod.uid for pod in pods if not pod.is_terminating}
    return any(uid not in present and is_wanted(sts, name) for uid, name in called.items())


def find_replaced(
    key: Key, sts: StatefulSet, pods: Iterable[Pod], at: datetime, now: datetime
) -> datetime | None:
    """Return when the newest successor of a downscale of about `at` came, None if there is none.

    Then the downscale happened and was reverted; `now` while a pod is still missing. A forged `at`
    cannot make it say what is not so.
    """
    taken = range(sts.first_ordinal + key.replicas_to, sts.first_ordinal + key.replicas_from)
    wanted = range(taken.start, min(taken.stop, sts.ordinals.stop))
    came = [pod.created for pod in pods if sts.find_ordinal(pod.name, wanted) is not None]
    if len(came) < len(wanted):
        return now
    newest = max((now if time is None else time for time in came), default=None)
    return newest if newest is not None and at - newest <= _ROUNDING else None


def is_wanted(sts: StatefulSet, name: str) -> bool:
    return sts.find_ordinal(name, sts.ordinals) is not None


def spares(key: Key, sts: StatefulSet, pod: str) -> bool:
    """Return whether a downscale surely leaves that pod in place."""
    ordinal = sts.ordinal_of(pod)
    return ordinal is not None and ordinal < sts.first_ordinal + key.replicas_to


def is_over(pods: Iterable[Pod], called: Collection[Uid]) -> bool:
    """Return whether all prepared pods are gone or terminating."""
    return not any(pod.uid in called and not pod.is_terminating for pod in pods)


def _read_span(sts: StatefulSet) -> timedelta:
    """Raises InvalidInput; the annotation wins over the label."""
    key = MIN_TIME_BETWEEN_DOWNSCALES
    kind = "annotation" if key in sts.annotations else "label"
    text = sts.annotations.get(key, sts.labels.get(key))
    if text is None:
        return timedelta(0)
    try:
        return max(parse_duration(text), timedelta(0))
    except InvalidInput as error:
        raise InvalidInput(f"{kind} {key}: {error}") from error


def _read_last(
    sts: StatefulSet, remembered: Mapping[Uid, datetime], source: TimesSource
) -> datetime | None:
    text = sts.annotations.get(LAST_DOWNSCALE)
    recorded = remembered.get(sts.uid)
    if text is None or source is TimesSource.TRACKER:
        return recorded
    try:
        written = parse_rfc3339(text)
    except InvalidInput as error:
        raise InvalidInput(f"annotation {LAST_DOWNSCALE}: {error}") from error
    return written if recorded is None else max(written, recorded)


def _block_unsettled(
    decrease: Decrease, scaled: StatefulSet, group: Group, other: Zone, why: str
) -> Blocker:
    """Say that another zone is not at rest, and whether time or a person helps."""
    own = _find_zone(scaled, group)
    settling = render_settling(other) if own is None else render_settling(own, other)
    if settling:
        return Blocker(Code.OTHER_ZONE_NOT_READY, f"{why}; {settling}", RETRY)
    # While pods of the range run, time may still help.
    status = FORBIDDEN if takes_idle_only(scaled, decrease, group) else 0
    why = f"{why}{_explain_way_out(decrease, scaled, group)}"
    return Blocker(Code.OTHER_ZONE_NOT_READY, why, status)


def _explain_way_out(decrease: Decrease, scaled: StatefulSet, group: Group) -> str:
    """Return what a person can do where some of the pods in the range do not run.

    Whether they hold data is unknown: this process did not see them come. A pod that was ready
    before does.
    """
    going = _list_going(scaled, decrease, group)
    if any(pod.was_ready for pod in going) or (going and not any(map(_explain_idle, going))):
        return ""
    return f"; if no pod of the range ever held anything, {_WAY_OUT} {scaled.name} for the moment"


def _list_going(scaled: StatefulSet, decrease: Decrease, group: Group) -> list[Pod]:
    first, zone = scaled.first_ordinal, _find_zone(scaled, group)
    wanted = range(first + decrease.replicas_to, first + decrease.replicas_from)
    return [] if zone is None else [pod for _, pod in zone.list_pods(wanted)]


def _find_zone(sts: StatefulSet, group: Group) -> Zone | None:
    return next((zone for zone in group.zones if zone.sts.uid == sts.uid), None)


def _refuse_pod(decrease: Decrease, why: str, *, status: int = 0) -> Verdict:
    text = f"one or more pods failed to prepare for shutdown. {why}"
    return refuse_decrease(decrease, Code.POD_NOT_PREPARED, text, status=status)


def _explain_doubt(zone: Zone, wanted: range, going: Sequence[Pod]) -> str:
    """Return why it is unknown which pods need preparation, empty where it is known.

    The successor of a terminating pod was never ready, but has its data.
    """
    sts = zone.sts
    unreadable = [
        pod.name or "one without a name"
        for pod in sorted(zone.unreadable_pods, key=lambda pod: pod.name)
        if (ordinal := sts.ordinal_of(pod.name)) is None or ordinal in wanted
    ]
    if unreadable:
        names = join_some(unreadable[:NAMES_SHOWN], total=len(unreadable))
        return f"pods cannot be read: {names}"
    for pod in going:
        if pod.is_terminating:
            return f"{pod.name} is terminating: try again when it has been replaced"
        if pod.phase in _IDLE_PHASES and pod.was_ready:
            return f"{pod.name} has been ready and does not run now (phase {pod.phase})"
    return ""


def _explain_lasting_doubt(zone: Zone, wanted: range) -> tuple[str, int]:
    """Return which pods of a zone being rolled out may be successors, and the HTTP status.

    The text is empty if there are none. Starting pods are up soon. The rollout may wait for the
    others forever: whether they had predecessors is unknown (D-67), but a person may know.
    """
    sts = zone.sts
    ordinals = range(wanted.start, min(wanted.stop, sts.first_ordinal + count_used(zone)))
    held = zone.list_pods(ordinals)
    doubtful = [pod for _, pod in held if _explain_idle(pod)]
    idle = len(ordinals) - len({ordinal for ordinal, _ in held}) + len(doubtful)
    if not idle or sts.current_revision == sts.update_revision or is_paused(sts):
        return "", 0
    text = f"{count(idle, 'pod')} of the range may just be replaced: {sts.name} is being rolled out"
    if settling := render_settling(zone):
        return f"{text}; {settling}", RETRY
    if all(pod.is_starting for pod in doubtful):
        return f"{text}; try again when it is, or pause it", RETRY
    way_out = f"if no pod before them held anything, pause it, or {_WAY_OUT} {sts.name}"
    return f"{text}; {way_out}", FORBIDDEN


def _explain_idle(pod: Pod) -> str:
    """Return why a pod needs no preparation, empty where it must confirm."""
    if pod.phase in _IDLE_PHASES:
        return f"does not run (phase {pod.phase})"
    return "was never ready" if pod.never_ready else ""


def _explain_unsettled(zone: Zone, group: Group) -> str:
    """Return why another zone is not at rest, empty where it is."""
    sts = zone.sts
    if is_behind(sts):
        return render_behind(sts, "statefulset ")
    readiness = measure_readiness(zone, group.deletions, group.now)
    counted = sts.status_replicas - len(readiness.newcomers)
    updated = sts.updated_replicas - sum(
        pod.revision == sts.update_revision for pod in readiness.newcomers
    )
    outdated = max(count_outdated_used(readiness), counted - updated)
    # The status counts terminating pods as ready.
    up = min(sts.ready_replicas, readiness.used - readiness.seen_down)
    down = max(readiness.unavailable, counted - up)
    if outdated <= 0 and down <= 0:
        return ""
    return (
        f"statefulset {sts.name} has {max(outdated, 0)} non-updated replicas and {max(down, 0)}"
        " non-ready replicas"
    )
