"""The hook no-downscale: refuses fewer replicas of objects that carry the label.

Decides the verdict on a Scale whose object cannot be read: it is allowed where the API server does
not give the object, and refused, to be tried again, where the operator itself had no room or time
to read it (D-20). All else is decided in `planning.downscales.request`.
"""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.model.downscale import Decrease
from rollout_operator.model.errors import (
    ApiError,
    DeadlinePassed,
    Denied,
    InvalidInput,
    NotFound,
    OperatorError,
    Throttled,
    TooManyRequests,
)
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review, Scalable
from rollout_operator.planning.downscales.request import (
    RETRY,
    allow,
    assess_no_downscale,
    assess_no_downscale_change,
    refuse_decrease,
)
from rollout_operator.web.reviews.scale_parent import Parents

# A read without an answer ends so long before the review does: its verdict is decided here, and not
# by the server, which refuses whatever is late.
_TO_DECIDE: Final = timedelta(milliseconds=200)
# What clients wait before they send the request again; one read serves all that come meanwhile.
_AGAIN: Final = timedelta(seconds=1)

# Load, which the sender of requests can make: no reason to let a request pass.
_Overload = Throttled | TooManyRequests | DeadlinePassed


class NoDownscale:
    """Answers reviews. Nothing that it does can be seen from outside."""

    def __init__(self, parents: Parents, *, fails_closed: bool) -> None:
        self._parents = parents
        self._fails_closed = fails_closed

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict; `until`, on the clock's `elapsed`, is when it must be out."""
        change = assess_no_downscale_change(review, fails_closed=self._fails_closed)
        if isinstance(change, Verdict):
            return change
        assert isinstance(review.old, Scalable), "nothing else is a decrease"
        if review.old.kind != "Scale":
            return assess_no_downscale(change, review.old.labels, review.old.annotations)
        try:
            parent = await self._parents.fetch(review, until - _TO_DECIDE)
        except (ApiError, InvalidInput) as error:
            return self._assess_unread(review, change, error)
        return assess_no_downscale(change, parent.labels, parent.annotations)

    def _assess_unread(self, review: Review, change: Decrease, error: OperatorError) -> Verdict:
        what = f"can't get {review.resource}/{review.name} in namespace {review.namespace}"
        if isinstance(error, _Overload):
            why = f"{what}: {error}"
            verdict = refuse_decrease(change, Code.CANNOT_CHECK, why, status=RETRY)
            return replace(verdict, retry_after=_AGAIN)
        # What is not there or may not be read stays so: refusing would block it for good.
        is_settled = isinstance(error, NotFound | Denied)
        if self._fails_closed and not is_settled:
            return refuse_decrease(change, Code.CANNOT_CHECK, f"{what}: {error}", status=RETRY)
        return allow(Code.CANNOT_CHECK, warning=f"{what}, allowing the change: {error}")
