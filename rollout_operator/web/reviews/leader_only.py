"""Hooks whose answer rests on what one process remembers: only the one that leads gives it."""

from collections.abc import Callable
from datetime import timedelta

from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review
from rollout_operator.planning.downscales.request import RETRY, refuse
from rollout_operator.web.reviews.dispatch import ReviewHook


class LeaderOnly:
    """Answers by a hook where this process leads, and has the request repeated elsewhere."""

    def __init__(
        self, hook: ReviewHook, *, is_leading: Callable[[], bool], describe: Callable[[], str]
    ) -> None:
        """`describe` says which process leads."""
        self._hook = hook
        self._is_leading = is_leading
        self._describe = describe

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict; `until`, on the clock's `elapsed`, is when it must be out."""
        if self._is_leading():
            return await self._hook.review(review, until)
        text = f"this replica does not decide that; try again (who does: {self._describe()})"
        return refuse(Code.NOT_ELECTED, text, status=RETRY)
