"""Which gates a schedule keeps: one for each Rollout that it selects.

A gate is the schedule's by its owner reference, or by its labels where nothing else controls it: so
the gates of kuberik's controller, whose names are made up, are taken over. Of two for one Rollout
one goes, because the other would block for ever. What people changed on a gate is put right, but
for the versions that it allows. An invalid schedule changes no gate, and closes those it makes.

When a schedule is active is decided in `hours`, what is written of it in `status`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Final

from rollout_operator.model import names
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.releases.rollout import (
    GateOrigin,
    OwnerReference,
    ReleaseCompat,
    ReleaseGate,
)
from rollout_operator.model.releases.schedule import (
    CLUSTER_SCHEDULE,
    CorrectGate,
    CreateGate,
    DeleteGate,
    GateAction,
    GatedRollout,
    ScheduleObject,
    SchedulePlan,
    ScheduleSnapshot,
    ScheduleState,
    WantedGate,
)
from rollout_operator.planning.releases.schedules.hours import (
    LoadZone,
    evaluate_schedule,
    get_time_zone,
    is_gate_passing,
)

# So long after a transition a schedule is looked at: clocks differ a little (REL-100).
AFTER_TRANSITION: Final = timedelta(milliseconds=100)

_MANAGER: Final = "rollout-schedule"
_API: Final = "kuberik.com/v1alpha1"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_HASH: Final = 8


def plan_schedule(snapshot: ScheduleSnapshot, load: LoadZone) -> SchedulePlan:
    """Return what is to be done for a schedule now (REL-98 to 100, RELB-31).

    `load` reads the time zone of a name.
    """
    schedule = snapshot.schedule
    if schedule.head.is_terminating:
        return SchedulePlan()
    state, problem = _assess(snapshot, load)
    own = [gate for gate in snapshot.gates if is_own(schedule, gate)]
    selected = _list_selected(snapshot)
    if selected is None:
        return SchedulePlan(problem=problem, kept=tuple(sorted(gate.head.key for gate in own)))
    is_passing = state is not None and _is_passing(schedule, state)
    actions, kept = _plan_gates(snapshot, selected, own, is_passing=is_passing)
    if state is None:
        kept = sorted(gate.head.key for gate in own)
        actions = [action for action in actions if isinstance(action, CreateGate)]
    return SchedulePlan(
        state=state,
        problem=problem,
        actions=tuple(actions),
        kept=tuple(kept),
        matching=len(selected),
        requeue_after=_next_pass(snapshot, state),
    )


def is_own(schedule: ScheduleObject, gate: ReleaseGate) -> bool:
    """Return whether a gate is kept by a schedule."""
    head, controller = schedule.head, gate.origin.controller
    if head.namespace and gate.head.namespace != head.namespace:
        return False
    if controller is not None and controller.uid == head.uid:
        return True
    is_foreign = controller is not None and not _is_predecessor(schedule, controller)
    # Gates of kuberik's controller do not say what manages them.
    labels = {names.MANAGED_BY: _MANAGER, **gate.origin.labels}
    return not is_foreign and _map_labels(schedule).items() <= labels.items()


def selects(
    schedule: ScheduleObject,
    rollout: GatedRollout,
    namespaces: Mapping[str, Mapping[str, str]],
    compat: ReleaseCompat,
) -> bool:
    """Return whether a schedule concerns a Rollout; with an unreadable selector it concerns none.

    `namespaces` has the labels of those that are known.
    """
    own, spaces = schedule.head.namespace, schedule.namespaces
    if own and rollout.namespace != own:
        return False
    if schedule.rollouts is None or not schedule.rollouts.takes(rollout.labels):
        return False
    if own:
        return True
    if spaces is None:
        return compat.gates_all_namespaces
    return _takes(spaces, namespaces.get(rollout.namespace))


def _assess(snapshot: ScheduleSnapshot, load: LoadZone) -> tuple[ScheduleState | None, str]:
    schedule = snapshot.schedule
    if schedule.problem or schedule.schedule is None:
        return None, schedule.problem
    try:
        zone = get_time_zone(schedule.schedule.time_zone, load)
    except InvalidInput as error:
        return None, f"{schedule.kind} {schedule.head.key}: {error}"
    return evaluate_schedule(schedule.schedule, zone, snapshot.now, snapshot.compat), ""


def _is_passing(schedule: ScheduleObject, state: ScheduleState) -> bool:
    return schedule.schedule is not None and is_gate_passing(schedule.schedule.action, state)


def _list_selected(snapshot: ScheduleSnapshot) -> Sequence[GatedRollout] | None:
    """Return the Rollouts that a schedule concerns, None where that cannot be known."""
    if snapshot.schedule.rollouts is None:
        return None
    return [
        rollout
        for rollout in snapshot.rollouts
        if selects(snapshot.schedule, rollout, snapshot.namespaces, snapshot.compat)
    ]


def _takes(spaces: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Return whether a namespace is selected; an unknown namespace is only by a selector of all."""
    return spaces == LabelSelector() if labels is None else spaces.takes(labels)


