"""Which of several namespaces answers a review (MAZ-60, MAZ-65)."""

import asyncio
from datetime import timedelta
from typing import cast

import msgspec
import pytest

from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review, Unusable, Version
from rollout_operator.operator.reviews import Reviews, route_reviews
from rollout_operator.web.dispatch import Reviewer
from tests.virtual_time import VirtualClock, in_virtual_time

PATH = "/admission/pod-eviction"
LATE = timedelta(minutes=1)


class Answering(msgspec.Struct):
    """The reviews of one namespace, in place of `operator.reviews.Reviews`."""

    namespace: str
    knows: bool = True
    counted: list[str] = []

    async def is_known(self, within: timedelta) -> bool:
        await asyncio.sleep(0 if self.knows else within.total_seconds())
        return self.knows

    def find_lack(self) -> str | None:
        return "cannot list pods"

    async def review(self, review: Review, until: timedelta) -> Verdict:
        return Verdict(is_allowed=True, reason=Reason(Code.UP_TO_DATE, self.namespace))

    def make_reviewer(self) -> Reviewer:
        return Reviewer(
            hooks={PATH: self},
            request_timeout=LATE,
            clock=VirtualClock(),
            on_verdict=lambda path, review, verdict: self.counted.append(review.namespace),
        )


@pytest.mark.parametrize(
    ("requests", "answers", "begun"),
    [
        pytest.param("a b", ["a", "b"], [], id="by the namespace of its object"),
        pytest.param("other", ["a"], ["other"], id="else by one, which says it is not its own"),
        pytest.param(
            "late",
            ["429 namespace late is not followed yet: cannot list pods; try again"],
            [],
            id="one that is not known refuses to be tried again",
        ),
        pytest.param("new new", ["new", "new"], ["new"], id="MAZ-65 the first sign of a namespace"),
    ],
)
@in_virtual_time
async def test_maz60_who_answers(requests: str, answers: list[str], begun: list[str]) -> None:
    found = {name: Answering(name, knows=name != "late") for name in ("a", "b", "late")}
    started: list[str] = []

    async def begin(namespace: str) -> None:
        started.append(namespace)
        if namespace == "new":
            found[namespace] = Answering(namespace)

    reviewer = route_reviews(
        cast(dict[str, Reviews], found), lambda one: cast(Answering, one).make_reviewer(), begin
    )
    told = []
    for name in requests.split():
        nothing = Unusable("")
        review = Review(version=Version.V1, uid="u", namespace=name, old=nothing, new=nothing)
        verdict = await reviewer.hooks[PATH].review(review, LATE)
        assert isinstance(verdict, Verdict)
        reviewer.on_verdict(PATH, review, verdict)
        told.append(("" if verdict.is_allowed else f"{verdict.code} ") + verdict.reason.text)

    assert (told, started) == (answers, begun)
    counted = {name: one.counted for name, one in found.items() if one.counted}
    assert requests != "a b" or counted == {"a": ["a"], "b": ["b"]}
