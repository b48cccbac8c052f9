"""May this zone lose pods now, and which of them must be prepared for it.

Works on one live read of the group. The time between zones is settled in `spacing`, where pods
are called in `endpoint`; what a review requests at all, in `request`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.downscale import Decrease, Endpoint, Target
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import PREPARE_DOWNSCALE, Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.endpoint import plan_endpoint
from rollout_operator.planning.downscales.request import RETRY, refuse_decrease
from rollout_operator.planning.downscales.spacing import Blocker, find_recent_downscale, format_left
from rollout_operator.planning.rollout.newcomers import count_used, render_settling
from rollout_operator.planning.rollout.pods import count_outdated_used
from rollout_operator.planning.rollout.readiness import measure_readiness
from rollout_operator.planning.rollout.zones import (
    explain_left,
    is_behind,
    is_paused,
    measure_departed,
    order_zones,
    render_behind,
)
from rollout_operator.planning.wording import count, join_names, join_some, verb

# So many pods are named in one message; the rest is counted.
NAMES_SHOWN: Final = 3
# The answer to a repeated request is the same until a person has done something.
FORBIDDEN: Final = 403
_WAY_OUT: Final = f"take the label {PREPARE_DOWNSCALE} off"
# `Unknown` is none of them: the containers may run on a node that is silent.
_IDLE_PHASES: Final = frozenset({"Pending", "Succeeded", "Failed"})


class PreparePods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that must confirm before they go, highest ordinal first."""

    endpoints: tuple[Endpoint, ...]
    going: tuple[Pod, ...]
    """All pods that exist in the range, called or not, in the order in which they go."""
    annotated_pod: Pod | None = None
    """A pod that stays, to remember the others by; None where none does."""
    skipped: str = ""
    """Which pods are not called, and why, in words; empty where all are."""


