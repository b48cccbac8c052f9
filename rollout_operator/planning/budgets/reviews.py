"""What reviews of evictions and of budgets request, and the answers that need no count.

An eviction is no question for a budget where nothing runs. A budget under review is judged by what
lies beyond its own fields: what it selects, next to which other budgets, and where it means
something else than it seems to; its fields are judged by `decode_budget`, before that. Whether a
pod under a budget may go is decided in `rule`.
"""

from collections import Counter
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.review import is_dry_run
from rollout_operator.model.names import ABSENT_PEERS
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Severity, Verdict
from rollout_operator.model.pattern import has_open_alternation
from rollout_operator.model.review import Review
from rollout_operator.model.units import quote
from rollout_operator.planning.downscales.request import allow, refuse
from rollout_operator.planning.wording import count

INVALID: Final = 400
# What the API server evicts without regard to budgets: nothing runs that could be disrupted.
_NOT_RUNNING: Final = frozenset({"Succeeded", "Failed", "Pending"})
_ABSENT_PEERS_VALUES: Final = ("gone", "unknown")
# The API server cuts warnings at 256 characters.
_LONGEST_VALUE: Final = 40


def assess_request(review: Review, namespace: str) -> Verdict | None:
    """Return why a review is no eviction in our namespace, None where it is (ZPDB-50..52)."""
    if review.operation != "CREATE":
        text = f"request operation is not create, got: {review.operation}"
    elif review.subresource != "eviction":
        text = f"request SubResource is not eviction, got: {review.subresource}"
    elif not review.namespace or not review.name:
        text = "request did not include both a namespace and a name"
    elif review.namespace != namespace:
        text = f"namespace {review.namespace} is not looked after by this operator"
        return refuse(Code.OTHER_NAMESPACE, text, status=INVALID)
    else:
        return None
    return refuse(Code.NOT_AN_EVICTION, text, status=INVALID)


def wants_dry_run(review: Review) -> bool:
    """Return whether nothing will happen, by the request or by what the eviction itself says."""
    return review.dry_run or is_dry_run(review.body)


def is_running(pod: Pod) -> bool:
    """Return whether there is something to disrupt (ZPDB-54)."""
    return not pod.is_terminating and pod.phase not in _NOT_RUNNING


def allow_not_running() -> Verdict:
    """Return the verdict on a pod with nothing to disrupt."""
    return allow(Code.POD_NOT_RUNNING, warning="pod is not ready")


def allow_not_found(name: str) -> Verdict:
    """Return the verdict on a pod that does not exist: the API server answers 404 (W-53)."""
    return allow(Code.POD_NOT_FOUND, f'pods "{name}" not found')


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the budget under review and another budget select."""

    pod: str
    other: str
    """Name of the other budget."""


class BudgetUnderReview(msgspec.Struct, frozen=True, kw_only=True):
    """A budget under review and what is known around it."""

    budget: Budget
    absent_peers: str | None = None
    """The annotation as written, None where it is absent."""
    pods: tuple[Pod, ...] = ()
    """The known pods that it selects."""
    overlap: Overlap | None = None


def assess_budget(draft: BudgetUnderReview) -> Verdict:
    """Return the verdict on a budget whose fields are valid; W-28, W-41, W-56."""
    if not draft.budget.selector:
        return refuse(
            Code.BUDGET_INVALID,
            "invalid value: selector is empty: spec.selector.matchLabels selects every pod of the"
            " namespace; name at least one label",
            status=INVALID,
        )
    overlap = draft.overlap
    if overlap is not None:
        return refuse(
            Code.BUDGETS_OVERLAP,
            f"budget {quote(draft.budget.name)} selects pod {overlap.pod}, which budget"
            f" {quote(overlap.other)} selects as well: a pod may be under one budget only",
            status=INVALID,
        )
    verdict = allow(Code.BUDGET_VALID)
    warnings = _list_warnings(draft)
    if not warnings:
        return verdict
    return replace(
        verdict, reason=replace(verdict.reason, severity=Severity.WARN), warnings=warnings
    )


def _list_warnings(draft: BudgetUnderReview) -> tuple[str, ...]:
    warnings = (_judge_pattern(draft.budget), _judge_share(draft), _judge_absent_peers(draft))
    return tuple(text for text in warnings if text)


def _judge_pattern(budget: Budget) -> str:
    if not has_open_alternation(budget.pattern):
        return ""
    return (
        "spec.podNamePartitionRegex: matched as ^(?:...)$, so that each alternative must match the"
        " whole name; earlier releases match it as ^...$"
    )


def _judge_share(draft: BudgetUnderReview) -> str:
    """Report where a share of a zone is less than one pod, and lets one pod go all the same."""
    share = draft.budget.percentage
    sizes = Counter(pod.owner_uid for pod in draft.pods if pod.owner_uid is not None)
    smallest = min(sizes.values(), default=0)
    if not share or share * smallest >= 100 or not smallest:
        return ""
    return (
        f"spec.maxUnavailablePercentage: {share}% of {count(smallest, 'pod')} is less than one, and"
        " one may be gone all the same"
    )


def _judge_absent_peers(draft: BudgetUnderReview) -> str:
    value = draft.absent_peers
    if value is None or value in _ABSENT_PEERS_VALUES:
        return ""
    values = " nor ".join(_ABSENT_PEERS_VALUES)
    shown = quote(value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}...")
    return f"annotation {ABSENT_PEERS}: {shown} is neither {values}: taken for unknown"
