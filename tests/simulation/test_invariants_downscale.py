"""The judge of downscales and reviews: histories that break a promise, and that nearly do."""

from typing import Any

import pytest

from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.model.names import NO_DOWNSCALE
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import PATHS, PREPARED, WAIT, Chronicle, s
from tests.simulation.chronicle_downscales import Story, ask, judge, scale


def unprepared(told: Chronicle) -> None:
    told.look(18.5)
    told.review(19.5, "zone-a", told.number + 1)
    told.zone(20, "zone-a", replicas=2, call=told.number + 1)
    ask(told, 20)


def not_confirmed(told: Chronicle) -> None:
    told.prepare(18.9, "zone-a-2", status=0)
    unprepared(told)


def another_pod_of_that_name(told: Chronicle) -> None:
    told.prepare(18.9, "zone-a-2", uid="older")
    unprepared(told)


def prepared_long_before(told: Chronicle) -> None:
    told.prepare(2, "zone-a-2")
    unprepared(told)


def prepared_for_the_same(told: Chronicle) -> None:
    ask(told, 4, status=409)
    told.prepare(3, "zone-a-2")
    unprepared(told)


def undone_after(told: Chronicle) -> None:
    scale(told, 20)
    told.prepare(21, "zone-a-2", method="DELETE")


def undone_before(told: Chronicle) -> None:
    told.prepare(17, "zone-a-2", method="DELETE")
    scale(told, 20)


def undone_when_wanted_again(told: Chronicle) -> None:
    scale(told, 20)
    told.zone(21, "zone-a", replicas=3)
    told.prepare(22, "zone-a-2", method="DELETE")


def never_ready(told: Chronicle) -> None:
    told.zone(1, "zone-a", replicas=4)
    told.pod(2, "zone-a-3", ready=False)
    told.look(18.5)
    told.review(19.5, "zone-a", told.number + 1)
    told.zone(20, "zone-a", replicas=3, call=told.number + 1)
    ask(told, 20, body={"spec": {"replicas": 3}})


def ready_before_the_look(told: Chronicle) -> None:
    ready_at(told, 18.9)


def ready_after_the_look(told: Chronicle) -> None:
    ready_at(told, 19.1)


def ready_at(told: Chronicle, ready: float) -> None:
    told.zone(1, "zone-a", replicas=4)
    told.pod(2, "zone-a-3", ready=False)
    told.look(18.5)
    told.pod(ready, "zone-a-3")
    told.review(19.5, "zone-a", told.number + 1)
    told.zone(20, "zone-a", replicas=3, call=told.number + 1)
    ask(told, 20, body={"spec": {"replicas": 3}})


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(lambda told: scale(told, 20), [], id="prepared, asked and written"),
        pytest.param(unprepared, ["SI-10"], id="not called"),
        pytest.param(not_confirmed, ["SI-10"], id="it acted, but did not confirm"),
        pytest.param(another_pod_of_that_name, ["SI-21", "SI-10"], id="an older pod of that name"),
        pytest.param(prepared_long_before, ["SI-10"], id="before the request"),
        pytest.param(prepared_for_the_same, [], id="D-24 for the same request, 16 s before"),
        pytest.param(undone_after, ["SI-10", "SI-12"], id="and told that it stays"),
        pytest.param(undone_before, [], id="told that it stays, then prepared"),
        pytest.param(undone_when_wanted_again, [], id="told that it stays once it does"),
        pytest.param(never_ready, [], id="D-26 a pod that was never ready"),
        pytest.param(ready_before_the_look, ["SI-10"], id="ready before the hook looked"),
        pytest.param(ready_after_the_look, [], id="D-26 ready since the hook looked"),
    ],
)
def test_pods_are_prepared_before_they_go(story: Story, broken: list[str]) -> None:
    """SI-10, SI-12: a removed pod has confirmed, for this request, and was told nothing else."""
    assert judge(story) == broken


def test_only_what_is_guarded_is_judged() -> None:
    """SI-10, SI-13: a webhook that may be left out promises nothing, nor does one for others."""
    for policy, broken in (("Fail", ["SI-13"]), ("Ignore", [])):
        told = Chronicle()
        told.hooks(0, "prepare-downscale", policy=policy)
        told.zones(labels=PREPARED, annotations=PATHS)
        told.prepare(19, "zone-a-2")
        told.zone(20, "zone-a", replicas=2, call=1)
        ask(told, 20)
        assert [one.invariant for one in find_violations(told.history).violations] == broken


