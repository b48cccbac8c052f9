"""S5 and S6 without faults: what moves by itself really moves, and what may go wrong does."""

import pytest
from rollout_lab.model.history import Called, Commit, Fault, History, PodCalled, Said
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.model.names import FORCE_REPLICAS, UPSCALE_WHEN_READY
from tests.judge.book import read_book
from tests.judge.builder import s
from tests.judge.invariants_requests import Contest, list_contests
from tests.judge.promises import Promises
from tests.judge.scaling import list_scalings
from tests.simulation.scenarios_book import TRACKED, get_scenario
from tests.simulation.test_scenarios import counts, play_calmly

pytestmark = pytest.mark.thorough

ZONES = tuple(f"ingester-zone-{letter}" for letter in "abc")
WISHES = ("scales", FORCE_REPLICAS, UPSCALE_WHEN_READY, "sets the image")
BAD_ANSWERS = ("answers each POST badly", "answers each DELETE badly")


def scaled(history: History, *, is_downscale: bool) -> set[str]:
    """Return the zones that the operator has scaled."""
    found = list_scalings(read_book(history, Promises()))
    return {one.before.name for one in found if one.is_downscale is is_downscale}


def said(history: History) -> str:
    return "\n".join(one.text for one in history.list_all(Said))


@pytest.mark.slow
def test_s5_all_zones_come_to_the_count_of_the_first() -> None:
    """Over some seeds up and down, forced and by hand, while a rollout goes on and without one."""
    texts, ups, downs, ends = "", set[str](), set[str](), set[int]()
    for seed in range(0, 160, 20):
        history = play_calmly(get_scenario("s5"), seed).history
        (end,) = {counts(history, name)[-1] for name in ZONES}
        ends.add(end)
        texts += said(history)
        ups |= scaled(history, is_downscale=False)
        downs |= scaled(history, is_downscale=True)
        if len(ends) == 3 and all(what in texts for what in WISHES):
            break

    assert ups == downs == set(ZONES[1:])
    assert ends == {1, 2, 3}
    for what in WISHES:
        assert what in texts


def test_s6_zones_mirror_and_follow_and_pods_have_their_say() -> None:
    """Over some seeds pods are called, told that they stay, and talk nonsense."""
    texts, downs, methods, answers = "", set[str](), set[str](), set[int]()
    for seed in range(0, 160, 20):
        history = play_calmly(get_scenario("s6"), seed).history
        assert len({counts(history, name)[-1] for name in ZONES}) == 1
        texts += said(history)
        downs |= scaled(history, is_downscale=True)
        calls = read_book(history, Promises()).delay_calls
        methods |= {call.method for call in calls}
        answers |= {call.status for call in calls}
        called = {call.pod for call in history.list_all(PodCalled) if call not in calls}
        assert all(pod.startswith(ZONES[1]) for pod in called), "only the second is guarded"
        if downs == set(ZONES) and all(what in texts for what in BAD_ANSWERS):
            break

    assert downs == set(ZONES)
    assert methods == {"POST", "DELETE"}
    assert answers > {200}
    for what in BAD_ANSWERS:
        assert what in texts


def test_tracked_scenarios_keep_their_times_in_the_map() -> None:
    for name in ("s5-tracked", "s7-tracked"):
        scenario = get_scenario(name)
        history = play_calmly(scenario).history

        assert tuple(scenario.args) == TRACKED
        writes = [one for one in history.list_all(Commit) if one.resource.plural == "configmaps"]
        assert writes
        assert not history.list_all(Fault)
        sets = [one for one in history.list_all(Commit) if one.resource.plural == "statefulsets"]
        assert not any("grafana.com/last-downscale" in str(one.after) for one in sets)


def test_an_idle_group_is_left_alone() -> None:
    """LI-11: once counts are right the object that is mirrored is watched, and read no more."""
    history = play_calmly(get_scenario("s6-small")).history
    last = max(one.at for one in history.list_all(Said))
    calls = [one for one in history.list_all(Called) if one.begun > last + s(300)]

    own = [one.request for one in calls if one.actor == "operator-1"]
    assert not [one for one in own if one.resource == REPLICA_TEMPLATES and one.subresource]
    assert {one.verb for one in own if one.resource == REPLICA_TEMPLATES} <= {"watch", "list"}


def test_s5_contested_another_writer_puts_counts_back_and_gives_up() -> None:
    """Over some seeds there are contests, none is fought fast, and all counts are right at last."""
    found: list[Contest] = []
    for seed in range(0, 160, 20):
        history = play_calmly(get_scenario("s5-contested"), seed).history
        found += list_contests(read_book(history, Promises()))
        assert len({counts(history, name)[-1] for name in ZONES}) == 1
        if max((len(one.times) for one in found), default=0) > 3:
            break

    assert {one.zone for one in found} <= set(ZONES[1:])
    assert max(len(one.times) for one in found) > 3
