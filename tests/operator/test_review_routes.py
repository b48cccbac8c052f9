"""Which of several namespaces answers a review (MAZ-60, MAZ-65)."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review, Unusable, Version
from rollout_operator.operator.reviews import Reviews, route_reviews
from rollout_operator.web.dispatch import Reviewer
from tests.virtual_time import VirtualClock, in_virtual_time

PATH = "/admission/pod-eviction"
LATE = timedelta(minutes=1)


@dataclass(slots=True)
class Answering:
    """The reviews of one namespace, in place of `operator.reviews.Reviews`."""

    namespace: str
    known: asyncio.Event = field(default_factory=asyncio.Event)
    counted: list[str] = field(default_factory=list)

    async def is_known(self, within: timedelta) -> bool:
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self.known.wait()
        except TimeoutError:
            return False
        return True

    def find_lack(self) -> str | None:
        return "cannot list pods"

    async def review(self, review: Review, until: timedelta) -> Verdict:
        return Verdict(is_allowed=True, reason=Reason(Code.UP_TO_DATE, self.namespace))

    def make_reviewer(self) -> Reviewer:
        return Reviewer(
            hooks={PATH: self},
            request_timeout=LATE,
            clock=VirtualClock(),
            on_verdict=lambda path, review, verdict: self.counted.append(review.uid),
        )


class Routed:
    """Two namespaces, of which the second may come to be known later."""

    def __init__(self) -> None:
        self.all = {name: Answering(name) for name in ("a", "b")}
        self.all["a"].known.set()
        self.begun: list[str] = []
        reviews = cast(dict[str, Reviews], self.all)
        self.reviewer = route_reviews(
            reviews, lambda one: cast(Answering, one).make_reviewer(), self._begin
        )

    async def _begin(self, namespace: str) -> None:
        self.begun.append(namespace)
        if namespace == "new":
            self.all[namespace] = Answering(namespace)
            self.all[namespace].known.set()

    async def request(self, namespace: str) -> Verdict:
        nothing = Unusable("")
        review = Review(
            version=Version.V1,
            uid=f"of {namespace}",
            namespace=namespace,
            old=nothing,
            new=nothing,
        )
        verdict = await self.reviewer.hooks[PATH].review(review, LATE)
        assert isinstance(verdict, Verdict)
        self.reviewer.on_verdict(PATH, review, verdict)
        return verdict


@in_virtual_time
async def test_maz60_a_review_is_answered_by_the_namespace_of_its_object() -> None:
    routed = Routed()
    routed.all["b"].known.set()

    assert (await routed.request("a")).reason.text == "a"
    assert (await routed.request("b")).reason.text == "b"

    assert [one.counted for one in routed.all.values()] == [["of a"], ["of b"]]
    assert routed.begun == []


@in_virtual_time
async def test_maz60_objects_elsewhere_are_answered_as_by_one_namespace() -> None:
    routed = Routed()

    assert (await routed.request("elsewhere")).reason.text == "a", (
        "which says that it is not its own"
    )
    assert routed.begun == ["elsewhere"]


@in_virtual_time
async def test_maz60_a_namespace_that_is_not_known_refuses_to_be_tried_again() -> None:
    verdict = await Routed().request("b")

    assert (verdict.is_allowed, verdict.code) == (False, 429)
    assert verdict.reason.text == "namespace b is not followed yet: cannot list pods; try again"


@in_virtual_time
async def test_maz65_a_review_may_be_the_first_sign_of_a_namespace() -> None:
    routed = Routed()

    assert (await routed.request("new")).reason.text == "new"
    assert (await routed.request("new")).reason.text == "new"
    assert routed.begun == ["new"]
