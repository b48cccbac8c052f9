"""When an object of Flux is no longer corrected: another writer changes it as often.

No writer wins a contest of five corrections within ten minutes, and each makes Flux work. So the
object is left alone for ten minutes after the last correction, and the status says so. What is
deployed anew is written all the same.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.plan import ApplyTag, Correction, FluxTarget, ReleasePlan
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases.conditions import TARGET_CONFLICT
from rollout_operator.planning.wording import join_names

MOST_CORRECTIONS: Final = 5
WINDOW: Final = timedelta(minutes=10)


def list_contested(
    targets: Iterable[FluxTarget],
    corrections: Sequence[Correction],
    before: ReleaseStatus,
    now: datetime,
) -> tuple[FluxTarget, ...]:
    """Return the targets that are left alone now (RELB-12).

    A process that has begun anew remembers no corrections: it goes by the condition in `before`.
    """
    if not corrections and _is_on_record(before, now):
        return tuple(targets)
    return tuple(
        target for target in targets if _is_contested(_list_times(target, corrections), now)
    )


def get_contest_end(corrections: Sequence[Correction], now: datetime) -> timedelta:
    """Return after what time what is contested may be corrected again."""
    last = max((correction.at for correction in corrections), default=now)
    return max(last + WINDOW - now, timedelta(0))


def list_drifted(plan: ReleasePlan) -> tuple[tuple[str, str], ...]:
    """Return kind and name of the objects that had another tag than they should."""
    return tuple(
        (action.target.kind, action.target.name)
        for action in plan.actions
        if isinstance(action, ApplyTag) and action.is_drift
    )


def remember(
    corrections: Iterable[Correction],
    plan: ReleasePlan,
    now: datetime,
    failed: Collection[tuple[str, str]] = (),
) -> tuple[Correction, ...]:
    """Return the corrections that count still, with those of a plan that was carried out.

    `failed` are kind and name of the objects that could not be written: no other writer undid that.
    """
    drifted = (place for place in list_drifted(plan) if place not in failed)
    made = (Correction(kind=kind, name=name, at=now) for kind, name in drifted)
    return (*(correction for correction in corrections if now - correction.at < WINDOW), *made)


def describe_contest(contested: Sequence[FluxTarget], tag: str) -> ConditionFinding:
    """Return what the status says of it."""
    if not contested:
        return ConditionFinding(TARGET_CONFLICT, False, "Settled", "")
    names = join_names([f"{target.kind} {target.name} ({target.tag})" for target in contested])
    text = f"another writer undoes {tag} again and again: {names}"
    return ConditionFinding(TARGET_CONFLICT, True, TARGET_CONFLICT, text)


def _list_times(target: FluxTarget, corrections: Iterable[Correction]) -> Sequence[datetime]:
    place = (target.kind, target.name)
    # What one pass corrects of an object counts once.
    return sorted(
        {correction.at for correction in corrections if (correction.kind, correction.name) == place}
    )


def _is_contested(times: Sequence[datetime], now: datetime) -> bool:
    recent = times[-MOST_CORRECTIONS:]
    return (
        len(recent) == MOST_CORRECTIONS
        and recent[-1] - recent[0] <= WINDOW
        and now - recent[-1] < WINDOW
    )


def _is_on_record(before: ReleaseStatus, now: datetime) -> bool:
    condition = before.find_condition(TARGET_CONFLICT)
    if condition is None or condition.status != "True":
        return False
    try:
        return now - parse_rfc3339(condition.last_transition_time) < WINDOW
    except InvalidInput:
        return False