def assess_neighbours(
    decrease: Decrease,
    scaled: StatefulSet,
    group: Group,
    times: Mapping[Uid, datetime],
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> Verdict | None:
    """Return the refusal where the group does not let a zone lose pods now, None where it does."""
    blocker = find_blocker(decrease, scaled, group, times, source)
    if blocker is None:
        return None
    return refuse_decrease(decrease, blocker.code, blocker.why, status=blocker.status)


def find_blocker(
    decrease: Decrease,
    scaled: StatefulSet,
    group: Group,
    times: Mapping[Uid, datetime],
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> Blocker | None:
    """Return why the group does not let a zone lose pods now, None where it does.

    PREP-10 to 19: what else is scaled down, when others were, and whether they are whole and rolled
    out. The zone itself is exempt. `group.now` is the API server's time; `times` and `source` are
    those of `find_recent_downscale`.
    """
    if group.unreadable:
        lost = min(group.unreadable, key=lambda lost: lost.name)
        why = f"finding other statefulsets failed. {lost.kind} {lost.name}: {lost.error}"
        return Blocker(Code.GROUP_NOT_READ, why)
    if group.downscale is not None:
        why = f"statefulset {group.downscale.zone} is already in process of updating replicas"
        return Blocker(Code.OTHER_DOWNSCALE_UNDERWAY, why, RETRY)
    others = [zone for zone in order_zones(group.zones) if zone.sts.uid != scaled.uid]
    recent = find_recent_downscale(scaled, [zone.sts for zone in others], times, group.now, source)
    if recent is not None:
        return recent
    if takes_newcomers_only(scaled, decrease, group):
        return None  # D-67: no data is lost by it
    for readiness in measure_departed(group):
        if not readiness.is_whole:
            left = explain_left(readiness)
            return Blocker(left.code, f"statefulset {left.text}", RETRY)
    for other in others:
        why = _explain_unsettled(other, group)
        if why:
            return _block_unsettled(decrease, scaled, group, other, why)
    return None


def choose_pods_to_prepare(
    decrease: Decrease, zone: Zone, target: Target, cluster_domain: str
) -> PreparePods | Verdict:
    """Return which pods to call before those of a range go, or a refusal where that is not known.

    A pod that does not exist, has no running containers or was never ready has nothing to prepare
    (D-26); a pod that runs must confirm.
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
        annotated_pod=next((pod for _, pod in staying if not pod.is_terminating), None),
        skipped=join_some(skipped[:NAMES_SHOWN], total=len(skipped)),
    )


def assess_unanswered(
    decrease: Decrease, endpoints: Sequence[Endpoint], waits: Mapping[Uid, timedelta]
) -> Verdict | None:
    """Return the refusal where a pod may yet act on a call that it stays, None where none may.

    SI-10: such a call would revert what the pod confirms now, and the pod would go unprepared.
    `waits` says for how long, by pod; only those to be called count.
    """
    pods = [endpoint.pod for endpoint in endpoints if endpoint.uid in waits]
    if not pods:
        return None
    left = max(waits[endpoint.uid] for endpoint in endpoints if endpoint.uid in waits)
    be, have = verb(len(pods), "was", "were"), verb(len(pods), "has", "have")
    stay = verb(len(pods), "it stays", "they stay")
    why = f"{join_names(pods)} {be} told that {stay}, and {have} not answered"
    return _refuse_pod(decrease, f"{why}; try again in {format_left(left)}", status=RETRY)


def _block_unsettled(
    decrease: Decrease, scaled: StatefulSet, group: Group, other: Zone, why: str
) -> Blocker:
    """Return that another zone is not at rest, and what helps: time, or else a person."""
    own = _find_zone(scaled, group)
    settling = render_settling(other) if own is None else render_settling(own, other)
    if settling:
        return Blocker(Code.OTHER_ZONE_NOT_READY, f"{why}; {settling}", RETRY)
    # Where pods of the range run, time may still help.
    status = FORBIDDEN if takes_idle_only(scaled, decrease, group) else 0
    why = f"{why}{_explain_way_out(decrease, scaled, group)}"
    return Blocker(Code.OTHER_ZONE_NOT_READY, why, status)


def _explain_way_out(decrease: Decrease, scaled: StatefulSet, group: Group) -> str:
    """Return how a person helps where pods that are to go do not run, empty where all do.

    Whether they hold nothing is not known: this process did not see them come. Those beside them
    that run may hold nothing either; a pod that was ready before, and is not, held something.
    """
    going = _list_going(scaled, decrease, group)
    if any(pod.was_ready for pod in going) or (going and not any(map(_explain_idle, going))):
        return ""
    return f"; if no pod of the range ever held anything, {_WAY_OUT} {scaled.name} for the moment"


def takes_idle_only(scaled: StatefulSet, decrease: Decrease, group: Group) -> bool:
    """Return whether none of the pods that are to go is up, or was."""
    going = _list_going(scaled, decrease, group)
    is_known = _find_zone(scaled, group) is not None
    return is_known and all(_explain_idle(pod) and not pod.was_ready for pod in going)


def _list_going(scaled: StatefulSet, decrease: Decrease, group: Group) -> list[Pod]:
    first, zone = scaled.first_ordinal, _find_zone(scaled, group)
    wanted = range(first + decrease.replicas_to, first + decrease.replicas_from)
    return [] if zone is None else [pod for _, pod in zone.list_pods(wanted)]


def takes_newcomers_only(scaled: StatefulSet, decrease: Decrease, group: Group) -> bool:
    """Return whether none of the pods that are to go, nor any before them, was ever ready."""
    zone = _find_zone(scaled, group)
    return zone is not None and count_used(zone) <= decrease.replicas_to < zone.sts.replicas


def _find_zone(sts: StatefulSet, group: Group) -> Zone | None:
    return next((zone for zone in group.zones if zone.sts.uid == sts.uid), None)


def _refuse_pod(decrease: Decrease, why: str, *, status: int = 0) -> Verdict:
    text = f"one or more pods failed to prepare for shutdown. {why}"
    return refuse_decrease(decrease, Code.POD_NOT_PREPARED, text, status=status)


def _explain_doubt(zone: Zone, wanted: range, going: Sequence[Pod]) -> str:
    """Return why it cannot be known now which pods have something to prepare, empty where it can.

    The successor of a pod that is just going was never ready, but has its data.
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
    """Return which pods of a zone that is being rolled out may be successors, and the HTTP status.

    The text is empty where none is.

    Those that are starting answer soon. A rollout waits for the others, perhaps for ever, and so
    would a client: it is unknown whether there was one before them (D-67), but a person may know.
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
    """Return why a pod has nothing to prepare, empty where it must confirm."""
    if pod.phase in _IDLE_PHASES:
        return f"does not run (phase {pod.phase})"
    return "was never ready" if pod.never_ready else ""


def _explain_unsettled(zone: Zone, group: Group) -> str:
    """Return what another zone has still to come to rest from, empty where it is at rest."""
    sts = zone.sts
    if is_behind(sts):
        return render_behind(sts, "statefulset ")
    readiness = measure_readiness(zone, group.deletions, group.now)
    counted = sts.status_replicas - len(readiness.newcomers)
    updated = sts.updated_replicas - sum(
        pod.revision == sts.update_revision for pod in readiness.newcomers
    )
    outdated = max(count_outdated_used(readiness), counted - updated)
    # The status counts pods as ready that are on their way out.
    up = min(sts.ready_replicas, readiness.used - readiness.seen_down)
    down = max(readiness.unavailable, counted - up)
    if outdated <= 0 and down <= 0:
        return ""
    return (
        f"statefulset {sts.name} has {max(outdated, 0)} non-updated replicas and {max(down, 0)}"
        " non-ready replicas"
    )
