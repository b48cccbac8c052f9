"""Choose the pods to delete next in one zone.

Asked only of a zone whose turn it is: that every other zone is whole is settled in `group`. Which
of the candidates are refused, and what is tried instead, is up to whoever carries the plan out.
"""

from dataclasses import dataclass
from typing import Final

from rollout_operator.model.names import Revision
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Code, Reason, Replacement, ReplacePods, Severity
from rollout_operator.planning.readiness import Down, Readiness, Why, render_trouble, render_why
from rollout_operator.planning.wording import count, verb

# Troubles that every pod passes through on its way up, as `model.decode` words them. A pod with
# another one may stay down for ever.
_STARTING: Final = (
    "not ready",
    "no phase",
    "no container statuses",
    "phase Pending",
    "ContainerCreating",
    "PodInitializing",
    "waiting",
    "container ",
    "readiness condition ",
    "no readiness condition",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What goes now, and why the other outdated pods do not."""

    action: ReplacePods | None
    wait: Reason | None


def count_outdated(look: Readiness) -> int:
    """Return how many pods are not on the update revision and not yet on their way out."""
    revision = look.sts.update_revision
    standing = sum(pod.revision != revision for pod in look.standing)
    return standing + len(_find_broken(look))


def choose_pods(look: Readiness, limit: int) -> Choice:
    """Return the outdated pods that may go while at most `limit` pods of the zone are down.

    Broken ones are free: they count as down already. Healthy ones need room.
    """
    revision = look.sts.update_revision
    broken = _find_broken(look)
    free = _choose_free(look, limit)
    healthy = [pod for pod in look.standing if pod.revision != revision]
    # Whatever is in flight or broken counts as unavailable, so this bounds disruptions as well.
    room = min(max(limit - look.unavailable, 0), len(healthy))
    action = ReplacePods(
        zone=look.sts,
        free=tuple(_replace_broken(look, one) for one in free),
        candidates=_replace_healthy(look.sts, healthy) if room else (),
        room=room,
    )
    going = len(free) + room
    held = len(broken) + len(healthy) - going
    return Choice(
        action=action if going else None,
        wait=_explain_held(look, held=held, going=going, limit=limit) if held else None,
    )


def _find_broken(look: Readiness) -> list[Down]:
    """Return the outdated pods that are down, other than by age or by an answered delete."""
    return [one for one in look.down if _is_broken(look.sts, one)]


def _is_broken(sts: StatefulSet, one: Down) -> bool:
    may_go = one.why is Why.UNREADY or one.why is Why.UNANSWERED
    return may_go and one.pod.revision != sts.update_revision


def _choose_free(look: Readiness, limit: int) -> list[Down]:
    """Return the broken pods that may go without our disruptions exceeding `limit` (SI-04).

    Untouched pods, still at the revision of before the rollout, broke by themselves: deleting one
    disrupts one more. 5 pods, limit 1, one just replaced and starting: a second one that crashes on
    its own waits.

    A pod of an abandoned revision was put there by us. Most likely it has never been up since, and
    deleting it adds nothing, whatever else is down. But it may have been up for a while: those go
    from the lowest ordinal on, and only what is on its way below counts. That an ordered set has a
    gap above, which it fills once the pod below is up, is no reason to wait.
    """
    sts = look.sts
    in_flight = look.missing + len(look.unreadable)
    in_flight += sum(_is_in_flight(sts, one) for one in look.down)
    below = len(look.unreadable)
    chosen: list[Down] = []
    for one in look.down:
        if not _is_broken(sts, one):
            below += _is_in_flight(sts, one)
            continue
        if one.why is Why.UNANSWERED:
            may_go = True  # the same delete again, for the same UID: it settles what became of it
        elif _is_in_flight(sts, one):
            may_go = below + one.gaps_below < limit
        else:
            may_go = in_flight < limit
            in_flight += may_go
        if may_go:
            chosen.append(one)
            below += 1
    return chosen


def _is_in_flight(sts: StatefulSet, one: Down) -> bool:
    """Tell whether a pod is down most likely because of us.

    Surely not, where it is outdated and at the revision of before the rollout. After a rollback
    that is the update revision itself: a pod which we have just replaced is at both.
    """
    if one.why is Why.SETTLING:
        return False
    at = one.pod.revision
    is_untouched = at == sts.current_revision and at != sts.update_revision
    return one.why is not Why.UNREADY or not is_untouched


def _replace_broken(look: Readiness, one: Down) -> Replacement:
    sts = look.sts
    text = f"{_at(one.pod.name, one.pod.revision, sts)} and it is down ({render_why(look, one)})"
    reason = Reason(code=Code.POD_BROKEN_AND_OUTDATED, text=text, zone=sts.name)
    return Replacement(pod=one.pod, reason=reason)


def _replace_healthy(sts: StatefulSet, pods: list[Pod]) -> tuple[Replacement, ...]:
    return tuple(
        Replacement(
            pod=pod,
            reason=Reason(
                code=Code.POD_OUTDATED, text=_at(pod.name, pod.revision, sts), zone=sts.name
            ),
        )
        for pod in pods
    )


def _at(pod: str, revision: Revision | None, sts: StatefulSet) -> str:
    return f"{pod} is at revision {revision or 'none'}, {sts.name} wants {sts.update_revision}"


def _explain_held(look: Readiness, *, held: int, going: int, limit: int) -> Reason:
    text = (
        f"{look.sts.name}: {count(held, 'outdated pod')} {verb(held, 'waits', 'wait')}: "
        f"{look.unavailable} unavailable of {limit} allowed"
    )
    if going:
        return _wait(look, Code.BUDGET_USED, f"{text}, {going} going now", Severity.DEBUG)
    text = f"{text}{render_trouble(look)}"
    if not look.unreadable and all(_is_starting(look, one) for one in look.down):
        return _wait(look, Code.PODS_STARTING, text, Severity.DEBUG)
    return _wait(look, Code.BUDGET_USED, text, Severity.INFO)


def _is_starting(look: Readiness, one: Down) -> bool:
    return one.why is not Why.UNREADY or render_why(look, one).startswith(_STARTING)


def _wait(look: Readiness, code: Code, text: str, severity: Severity) -> Reason:
    return Reason(code=code, text=text, severity=severity, zone=look.sts.name)
