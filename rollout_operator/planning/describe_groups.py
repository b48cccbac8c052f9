"""One rollout group as every outlet shows it: phase, headline, zones, pods and pace.

Numbers are those of the snapshot, sentences those of the reasons of the decision, which may be a
moment older. What is up and down is decided in `planning.readiness`. The work grows with the pods
that exist or are shown, never with `spec.replicas`.

When a rollout began and ends is told from the ages of pods: a pod at the update revision that is
younger than every outdated pod of its group was replaced by this rollout, since a StatefulSet with
`OnDelete` recreates no pod at an outdated revision. Once the last outdated pod is gone, ages tell
nothing any more.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, assert_never

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.description import (
    Description,
    DownscaleDescription,
    GroupDescription,
    NamespaceDescription,
    OperatorDescription,
    Phase,
    PodDescription,
    PodState,
    ReleaseDescription,
    ReleasePhase,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Group, Pod, StatefulSet, Unreadable, Zone
from rollout_operator.model.outcome import (
    ASIDE,
    HOLDING,
    HOLDING_ZONE,
    Action,
    Code,
    Plan,
    Reason,
    RecordRevision,
    ReplacePods,
    Severity,
    find_leading,
    render_path,
)
from rollout_operator.planning.readiness import (
    Down,
    DownCause,
    Readiness,
    choose_limit,
    count_pods,
    find_group_blocker,
    find_why,
    is_paused,
    measure_readiness,
    order_zones,
    render_readiness,
    render_why,
)
from rollout_operator.planning.rollout import count_outdated, plan_group, render_outdated
from rollout_operator.planning.wording import cut

# A longer estimate tells a reader nothing.
MOST_LEFT: Final = timedelta(days=30)

# A failed attempt is repeated: `Plan.failed` is no matter for a person then.
_REPEATED: Final = frozenset({Code.BACKING_OFF, Code.LIVE_READ_EXPIRED})
# What a zone waits for while a rollout goes on as it should, where pods are starting.
_GOING_ON: Final = frozenset({Code.PODS_STARTING, Code.BUDGET_USED, Code.ZONE_NOT_READY})
# Of these a person has to know where they are no mere wait.
_HELD_IF_LOUD: Final = frozenset(
    {Code.ZONE_SOAK, Code.HEALTH_CHECK_FAILED, Code.HEALTH_CHECK_BROKEN}
)
# Replicas of zones: no rollout waits for them.
SCALING: Final = frozenset(
    {
        Code.LEADING_ZONE_NOT_READY,
        Code.ROLLOUT_UNDERWAY,
        Code.ZONE_DOWNSCALED_LATELY,
        Code.OTHER_ZONE_NOT_READY,
        Code.DELAYED_BY_PODS,
        Code.POD_GAVE_NO_TIME,
        Code.REFERENCE_NOT_READ,
        Code.SCALE_REFUSED,
    }
)

# A page of three such zones is half a megabyte, and a person reads no longer list.
MOST_PODS: Final = 200
# Of all zones together. A StatefulSet may want any number of pods that never come, under a name of
# 253 characters: nine hundred of them with 200 pods each took more memory than the process has.
MOST_PODS_IN_ALL: Final = 20_000
# A readiness probe that fails for ever looks like a probe that has not passed yet: what is down for
# longer than it takes to replay a log of writes, or fell after that, is not starting.
_START_LIMIT: Final = timedelta(minutes=15)

_NO_POD: Final = "no pod"

# Each pod may bring a reason of its own.
MOST_REASONS: Final = 100

# Of a thousand pods that go at once a person reads no more than the first few.
MOST_STEPS: Final = 20

_UNDECIDED: Final = "nothing has been decided yet"


# Lists of a description that are absent where no namespace has anything of the kind.
_KINDS: Final = ("policies", "releases", "schedules", "health_checks")


def merge_descriptions(own: Description, others: Iterable[Description]) -> Description:
    """Return `own`, which says nothing of groups, with what the others describe."""
    ordered = sorted(others, key=lambda other: other.namespace)
    located: dict[str, Any] = {
        name: tuple(
            replace(each, namespace=description.namespace)
            for description in ordered
            for each in getattr(description, name)
        )
        for name in ("groups", "budgets")
    }
    for name in _KINDS:
        given = [some for other in ordered if (some := getattr(other, name)) is not UNSET]
        # What is of the cluster is described with each namespace.
        merged = {(each.title, each.namespace): each for some in given for each in some}
        located[name] = tuple(merged.values()) if given else UNSET
    return replace(own, namespaces=tuple(_list_namespaces(ordered)), **located)


def select_namespace(description: Description, namespace: str) -> Description | None:
    """Return the part about one namespace, None where the process does not watch it."""
    if not description.namespaces:
        return description
    chosen = next((other for other in description.namespaces if other.name == namespace), None)
    if chosen is None:
        return None
    selected: dict[str, Any] = {}
    for name in ("groups", "budgets", *_KINDS):
        described = getattr(description, name)
        if described is not UNSET:
            # Schedules of the cluster are of no namespace, and of each.
            places = (namespace, "") if name == "schedules" else (namespace,)
            selected[name] = tuple(each for each in described if each.namespace in places)
    operator = _narrow(description.operator, chosen)
    return replace(description, namespace=namespace, operator=operator, namespaces=(), **selected)


def _narrow(
    operator: OperatorDescription | None, namespace: NamespaceDescription
) -> OperatorDescription | None:
    if operator is None:
        return None
    return replace(
        operator,
        is_ready=operator.is_ready and namespace.is_ready,
        is_acting=namespace.is_acting,
        missing=(*operator.missing, *namespace.missing),
    )


def _list_namespaces(descriptions: Iterable[Description]) -> Iterator[NamespaceDescription]:
    for description in descriptions:
        operator = description.operator
        yield NamespaceDescription(
            name=description.namespace,
            is_ready=operator is not None and operator.is_ready,
            is_acting=operator is not None and operator.is_acting,
            missing=() if operator is None else operator.missing,
        )


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the pods of a rollout are replaced; `began` is None where nothing shows it."""

    began: datetime | None = None
    expected_end: datetime | None = None