def test_zones_wait_for_one_another() -> None:
    """SI-11: two zones a minute apart where the group waits two, for whichever zone asks it."""

    def story(gap: float, waits: str) -> list[str]:
        def both(told: Chronicle) -> None:
            told.zone(1, waits, labels={WAIT: "2m"})
            scale(told, 20)
            scale(told, 20 + gap, "zone-b")

        return judge(both)

    assert story(119, "zone-a") == ["SI-11"]
    assert story(119, "zone-c") == ["SI-11"]
    assert story(121, "zone-b") == []


def test_one_zone_need_not_wait_for_itself() -> None:
    """SI-11: only another zone of the same group has to wait."""

    def same(told: Chronicle) -> None:
        told.zone(1, "zone-a", labels={WAIT: "2m"})
        scale(told, 20)
        told.zone(30, "zone-a", replicas=3)
        scale(told, 40)

    def others(told: Chronicle) -> None:
        told.zone(1, "zone-a", labels={WAIT: "2m"})
        told.zone(1, "zone-b", group="store")
        scale(told, 20)
        scale(told, 40, "zone-b")

    assert judge(same) == []
    assert judge(others) == []


def test_a_wait_that_was_just_asked_for_is_not_known_yet() -> None:
    """SI-11: the label came while the second request was on its way."""

    def story(told: Chronicle) -> None:
        scale(told, 20)
        told.zone(38, "zone-c", labels={WAIT: "2m"})
        scale(told, 40, "zone-b")

    assert judge(story) == []


def undone_while_possible(told: Chronicle) -> None:
    told.look(18)
    told.prepare(18.5, "zone-a-2")
    told.review(19, "zone-a", told.number + 1)
    told.prepare(20, "zone-a-2", method="DELETE", acted=False, status=500)
    ask(told, 25, begun=18, status=500)


def undone_after_a_refusal(told: Chronicle) -> None:
    told.look(18)
    told.prepare(18.5, "zone-a-2")
    told.review(19, "zone-a", told.number + 1)
    told.review(20.5, "zone-a", told.number + 1, begun=s(19.5), allowed=False, status=400)
    told.prepare(20, "zone-a-2", method="DELETE")
    told.fault(18, "reset_after")
    ask(told, 25, begun=18, status=400)


def undone_once_it_is_answered(told: Chronicle) -> None:
    told.look(18)
    told.prepare(18.5, "zone-a-2")
    told.review(19, "zone-a", told.number + 1)
    ask(told, 19.5, begun=18, status=409)
    told.prepare(20, "zone-a-2", method="DELETE")


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(undone_while_possible, ["SI-12"], id="the request is still under way"),
        pytest.param(undone_after_a_refusal, [], id="a later review has refused it"),
        pytest.param(undone_once_it_is_answered, [], id="it was answered"),
    ],
)
def test_nobody_is_told_to_stay_who_may_go(story: Story, broken: list[str]) -> None:
    """SI-12: while a request that was allowed may still be written, its pods are left alone."""
    assert judge(story) == broken


def refused_and_written(told: Chronicle) -> None:
    told.look(18.5)
    told.prepare(19, "zone-a-2")
    told.review(19.5, "zone-a", told.number + 1, allowed=False, status=400)
    told.zone(20, "zone-a", replicas=2, call=told.number + 1)
    ask(told, 20)


def allowed_on_a_failed_look(told: Chronicle) -> None:
    told.call(18.5, "list", STATEFULSETS, status=500)
    told.prepare(19, "zone-a-2")
    told.review(19.5, "zone-a", told.number + 1)
    told.zone(20, "zone-a", replicas=2, call=told.number + 1)
    ask(told, 20)


def test_nothing_is_allowed_on_error() -> None:
    """SI-13: what was refused is not written, and what cannot be read is not allowed."""
    assert judge(refused_and_written) == ["SI-13"]
    assert judge(allowed_on_a_failed_look) == ["SI-13"]


