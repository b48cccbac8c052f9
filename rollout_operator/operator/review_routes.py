"""Which namespace answers a review: that of its object, where several are watched.

A review of an object elsewhere is answered by the first of them, as a process of one namespace
does: it says that the namespace is not watched. A review of a namespace that is not followed yet is
refused, to be tried again.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review
from rollout_operator.operator.reviews import Reviews
from rollout_operator.planning.downscales.request import RETRY, refuse
from rollout_operator.telemetry.logs import bind_keys
from rollout_operator.web.reviews.dispatch import Reviewer

# A namespace of which a review is the first sign is listed in a few milliseconds.
KNOWN_WITHIN: Final = timedelta(seconds=1)

Choose = Callable[[Reviews], Reviewer]
Begin = Callable[[str], Awaitable[None]]


class _Routes(msgspec.Struct, frozen=True):
    """The reviews of all namespaces; more may come."""

    reviews: Mapping[str, Reviews]
    choose: Choose
    begin: Begin

    def get(self, namespace: str) -> Reviews:
        """Return the reviews of a namespace, those of the first for an unknown one."""
        reviews = self.reviews.get(namespace)
        return next(iter(self.reviews.values())) if reviews is None else reviews

    def count(self, path: str, review: Review, verdict: Verdict) -> None:
        """Count a verdict where it was made."""
        self.choose(self.get(review.namespace)).on_verdict(path, review, verdict)


class _RoutedHook(msgspec.Struct, frozen=True):
    """The hooks of one path, of all namespaces. Implements `web.reviews.dispatch.ReviewHook`."""

    path: str
    routes: _Routes

    async def review(self, review: Review, until: timedelta) -> Verdict | bytes:
        if review.namespace not in self.routes.reviews:
            await self.routes.begin(review.namespace)
        reviews = self.routes.get(review.namespace)
        if review.namespace == reviews.namespace and not await reviews.is_known(KNOWN_WITHIN):
            text = f"namespace {review.namespace} is not followed yet: {reviews.find_lack()}"
            return refuse(Code.CANNOT_CHECK, f"{text}; try again", status=RETRY)
        with bind_keys(namespace=review.namespace):
            return await self.routes.choose(reviews).hooks[self.path].review(review, until)


def route_reviews(reviews: Mapping[str, Reviews], choose: Choose, begin: Begin) -> Reviewer:
    """Return a reviewer that has each namespace answer its reviews; there must be one at least.

    `begin` is called with a namespace that is not among them, and may add it.
    """
    routes = _Routes(reviews, choose, begin)
    first = choose(next(iter(reviews.values())))
    hooks = {path: _RoutedHook(path, routes) for path in first.paths}
    return replace(first, hooks=hooks, on_verdict=routes.count)