def measure_pace(group: Group) -> Pace:
    """Return when a rollout began and when it will end, as far as the pods show it."""
    outdated, updated = _list_ages(group)
    if not outdated:
        return Pace()
    border = max(outdated)
    replaced = [(born, pod) for born, pod in updated if born > border]
    if not replaced:
        return Pace()
    began = min(born for born, _ in replaced)
    done = sum(pod.is_ready for _, pod in replaced)
    return Pace(began=began, expected_end=_expect_end(group, began, done))


def _list_ages(group: Group) -> tuple[Sequence[datetime], Sequence[tuple[datetime, Pod]]]:
    outdated: list[datetime] = []
    updated: list[tuple[datetime, Pod]] = []
    for zone in group.zones:
        for _, pod in zone.list_pods(zone.sts.ordinals):
            if pod.created is None or not zone.sts.update_revision:
                continue
            if pod.revision == zone.sts.update_revision:
                updated.append((pod.created, pod))
            else:
                outdated.append(pod.created)
    return outdated, updated


def _expect_end(group: Group, began: datetime, done: int) -> datetime | None:
    """Return the end where each further pod takes as long as one of the `done` did."""
    took = (group.now - began).total_seconds()
    left = sum(_count_left(zone) for zone in group.zones)
    if not done or took <= 0 or any(is_paused(zone.sts) for zone in group.zones):
        return None
    seconds = took / done * left
    return group.now + timedelta(seconds=seconds) if seconds <= MOST_LEFT.total_seconds() else None


def _count_left(zone: Zone) -> int:
    sts = zone.sts
    done = sum(
        isinstance(pod, Pod) and pod.is_ready and pod.revision == sts.update_revision
        for pod in zone.by_ordinal(sts.ordinals).values()
    )
    return max(sts.replicas - done, 0)


class _Progress(msgspec.Struct, frozen=True, kw_only=True):
    is_due: bool
    """Whether pods are outdated, or a revision is not recorded yet."""
    is_coming_up: bool
    """Whether all pods that are down are only starting or on their way out."""
    is_whole: bool
    is_scaling: bool
    """Whether pods of an upscale or a downscale come or go."""


def _choose_phase(plan: Plan, steps: Sequence[Step], progress: _Progress) -> Phase:
    codes = {wait.code for wait in plan.waits}
    if codes & HOLDING or (plan.failed and not codes & _REPEATED):
        return Phase.HELD
    if progress.is_due and _is_moving(plan, steps, progress):
        return Phase.ROLLING_OUT
    # A pause that cannot be read does not end by itself, nor does a failed health check.
    loud = {wait.code for wait in plan.waits if wait.severity is not Severity.INFO}
    if codes & HOLDING_ZONE or loud & _HELD_IF_LOUD:
        return Phase.HELD
    if progress.is_scaling and not progress.is_due:
        return Phase.SCALING
    is_done = progress.is_whole and not progress.is_due and not codes - {Code.UP_TO_DATE}
    return Phase.ROLLED_OUT if is_done else Phase.WAITING


