"""What a review of an eviction asks for, and which answers need no budget.

Whether a pod under a budget may go is decided in `rule`.
"""

from typing import Final

from rollout_operator.model.decode.eviction import is_dry_run
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review
from rollout_operator.planning.downscales.request import allow, refuse

_INVALID: Final = 400
# What the API server evicts without asking budgets: nothing runs that could be disrupted.
_NOT_RUNNING: Final = frozenset({"Succeeded", "Failed", "Pending"})


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
        return refuse(Code.OTHER_NAMESPACE, text, status=_INVALID)
    else:
        return None
    return refuse(Code.NOT_AN_EVICTION, text, status=_INVALID)


def wants_dry_run(review: Review) -> bool:
    """Tell whether nothing will happen, by the request or by what the eviction itself says."""
    return review.dry_run or is_dry_run(review.body)


def is_running(pod: Pod) -> bool:
    """Tell whether there is something to disrupt (ZPDB-54)."""
    return not pod.is_terminating and pod.phase not in _NOT_RUNNING


def allow_not_running() -> Verdict:
    """Return the verdict on a pod with nothing to disrupt."""
    return allow(Code.POD_NOT_RUNNING, warning="pod is not ready")


def allow_not_found(name: str) -> Verdict:
    """Return the verdict on a pod that does not exist: the API server answers 404 (W-53)."""
    return allow(Code.POD_NOT_FOUND, f'pods "{name}" not found')