def _plan_gates(
    snapshot: ScheduleSnapshot,
    selected: Iterable[GatedRollout],
    own: Sequence[ReleaseGate],
    *,
    is_passing: bool,
) -> tuple[list[GateAction], list[str]]:
    """Return what is to be done, and which gates of it stay."""
    schedule = snapshot.schedule
    taken = {gate.head.key for gate in snapshot.gates}
    actions: list[GateAction] = []
    kept: dict[str, None] = {}
    for rollout, gate in _match(schedule, selected, own):
        name = _choose_name(schedule, rollout, taken) if gate is None else gate.head.name
        wanted = _want(schedule, rollout, name, gate, is_passing=is_passing)
        if gate is None:
            actions += [] if rollout.is_terminating else [CreateGate(wanted=wanted)]
            continue
        kept[gate.head.key] = None
        if not gate.head.is_terminating and not _is_as_wanted(gate, wanted):
            actions.append(CorrectGate(head=gate.head, wanted=wanted))
    surplus = (
        gate.head for gate in own if gate.head.key not in kept and not gate.head.is_terminating
    )
    actions += [DeleteGate(head=head) for head in surplus]
    return actions, [*kept]


def _match(
    schedule: ScheduleObject, selected: Iterable[GatedRollout], own: Sequence[ReleaseGate]
) -> Iterator[tuple[GatedRollout, ReleaseGate | None]]:
    """Yield each Rollout with its gate: the gate of its name, else a gate labelled for it."""
    rollouts = sorted(
        selected, key=lambda gated_rollout: (gated_rollout.namespace, gated_rollout.name)
    )
    by_name = {gate.head.key: gate for gate in own}
    own_names = {
        f"{rollout.namespace}/{name}" for rollout in rollouts for name in _names(schedule, rollout)
    }
    by_label: dict[tuple[str, str], ReleaseGate] = {}
    for gate in sorted(own, key=lambda gate: gate.head.key):
        # A label may have been edited, a name cannot be.
        if gate.head.key not in own_names:
            labelled = gate.origin.labels.get(names.GATED_ROLLOUT, "")
            by_label.setdefault((gate.head.namespace, labelled), gate)
    for rollout in rollouts:
        keys = [f"{rollout.namespace}/{name}" for name in _names(schedule, rollout)]
        named = next((by_name[key] for key in keys if key in by_name), None)
        yield rollout, named or by_label.get((rollout.namespace, label_name(rollout.name)))


def _want(
    schedule: ScheduleObject,
    rollout: GatedRollout,
    name: str,
    gate: ReleaseGate | None,
    *,
    is_passing: bool,
) -> WantedGate:
    others = () if gate is None else _list_other_owners(schedule, gate)
    origin = GateOrigin(
        labels={**_map_labels(schedule), names.GATED_ROLLOUT: label_name(rollout.name)},
        pretty_name=schedule.pretty_name,
        description=schedule.description,
        owners=(*others, _make_owner(schedule)),
    )
    return WantedGate(
        namespace=rollout.namespace,
        name=name,
        rollout=rollout.name,
        is_passing=is_passing,
        origin=origin,
    )