def list_worst_first(groups: Iterable[GroupDescription]) -> list[GroupDescription]:
    """Return groups as people read them: of a hundred those first that do not go on."""
    places = {phase: place for place, phase in enumerate(reversed(Phase))}
    return sorted(groups, key=lambda group: (places[group.phase], group.namespace, group.name))


def list_worst_releases(releases: Iterable[ReleaseDescription]) -> list[ReleaseDescription]:
    places = {phase: place for place, phase in enumerate(reversed(ReleasePhase))}
    return sorted(
        releases, key=lambda release: (places[release.phase], release.namespace, release.name)
    )


def _is_moving(plan: Plan, steps: Sequence[Step], progress: _Progress) -> bool:
    """Return whether a rollout goes on by itself, needing no more than that pods start."""
    first = next((wait.code for wait in plan.waits if wait.code not in ASIDE | SCALING), None)
    if any(not step.is_waiting for step in steps):
        return first in _GOING_ON or first is None
    if first is None:
        return not any(wait.code in HOLDING_ZONE for wait in plan.waits)
    return first in _GOING_ON and progress.is_coming_up


def share_pods(zones: int) -> int:
    """Return how many pods of each zone are shown where there are so many zones."""
    return max(1, min(MOST_PODS, MOST_PODS_IN_ALL // max(zones, 1)))


def describe_zone(
    zone: Zone, readiness: Readiness, group: Group, *, is_busy: bool, most_pods: int = MOST_PODS
) -> ZoneDescription:
    """Return one zone with `most_pods` pods at most; `is_busy` says whether it is its turn."""
    sts = zone.sts
    held = zone.by_ordinal(sts.ordinals)
    progress = count_pods(readiness)
    return ZoneDescription(
        name=sts.name,
        desired=progress.desired,
        ready=progress.ready,
        updated=progress.updated,
        outdated=progress.outdated,
        max_unavailable=choose_limit(sts)[0],
        is_paused=is_paused(sts),
        current_revision=sts.current_revision,
        update_revision=sts.update_revision,
        is_busy=is_busy,
        pods=tuple(_describe_pods(readiness, held, group, readiness.sts.ordinals[:most_pods])),
    )


def find_turn(readinesses: Sequence[Readiness]) -> Readiness | None:
    """Return the zone whose turn it is; None where nothing is due, or two zones are short.

    `readinesses` are in the order of zones. It is the order of `plan_group`: a zone that is short
    goes before all others, and no other zone is touched meanwhile.
    """
    due = [readiness for readiness in readinesses if _is_due(readiness)]
    short = [readiness for readiness in readinesses if not readiness.is_whole]
    if not due or len(short) > 1:
        return None
    if short:
        return None if is_paused(short[0].sts) else short[0]
    return next((readiness for readiness in due if count_outdated(readiness)), due[0])


def _is_starting(pod: Pod, now: datetime) -> bool:
    """Return whether a pod that is not ready is likely to need nothing but time."""
    return pod.is_starting and (pod.created is None or now - pod.created < _START_LIMIT)


def _is_due(readiness: Readiness) -> bool:
    sts = readiness.sts
    return not is_paused(sts) and (
        count_outdated(readiness) > 0 or sts.current_revision != sts.update_revision
    )


def _is_updated(pod: Pod, sts: StatefulSet) -> bool:
    return bool(sts.update_revision) and pod.revision == sts.update_revision


def _describe_pods(
    readiness: Readiness,
    held: Mapping[int, Pod | Unreadable],
    group: Group,
    ordinals: Sequence[int],
) -> Iterator[PodDescription]:
    for ordinal in ordinals:
        pod = held.get(ordinal)
        if isinstance(pod, Pod):
            yield _describe_pod(readiness, ordinal, pod, group)
            continue
        yield PodDescription(
            name=f"{readiness.sts.name}-{ordinal}",
            ordinal=ordinal,
            state=PodState.MISSING if pod is None else PodState.UNREADABLE,
            why=_NO_POD if pod is None else cut(pod.error),
        )


def _describe_pod(readiness: Readiness, ordinal: int, pod: Pod, group: Group) -> PodDescription:
    sts = readiness.sts
    patience = timedelta(seconds=sts.min_ready_seconds)
    why = find_why(pod, patience, group.deletions, group.now)
    down = None if why is None else Down(pod=pod, why=why, gaps_below=0)
    state = PodState.READY if down is None else _choose_state(down, group.now)
    since = pod.ready_since or pod.created if pod.is_ready else pod.unready_since
    return PodDescription(
        name=pod.name,
        ordinal=ordinal,
        state=state,
        revision=pod.revision or "",
        is_updated=_is_updated(pod, sts),
        why="" if down is None else cut(render_why(readiness, down)),
        since=None if state is PodState.GOING else since,
    )


def _choose_state(down: Down, now: datetime) -> PodState:
    match down.why:
        case DownCause.UNREADY:
            return PodState.STARTING if _is_starting(down.pod, now) else PodState.NOT_READY
        case DownCause.SETTLING:
            return PodState.STARTING
        case _:
            return PodState.GOING


def describe_group(
    group: Group,
    plan: Plan,
    looked: datetime,
    since: datetime | None = None,
    *,
    is_underway: bool = False,
    most_pods: int = MOST_PODS,
) -> GroupDescription:
    """Return one group; whatever its objects hold, nothing is raised, and the size is bounded.

    `plan` is that of rollout and scaling, made when `looked` says; `since` when its leading reason
    is the same, None where that is not known. `is_underway`: it is being carried out.
    Of each zone `most_pods` pods are shown.
    """
    zones = order_zones(group.zones)
    readinesses = tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)
    turn = find_turn(readinesses) if find_group_blocker(group) is None else None
    described = tuple(
        describe_zone(zone, readiness, group, is_busy=readiness is turn, most_pods=most_pods)
        for zone, readiness in zip(zones, readinesses, strict=True)
    )
    steps = _list_steps(group, plan.actions, turn)
    # Of a pod that is missing or on its way out nothing tells since when.
    is_stuck = since is not None and group.now - since >= _START_LIMIT
    is_stuck |= any(_is_stuck(readiness, group.now) for readiness in readinesses)
    plan = _complete(plan, readinesses, steps, is_stuck=is_stuck)
    progress = _describe_progress(group, zones, readinesses, is_stuck=is_stuck)
    phase = _choose_phase(plan, steps, progress)
    pace = measure_pace(group) if progress.is_due else Pace()
    headline = _choose_headline(plan, phase, steps)
    if headline is None and phase is Phase.ROLLED_OUT:  # what the plan had to do is done
        headline = find_leading(plan_group(group).waits)
    return GroupDescription(
        name=group.name,
        phase=phase,
        headline=cut(headline.text) if headline is not None else _UNDECIDED,
        code=headline.code if headline is not None else None,
        since=since,
        looked=looked,
        desired=sum(zone.desired for zone in described),
        ready=sum(zone.ready for zone in described),
        updated=sum(zone.updated for zone in described),
        began=pace.began,
        expected_end=pace.expected_end if phase is Phase.ROLLING_OUT else None,
        zones=described,
        underway_since=looked if is_underway else None,
        steps=steps,
        waits=tuple(
            _list_waiting([wait for wait in plan.waits if wait.code is not Code.UP_TO_DATE])
        ),
        problems=tuple(_list_waiting(plan.problems)),
        downscale=_describe_downscale(group),
        policy=group.driver or UNSET,
    )


def describe_reason(reason: Reason) -> Waiting:
    """Return a reason with what a person can do about it; what passes by itself needs nothing."""
    return Waiting(
        code=reason.code,
        text=cut(reason.text),
        severity=reason.severity,
        zone=reason.zone,
        remedy="" if reason.severity is Severity.DEBUG else reason.code.remedy,
        link=render_path(reason.code),
    )


def _list_steps(
    group: Group, actions: Sequence[Action], turn: Readiness | None
) -> tuple[Step, ...]:
    """Return what `actions` do that `group` does not show yet; else the pod that goes next.

    A decision is carried out after it was made: what the caches show of it is done. `turn` is the
    zone whose turn it is.
    """
    untouched = {pod.uid for zone in group.zones for pod in zone.pods if not pod.is_terminating}
    untouched -= group.deletions.keys()
    sets = {zone.sts.uid: zone.sts for zone in group.zones}
    due = (step for action in actions for step in _list_due(action, untouched, sets))
    return tuple(islice(due, MOST_STEPS)) or _list_next(turn)


def _list_due(action: Action, untouched: set[Uid], sets: dict[Uid, StatefulSet]) -> Iterator[Step]:
    zone = action.zone.name
    match action:
        case ReplacePods(going=going):
            for replacement in going:
                if replacement.pod.uid in untouched:
                    text = cut(replacement.reason.text)
                    yield Step(
                        code=replacement.reason.code, text=text, zone=zone, pod=replacement.pod.name
                    )
        case RecordRevision(revision=revision, reason=reason):
            sts = sets.get(action.zone.uid)
            if sts is not None and sts.current_revision != revision:
                yield Step(code=reason.code, text=cut(reason.text), zone=zone)
        case _:
            assert_never(action)


def _list_next(turn: Readiness | None) -> tuple[Step, ...]:
    """Return the lowest outdated pod of a zone that stands: it goes when there is room."""
    if turn is None:
        return ()
    sts = turn.sts
    pod = next((pod for pod in turn.standing if pod.revision != sts.update_revision), None)
    if pod is None:
        return ()
    text = cut(render_outdated(pod, sts))
    return (Step(code=Code.POD_OUTDATED, text=text, zone=sts.name, pod=pod.name, is_waiting=True),)


def _list_waiting(reasons: Sequence[Reason]) -> Iterator[Waiting]:
    distinct = list(dict.fromkeys(reasons))
    yield from map(describe_reason, distinct[:MOST_REASONS])
    hidden = distinct[MOST_REASONS:]
    if hidden:
        more = f"and {len(hidden)} more"
        yield describe_reason(replace(hidden[0], text=more, zone=""))


def _complete(
    plan: Plan, readinesses: Sequence[Readiness], steps: Sequence[Step], *, is_stuck: bool
) -> Plan:
    """Return the plan with a reason where it says done and the group is no longer whole.

    Pods that have been starting for too long may need more than time.
    """
    short = [readiness for readiness in readinesses if not readiness.is_whole]
    if is_stuck:
        plan = dataclasses.replace(plan, waits=tuple(map(_raise_start, plan.waits)))
    if steps or not short or any(wait.code is not Code.UP_TO_DATE for wait in plan.waits):
        return plan
    text, zone = render_readiness(short[0]), short[0].sts.name
    return dataclasses.replace(plan, waits=(Reason(Code.ZONE_NOT_READY, text, zone=zone),))


def _raise_start(wait: Reason) -> Reason:
    is_start = wait.code is Code.PODS_STARTING
    return replace(wait, severity=Severity.INFO) if is_start else wait


def _describe_progress(
    group: Group, zones: Sequence[Zone], readinesses: Sequence[Readiness], *, is_stuck: bool
) -> _Progress:
    # Of a paused zone no revision is recorded, however long it has been rolled out.
    is_due = any(
        _has_outdated(zone)
        or (zone.sts.current_revision != zone.sts.update_revision and not is_paused(zone.sts))
        for zone in zones
    )
    is_going = any(_has_leaving(zone) for zone in zones)
    is_growing = any(
        readiness.used < readiness.sts.replicas
        and all(pod.is_starting for pod in readiness.newcomers)
        for readiness in readinesses
    )
    return _Progress(
        is_due=is_due,
        is_coming_up=not is_stuck,
        is_whole=all(readiness.is_whole for readiness in readinesses),
        is_scaling=group.downscale is not None or is_going or is_growing,
    )


def _has_outdated(zone: Zone) -> bool:
    sts = zone.sts
    return any(pod.revision != sts.update_revision for _, pod in zone.list_pods(sts.ordinals))


def _has_leaving(zone: Zone) -> bool:
    sts = zone.sts
    return any(
        sts.ordinal_of(pod.name) is not None and sts.find_ordinal(pod.name, sts.ordinals) is None
        for pod in zone.own_pods
    )


def _is_stuck(readiness: Readiness, now: datetime) -> bool:
    return bool(readiness.unreadable) or any(
        down_pod.why is DownCause.UNREADY and not _is_starting(down_pod.pod, now)
        for down_pod in readiness.down
    )


def _choose_headline(plan: Plan, phase: Phase, steps: Sequence[Step]) -> Reason | Step | None:
    """Return what is done, where that goes on; else why it does not."""
    leading = find_leading(plan.waits)
    is_done = phase in (Phase.SCALING, Phase.ROLLED_OUT)
    if leading is not None and leading.code is Code.UP_TO_DATE and not is_done:
        leading = None  # it is not true any more
    now = next((step for step in steps if not step.is_waiting), None)
    if phase is Phase.ROLLING_OUT and now is not None:
        return now
    return leading or next(iter(steps), None)


def _describe_downscale(group: Group) -> DownscaleDescription | None:
    if group.downscale is None:
        return None
    return DownscaleDescription(zone=group.downscale.zone, text=cut(group.downscale.text))
