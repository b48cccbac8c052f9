"""What is remembered of other operators."""

from msgspec.structs import replace

from rollout_operator.controllers.rollout import MOST_SIGNS, OtherOperators
from rollout_operator.guards.grants import COMMIT_LIMIT, OwnDeletes
from rollout_operator.kube.store import PodStore, StatefulSetStore
from tests.builders import pod, sts
from tests.controllers.rollout.stage import GROUP
from tests.fakes_clock import FakeClock


def test_the_memory_of_other_operators_is_bounded() -> None:
    sets, clock, old = StatefulSetStore(), FakeClock(), pod("a", 0)
    sets.replace_all([sts("a")])
    others = OtherOperators(sets, OwnDeletes(PodStore(), clock), clock, lambda group: None)
    others.begin()
    clock.jump(COMMIT_LIMIT)
    for _ in range(MOST_SIGNS + 1):
        others.on_pod(old, replace(old, is_terminating=True, is_ready=False))

    assert len(others._signs[GROUP]) == MOST_SIGNS
