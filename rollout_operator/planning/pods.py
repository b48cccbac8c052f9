"""Choose the pods to delete next in one zone.

Asked only of a zone whose turn it is: that every other zone is whole is settled in `group`. Which
of the candidates are refused, and what is tried instead, is up to whoever carries the plan out.
"""

from dataclasses import dataclass
from typing import Final

from rollout_operator.model.names import Revision
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Code, Reason, Replacement, ReplacePods, Severity
from rollout_operator.planning.readiness import Down, Readiness, Why, render_trouble
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
    free = _choose_free(look, broken, limit)
    healthy = [pod for pod in look.standing if pod.revision != revision]
    # Whatever is in flight or broken counts as unavailable, so this bounds disruptions as well.
    room = min(max(limit - look.unavailable, 0), len(healthy))
    action = ReplacePods(
        zone=look.sts,
        free=tuple(_replace_broken(look.sts, one) for one in free),
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
    """Return the outdated pods that are down, other than by age or by an answered delete.

    A delete without an answer is settled by sending it again, for the same UID.
    """
    revision = look.sts.update_revision
    return [
        one
        for one in look.down
        if (one.why is Why.UNREADY or one.why is Why.UNANSWERED) and one.pod.revision != revision
    ]


def _choose_free(look: Readiness, broken: list[Down], limit: int) -> list[Down]:
    """Return the broken pods that may go without the disruptions by us exceeding `limit` (SI-04).

    5 pods, limit 1, one of them just replaced and starting: a second one that crashes on its own
    waits, for deleting it would make two disruptions by us.
    """
    in_flight = look.missing + len(look.unreadable)
    in_flight += sum(_is_in_flight(look.sts, one) for one in look.down)
    chosen: list[Down] = []
    for one in broken:
        if _is_in_flight(look.sts, one):
            chosen.append(one)  # counted already
        elif in_flight < limit:
            chosen.append(one)
            in_flight += 1
    return chosen


def _is_in_flight(sts: StatefulSet, one: Down) -> bool:
    """Tell whether a pod is down most likely because of us.

    Only a pod that we never touched is surely not: outdated, and still at the revision which the
    zone ran before the rollout. After a rollback that is the update revision itself, where a pod
    that is not ready may be one which we have just replaced.
    """
    if one.why is Why.SETTLING:
        return False
    if one.why is not Why.UNREADY:
        return True
    at = one.pod.revision
    return at == sts.update_revision or at != sts.current_revision


def _replace_broken(sts: StatefulSet, one: Down) -> Replacement:
    text = f"{_at(one.pod.name, one.pod.revision, sts)} and it is down ({one.trouble})"
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
    if not look.unreadable and all(_is_starting(look.sts, one) for one in look.down):
        return _wait(look, Code.PODS_STARTING, text, Severity.DEBUG)
    return _wait(look, Code.BUDGET_USED, text, Severity.INFO)


def _is_starting(sts: StatefulSet, one: Down) -> bool:
    if one.why is not Why.UNREADY:
        return True
    return one.pod.revision == sts.update_revision and one.trouble.startswith(_STARTING)


def _wait(look: Readiness, code: Code, text: str, severity: Severity) -> Reason:
    return Reason(code=code, text=text, severity=severity, zone=look.sts.name)