def _is_as_wanted(gate: ReleaseGate, wanted: WantedGate) -> bool:
    return (gate.rollout, gate.is_passing, gate.origin) == (
        wanted.rollout,
        wanted.is_passing,
        wanted.origin,
    )


def _choose_name(schedule: ScheduleObject, rollout: GatedRollout, taken: set[str]) -> str:
    """Return the name of a new gate, where the first belongs to another gate the second."""
    first, second = _names(schedule, rollout)
    return second if f"{rollout.namespace}/{first}" in taken else first


def _names(schedule: ScheduleObject, rollout: GatedRollout) -> tuple[str, str]:
    """Return the names that a gate may have; they follow from both names, whatever is known.

    `a-b` and `c` make the same as `a` and `b-c`: the second has a hash, as has what is too long.
    """
    prefix = "cluster-" if schedule.kind == CLUSTER_SCHEDULE else ""
    plain = f"{prefix}{schedule.head.name}-{rollout.name}"
    identity = "/".join((schedule.kind, schedule.head.name, rollout.name))
    hashed = _cut(plain, identity, _LONGEST_NAME)
    return plain if len(plain) <= _LONGEST_NAME else hashed, hashed


def label_name(name: str) -> str:
    """Return a name as the value of a label, which may be shorter."""
    return name if len(name) <= _LONGEST_LABEL else _cut(name, name, _LONGEST_LABEL)


def _cut(text: str, identity: str, most: int) -> str:
    kept = text[: most - _HASH - 1].rstrip(".-")
    return f"{kept}-{sha256(identity.encode()).hexdigest()[:_HASH]}"


def _map_labels(schedule: ScheduleObject) -> Mapping[str, str]:
    """Return the labels that all gates of a schedule have."""
    head = schedule.head
    own = {
        names.SCHEDULE_NAME: label_name(head.name),
        names.SCHEDULE_KIND: schedule.kind,
        names.MANAGED_BY: _MANAGER,
    }
    return {**own, names.SCHEDULE_NAMESPACE: head.namespace} if head.namespace else own


def _make_owner(schedule: ScheduleObject) -> OwnerReference:
    return OwnerReference(
        api_version=_API,
        kind=schedule.kind,
        name=schedule.head.name,
        uid=schedule.head.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _list_other_owners(schedule: ScheduleObject, gate: ReleaseGate) -> Iterator[OwnerReference]:
    for owner in gate.origin.owners:
        if owner.uid != schedule.head.uid and not _is_predecessor(schedule, owner):
            yield owner


def _is_predecessor(schedule: ScheduleObject, owner: OwnerReference) -> bool:
    """Return whether an owner is a schedule of the same name, which is gone by now."""
    group = owner.api_version.partition("/")[0]
    return (group, owner.kind, owner.name) == ("kuberik.com", schedule.kind, schedule.head.name)


def _next_pass(snapshot: ScheduleSnapshot, state: ScheduleState | None) -> timedelta | None:
    if state is None or state.next_transition is None:
        return None
    return max(state.next_transition - snapshot.now, timedelta(0)) + AFTER_TRANSITION


def list_by_gate(kind: str, gate: ReleaseGate) -> Iterator[str]:
    """Yield the schedules of a kind that keep a gate, or did, as it says itself (REL-101)."""
    owners = (owner.name for owner in gate.origin.owners if owner.kind == kind)
    labels = gate.origin.labels
    labelled = labels.get(names.SCHEDULE_NAME) if labels.get(names.SCHEDULE_KIND) == kind else None
    yield from dict.fromkeys([*owners, *([labelled] if labelled else [])])


def list_by_rollout(
    schedules: Iterable[ScheduleObject], rollouts: Iterable[GatedRollout]
) -> Iterator[str]:
    """Yield the schedules that select a Rollout by its labels, or cannot say what they select."""
    candidates = tuple(rollouts)
    for schedule in schedules:
        selector = schedule.rollouts
        if selector is None or any(selector.takes(rollout.labels) for rollout in candidates):
            yield schedule.head.name
