"""The judge of D-25: a pod that goes in one zone while another is about to lose some (SI-02)."""

from functools import partial

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.judge.book import read_book
from tests.judge.invariants_budgets import find_overlaps, list_grants
from tests.judge.promises import Promises
from tests.simulation.chronicle import OPERATOR, PATHS, PREPARED, Chronicle, s
from tests.simulation.chronicle_downscales import Story, ask
from tests.simulation.chronicle_drains import evict


def grant(told: Chronicle) -> None:
    """Have zone-a go down: a look at 18.5 s, a call at 19, the answer at 19.5, the write at 20."""
    told.look(18.5)
    told.prepare(19, "zone-a-2")
    told.review(19.5, "zone-a", told.number + 1, begun=s(18.2))
    told.zone(20, "zone-a", replicas=2, call=told.number + 1)
    ask(told, 20)


def delete(told: Chronicle, at: float, pod: str = "zone-b-0", *, status: int = 200) -> None:
    """Have the operator delete a pod."""
    told.call(at, "delete", PODS, pod, status=status)


def judge(story: Story) -> list[str]:
    """Return the ids of what a story breaks."""
    told = Chronicle()
    told.hooks(0, "prepare-downscale", "no-downscale")
    told.zones(labels=PREPARED, annotations=PATHS)
    story(told)
    return [one.invariant for one in find_overlaps(read_book(told.history, Promises()))]


def between(told: Chronicle) -> None:
    grant(told)
    delete(told, 19.2)


def between_and_refused(told: Chronicle) -> None:
    grant(told)
    delete(told, 19.2, status=409)


def between_in_the_same_zone(told: Chronicle) -> None:
    grant(told)
    delete(told, 19.2, "zone-a-0")


def before_the_look(told: Chronicle) -> None:
    delete(told, 18)
    grant(told)


def after_the_write(told: Chronicle) -> None:
    grant(told)
    delete(told, 20.5)


def by_another_life(told: Chronicle) -> None:
    grant(told)
    told.lived(19.1, "crashed")
    told.lived(19.15, "started")
    delete(told, 19.2)


def in_another_group(told: Chronicle) -> None:
    told.zone(1, "zone-b", labels={**PREPARED, "rollout-group": "elsewhere"})
    between(told)


def with_a_dry_run(told: Chronicle) -> None:
    told.look(18.5)
    told.prepare(19, "zone-a-2")
    told.review(19.5, "zone-a", told.number + 1, begun=s(18.2), dry_run=True)
    ask(told, 20)
    delete(told, 19.2)


def with_an_eviction(told: Chronicle, at: float, *, marked: bool = True) -> None:
    grant(told)
    evict(told, at, "zone-b-0", marked=marked)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        pytest.param(between, ["SI-02"], id="SI-02 D-25 while a downscale is being granted"),
        pytest.param(between_and_refused, [], id="D-25 a delete that is refused does no harm"),
        pytest.param(between_in_the_same_zone, [], id="D-25 in its own zone"),
        pytest.param(before_the_look, [], id="D-25 before the look, which sees it"),
        pytest.param(after_the_write, [], id="D-25 after the write, which everybody sees"),
        pytest.param(by_another_life, [], id="D-25 by a process that knows nothing of it yet"),
        pytest.param(in_another_group, [], id="D-25 another group has nothing to do with it"),
        pytest.param(
            partial(with_an_eviction, at=19.2),
            ["SI-02"],
            id="SI-02 FP-21 an eviction while a downscale is being granted",
        ),
        pytest.param(partial(with_an_eviction, at=20.4), [], id="FP-21 after the write"),
        pytest.param(
            partial(with_an_eviction, at=19.2, marked=False), [], id="FP-21 under no budget"
        ),
        pytest.param(with_a_dry_run, [], id="D-25 a dry run scales nothing down"),
    ],
)
def test_a_rollout_waits_for_a_downscale(story: Story, expected: list[str]) -> None:
    assert judge(story) == expected


def test_a_grant_lasts_from_its_last_look_to_the_end_of_its_request() -> None:
    told = Chronicle()
    told.hooks(0, "prepare-downscale")
    told.zones(labels=PREPARED, annotations=PATHS)
    told.call(18.4, "list", STATEFULSETS, actor=OPERATOR)
    grant(told)

    (found,) = list_grants(read_book(told.history, Promises()))
    assert (found.zone, found.looked_at.total_seconds()) == ("zone-a", 18.5)
    assert found.ended_at.total_seconds() == 20
