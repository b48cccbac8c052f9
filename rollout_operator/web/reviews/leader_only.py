"""Hooks whose answer rests on what one process remembers: only the process that leads gives it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from rollout_operator.model.outcome import Verdict
from rollout_operator.model.review import Review
from rollout_operator.web.reviews.dispatch import ReviewHook
from rollout_operator.web.reviews.forward import Forwarder, refuse_unelected


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderOnly:
    """Answers by a hook where this process leads; elsewhere the review is passed on, or refused."""

    path: str
    hook: ReviewHook
    is_leading: Callable[[], bool]
    describe: Callable[[], str]
    """Says which process leads."""
    assess: Callable[[Review], Verdict | None] = lambda review: None
    """Returns the verdict where the review alone decides, so that any process can give it."""
    confirms: Callable[[Review], bool] = lambda review: True
    """Says whether the cache shows the object under review."""
    forwarder: Forwarder | None = None
    """The way to the process that leads, None where reviews are not passed on."""

    @property
    def forwards(self) -> bool:
        """Return whether a review would be passed on now."""
        return (
            not self.is_leading()
            and self.forwarder is not None
            and self.forwarder.find_leader() is not None
        )

    async def review(self, review: Review, until: timedelta) -> Verdict | bytes:
        """Return the verdict or the answer; it must be out `until`, on the clock's `elapsed`."""
        if self.is_leading():
            return await self.hook.review(review, until)
        if (verdict := self.assess(review)) is not None:
            return verdict
        leader = None if self.forwarder is None else self.forwarder.find_leader()
        if self.forwarder is not None and leader is not None and review.sent:
            is_confirmed = self.confirms(review)
            return await self.forwarder.request(
                leader, self.path, review, until, is_confirmed=is_confirmed
            )
        text = f"this replica does not decide that; try again (who does: {self.describe()})"
        return refuse_unelected(text)
