"""S5 and S6 without faults: what moves by itself really moves, and what may go wrong does."""

from typing import cast

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.history import Called, Commit, Fault, History, PodCalled, Said
from rollout_operator.lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_operator.model.names import FORCE_REPLICAS, UPSCALE_WHEN_READY
from tests.judge.book import read_book
from tests.judge.builder import s
from tests.judge.desired import list_miscounted, read_delay_path, read_desired
from tests.judge.invariants_requests import Contest, list_contests
from tests.judge.promises import Promises
from tests.judge.scaling import list_scalings
from tests.simulation.scenarios_book import TRACKED, find_scenario
from tests.simulation.scenarios_scaling import NONSENSE
from tests.simulation.test_scenarios import counts, play_calmly

ZONES = tuple(f"ingester-zone-{letter}" for letter in "abc")


def scaled(history: History, *, is_downscale: bool) -> set[str]:
    """Return the zones that the operator has scaled."""
    found = list_scalings(read_book(history, Promises()))
    return {one.before.name for one in found if one.is_downscale is is_downscale}


def said(history: History) -> str:
    return "\n".join(one.text for one in history.list_all(Said))


def test_s5_all_zones_come_to_the_count_of_the_first() -> None:
    """Over some seeds up and down, forced and by hand, while a rollout goes on and without one."""
    texts, ups, downs, ends = "", set[str](), set[str](), set[int]()
    for seed in range(0, 160, 20):
        history = play_calmly(find_scenario("s5"), seed).history
        (end,) = {counts(history, name)[-1] for name in ZONES}
        ends.add(end)
        texts += said(history)
        ups |= scaled(history, is_downscale=False)
        downs |= scaled(history, is_downscale=True)

    assert ups == downs == set(ZONES[1:])
    assert ends == {1, 2, 3}
    for what in ("hpa scales", FORCE_REPLICAS, UPSCALE_WHEN_READY, "sets the image"):
        assert what.removeprefix("hpa ") in texts


def test_s6_zones_mirror_and_follow_and_pods_have_their_say() -> None:
    """Over some seeds pods are asked, told that they stay, and talk nonsense."""
    texts, downs, methods, answers = "", set[str](), set[str](), set[int]()
    for seed in range(0, 160, 20):
        history = play_calmly(find_scenario("s6"), seed).history
        assert len({counts(history, name)[-1] for name in ZONES}) == 1
        texts += said(history)
        downs |= scaled(history, is_downscale=True)
        calls = read_book(history, Promises()).delay_calls
        methods |= {call.method for call in calls}
        answers |= {call.status for call in calls}
        told = {call.pod for call in history.list_all(PodCalled) if call not in calls}
        assert all(pod.startswith(ZONES[1]) for pod in told), "only the second is guarded"

    assert downs == set(ZONES)
    assert methods == {"POST", "DELETE"}
    assert answers > {200}
    assert "answers each POST badly" in texts
    assert "answers each DELETE badly" in texts


def test_nonsense_never_prepares_a_pod() -> None:
    """Whoever believed it would be found out: the pod has done nothing."""
    assert len(set(NONSENSE)) == len(NONSENSE) > 5
    assert not any(
        body.startswith(b'{"timestamp": 17673230') and len(body) < 26 for body in NONSENSE
    )


def test_tracked_scenarios_keep_their_times_in_the_map() -> None:
    for name in ("s5-tracked", "s7-tracked"):
        scenario = find_scenario(name)
        history = play_calmly(scenario).history

        assert tuple(scenario.args) == TRACKED
        writes = [one for one in history.list_all(Commit) if one.resource.plural == "configmaps"]
        assert writes
        assert not history.list_all(Fault)
        sets = [one for one in history.list_all(Commit) if one.resource.plural == "statefulsets"]
        assert not any("grafana.com/last-downscale" in str(one.after) for one in sets)


def test_an_idle_group_is_left_alone() -> None:
    """LI-11: once counts are right the object that is mirrored is watched, and read no more."""
    history = play_calmly(find_scenario("s6-small")).history
    last = max(one.at for one in history.list_all(Said))
    calls = [one for one in history.list_all(Called) if one.begun > last + s(300)]

    own = [one.request for one in calls if one.actor == "operator-1"]
    assert not [one for one in own if one.resource == REPLICA_TEMPLATES and one.subresource]
    assert {one.verb for one in own if one.resource == REPLICA_TEMPLATES} <= {"watch", "list"}


def a_set(name: str, replicas: int, **annotations: str) -> JsonObject:
    notes = {f"grafana.com/rollout-{key.replace('_', '-')}": it for key, it in annotations.items()}
    metadata: JsonObject = {"name": name, "annotations": cast(JsonObject, notes)}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def a_template(replicas: int, status: int) -> JsonObject:
    return {
        "metadata": {"name": "t"},
        "spec": {"replicas": replicas},
        "status": {"replicas": status},
    }


MIRRORS = {
    "mirror_replicas_from_resource_name": "t",
    "mirror_replicas_from_resource_kind": "ReplicaTemplate",
}


def test_what_is_miscounted_is_named() -> None:
    """SCALE-05, SCALE-06, MIRR-04, MIRR-10, SEED-069."""
    first = a_set("a", 3, **MIRRORS)
    second = a_set("b", 2, downscale_leader="a")

    assert list(list_miscounted([first, second], [a_template(3, 3)])) == [
        "b has 2 replicas, a wants 3"
    ]
    assert list(list_miscounted([first], [a_template(4, 3)])) == [
        "a has 3 replicas, t wants 4",
        "the status of t says 3 replicas, it wants 4",
    ]
    forced = a_set("b", 2, downscale_leader="a", force_replicas="2")
    assert list(list_miscounted([first, forced], [a_template(3, 3)])) == []
    idle = a_set("a", 2, force_replicas="5")
    assert list(list_miscounted([idle], [])) == []
    alone = a_set("b", 2, downscale_leader="x")
    assert list(list_miscounted([alone], [])) == []


def test_annotations_are_read_as_people_read_them() -> None:
    found = a_set(
        "a",
        3,
        **MIRRORS,
        delayed_downscale="1m30s",
        prepare_delayed_downscale_url="http://x:80/some/path?a=b",
        mirror_replicas_from_resource_write_back="false",
    )
    desired = read_desired(found)

    assert (desired.template, desired.delay, desired.writes_back) == ("t", s(90), False)
    assert read_delay_path(found) == "some/path"
    assert read_desired(a_set("a", 3, downscale_leader="", **MIRRORS)).template == "", "it follows"
    assert read_desired(a_set("a", 3, delayed_downscale="5m", **MIRRORS)).delay == s(0)
    assert not read_desired(None).is_ours


def test_s5_contested_another_writer_puts_counts_back_and_gives_up() -> None:
    """Over some seeds there are contests, none is fought fast, and all counts are right at last."""
    found: list[Contest] = []
    for seed in range(0, 160, 20):
        history = play_calmly(find_scenario("s5-contested"), seed).history
        found += list_contests(read_book(history, Promises()))
        assert len({counts(history, name)[-1] for name in ZONES}) == 1

    assert {one.zone for one in found} <= set(ZONES[1:])
    assert max(len(one.times) for one in found) > 3