@pytest.mark.parametrize(
    ("subresource", "fault", "broken"),
    [
        pytest.param("", "", ["SI-14"], id="the object"),
        pytest.param("scale", "", ["SI-14"], id="its scale"),
        pytest.param(
            "", "server_error", ["SI-14"], id="the object, with trouble: nothing was to be read"
        ),
        pytest.param(
            "scale", "server_error", [], id="D-20 its scale, with trouble: allowed on error"
        ),
        pytest.param("scale", "throttled", ["SI-14"], id="D-20 its scale, throttled by itself"),
        pytest.param("scale", "too_many", ["SI-14"], id="D-20 its scale, throttled by the server"),
        pytest.param("scale", "slow", ["SI-14"], id="D-20 its scale, no time left"),
    ],
)
def test_no_downscale_holds_by_each_route(subresource: str, fault: str, broken: list[str]) -> None:
    """SI-14: what is labelled to keep its pods does, though the label goes in the same write."""

    def story(told: Chronicle) -> None:
        told.review(19.5, "zone-a", told.number + 1, path="/admission/no-downscale")
        if fault:
            told.fault(19.2, fault, "call 9: get statefulsets/zone-a: internal")
        label = {NO_DOWNSCALE: "false"}
        told.zone(20, "zone-a", replicas=2, labels=label, call=told.number + 1)
        ask(told, 20, subresource=subresource)

    assert judge(story, labels={NO_DOWNSCALE: "true"}) == broken


def test_without_its_label_a_set_may_lose_pods() -> None:
    """SI-14: the label went away in an earlier write."""

    def story(told: Chronicle) -> None:
        told.zone(10, "zone-a", labels={NO_DOWNSCALE: "false"})
        told.zone(20, "zone-a", replicas=2, call=told.number + 1)
        ask(told, 20)

    assert judge(story, labels={NO_DOWNSCALE: "true"}) == []


@pytest.mark.parametrize(
    ("call", "broken"),
    [
        pytest.param({}, [], id="as the set says"),
        pytest.param({"path": "ingester/prepare"}, [], id="a slash less"),
        pytest.param({"path": "/ingester/shutdown"}, ["SI-21"], id="another path"),
        pytest.param({"method": "GET"}, ["SI-21"], id="another method"),
        pytest.param({"uid": "foreign"}, ["SI-21"], id="another pod"),
        pytest.param({"actor": "prometheus", "method": "GET"}, [], id="somebody else"),
    ],
)
def test_only_owned_pods_are_called(call: dict[str, Any], broken: list[str]) -> None:
    """SI-21: calls go to pods of sets of the namespace, by the path that the set names."""
    assert judge(lambda told: told.prepare(10, "zone-a-2", **call)) == broken


def test_the_former_path_may_be_called_for_a_while() -> None:
    """SI-21: who was prepared by one path is told to stay by it, or by the one that followed."""

    def story(later: float) -> list[str]:
        def change(told: Chronicle) -> None:
            told.zone(20, "zone-a", annotations={"grafana.com/prepare-downscale-http-path": "x"})
            told.prepare(20 + later, "zone-a-2")

        return judge(change)

    assert story(60) == []
    assert story(121) == ["SI-21"]


def test_a_pod_without_a_set_is_nobody_to_call() -> None:
    """SI-21: a pod that no statefulset owns."""

    def story(told: Chronicle) -> None:
        told.pod(1, "stray-0", owner="somebody")
        told.prepare(10, "stray-0")

    assert judge(story) == ["SI-21"]


def beside_a_short_zone(told: Chronicle, since: float = 4) -> None:
    told.pod(since, "zone-b-1", ready=False)
    scale(told, 20)


def asked_before_it_was_short(told: Chronicle) -> None:
    ask(told, 4, status=409)
    told.pod(6, "zone-b-1", ready=False)
    scale(told, 20)


def whole_again(told: Chronicle) -> None:
    told.pod(4, "zone-b-1", ready=False)
    told.pod(19.9, "zone-b-1")
    scale(told, 20)


def short_itself(told: Chronicle) -> None:
    told.pod(4, "zone-a-1", ready=False)
    scale(told, 20)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(beside_a_short_zone, ["SI-02"], id="a pod has not been ready for long"),
        pytest.param(lambda told: beside_a_short_zone(told, 14), [], id="for 4 s when asked"),
        pytest.param(asked_before_it_was_short, [], id="since the same was asked for before"),
        pytest.param(whole_again, [], id="it is ready again"),
        pytest.param(short_itself, [], id="it is a pod of the zone itself"),
    ],
)
def test_no_zone_loses_pods_while_another_is_short(story: Story, broken: list[str]) -> None:
    """SI-02, PREP-19: of other zones, what has lasted for 5 s when the request arrives."""
    assert judge(story) == broken
