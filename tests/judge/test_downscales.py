"""Downscales and their reviews: histories that break a promise, and that nearly do."""

from typing import Any

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.model.names import DOWNSCALE_RECORD, LAST_DOWNSCALE, NO_DOWNSCALE
from tests.judge.builder import (
    OPERATOR,
    PATHS,
    PERSON,
    PREPARED,
    WAIT,
    Events,
    HistoryBuilder,
    cases,
    list_broken,
    s,
)

PATH_KEY = "grafana.com/prepare-downscale-http-path"


def judge(events: Events, **zones: Any) -> list[str]:
    """Return what events in a guarded group break."""
    history = HistoryBuilder().hooks(0, "prepare-downscale", "no-downscale")
    history.zones(**{"labels": PREPARED, "annotations": PATHS, **zones})
    events(history)
    return list(list_broken(history))


def unprepared(t: HistoryBuilder) -> HistoryBuilder:
    return t.live_read(18.5).review(19.5, "a").persist(20)


def ready_at(ready: float | None) -> Events:
    """Add a pod that is ready from a time on, and remove it at 20 s, on a read at 19."""

    def events(t: HistoryBuilder) -> None:
        t.zone(1, "a", replicas=4).pod(2, "a-3", ready=False).live_read(18.5)
        if ready is not None:
            t.pod(ready, "a-3")
        t.review(19.5, "a").persist(20, "a", 3)

    return events


PREPARATIONS = cases(
    {
        "prepared, requested and written": lambda t: t.scale(20),
        "not called -> SI-10": unprepared,
        "it acted, but did not confirm -> SI-10": lambda t: unprepared(
            t.prepare(18.9, "a-2", status=0)
        ),
        "an older pod of that name -> SI-21 SI-10": lambda t: unprepared(
            t.prepare(18.9, "a-2", uid="older")
        ),
        "and told that it stays -> SI-10 SI-12": lambda t: t.scale(20).prepare(
            21, "a-2", method="DELETE"
        ),
        "told that it stays, then prepared": lambda t: t.prepare(17, "a-2", method="DELETE").scale(
            20
        ),
        "ready before the hook read -> SI-10": ready_at(18.9),
        "D-26 ready since the hook read": ready_at(19.1),
    }
)


@pytest.mark.parametrize(("events", "broken"), PREPARATIONS)
def test_pods_are_prepared_before_they_go(events: Events, broken: list[str]) -> None:
    """SI-10, SI-12: a removed pod has confirmed, for this request, and was not un-prepared."""
    assert judge(events) == broken


@pytest.mark.parametrize(("policy", "broken"), [("Fail", ["SI-13"]), ("Ignore", [])])
def test_only_what_is_guarded_is_judged(policy: str, broken: list[str]) -> None:
    """SI-10, SI-13: a webhook that may be left out promises nothing, nor does one for others."""
    t = HistoryBuilder().hooks(0, "prepare-downscale", policy=policy)
    t.zones(labels=PREPARED, annotations=PATHS).prepare(19, "a-2")
    assert list_broken(t.zone(20, "a", replicas=2, call=1).send_request(20)) == broken


def wait(name: str, at: float = 1) -> Events:
    return lambda t: t.zone(at, name, labels={WAIT: "2m"})


def both_scaled(gap: float, *before: Events) -> Events:
    """Scale two zones, so many seconds apart."""

    def events(t: HistoryBuilder) -> None:
        for each in before:
            each(t)
        t.scale(20).scale(20 + gap, "b")

    return events


def one_scaled_twice(t: HistoryBuilder) -> None:
    t.zone(1, "a", labels={WAIT: "2m"}).scale(20).zone(30, "a", replicas=3).scale(40)


WAITS = cases(
    {
        "119 s, the earlier one waits -> SI-11": both_scaled(119, wait("a")),
        "119 s, a third one waits -> SI-11": both_scaled(119, wait("c")),
        "121 s": both_scaled(121, wait("b")),
        "one zone need not wait for itself": one_scaled_twice,
    }
)


@pytest.mark.parametrize(("events", "broken"), WAITS)
def test_zones_wait_for_one_another(events: Events, broken: list[str]) -> None:
    """SI-11: where the group waits two minutes, whichever zone requests it."""
    assert judge(events) == broken


def granted(t: HistoryBuilder) -> HistoryBuilder:
    return t.live_read(18).prepare(18.5, "a-2").review(19, "a")


def refused_later(t: HistoryBuilder) -> None:
    granted(t).review(20.5, "a", begun=s(19.5), allowed=False, status=400)
    t.prepare(20, "a-2", method="DELETE").fault(18, "reset_after").send_request(
        25, begun=18, status=400
    )


def refused_and_written(t: HistoryBuilder) -> None:
    t.live_read(18.5).prepare(19, "a-2").review(19.5, "a", allowed=False, status=400).persist(20)


def allowed_on_a_failed_read(t: HistoryBuilder) -> None:
    t.call(18.5, "list", STATEFULSETS, status=500).prepare(19, "a-2")
    t.review(19.5, "a").persist(20)


def beside_a_short_zone(since: float, until: float | None = None) -> Events:
    """Scale zone-a while another is short."""

    def events(t: HistoryBuilder) -> None:
        t.pod(since, "b-1", ready=False)
        if until is not None:
            t.pod(until, "b-1")
        t.scale(20)

    return events


VERDICTS = cases(
    {
        "SI-12 the request is still under way -> SI-12": lambda t: (
            granted(t)
            .prepare(20, "a-2", method="DELETE", acted=False, status=500)
            .send_request(25, begun=18, status=500)
        ),
        "SI-12 a later review has refused it": refused_later,
        "SI-13 refused, and written -> SI-13": refused_and_written,
        "SI-13 allowed on a read that failed -> SI-13": allowed_on_a_failed_read,
        "SI-02 PREP-19 another zone has been short for long -> SI-02": beside_a_short_zone(4),
        "SI-02 for 4 s when requested": beside_a_short_zone(14),
    }
)


@pytest.mark.parametrize(("events", "broken"), VERDICTS)
def test_what_may_be_written_is_judged(events: Events, broken: list[str]) -> None:
    """SI-02, SI-12, SI-13: on errors nothing is allowed, and what may still be written counts."""
    assert judge(events) == broken


@pytest.mark.parametrize(
    ("subresource", "fault", "broken"),
    [
        pytest.param("", "", ["SI-14"], id="the object"),
        pytest.param("scale", "", ["SI-14"], id="its scale"),
        pytest.param("scale", "server_error", [], id="D-20 its scale: allowed on error"),
        pytest.param("scale", "throttled", ["SI-14"], id="D-20 its scale, throttled by itself"),
    ],
)
def test_no_downscale_holds_by_each_route(subresource: str, fault: str, broken: list[str]) -> None:
    """SI-14: what is labelled to keep its pods does, though the label goes in the same write."""

    def events(t: HistoryBuilder) -> None:
        t.review(19.5, "a", path="/admission/no-downscale")
        if fault:
            t.fault(19.2, fault, "call 9: get statefulsets/zone-a: internal")
        t.zone(20, "a", replicas=2, labels={NO_DOWNSCALE: "false"}, call=t.number + 1)
        t.send_request(20, subresource=subresource)

    assert judge(events, labels={NO_DOWNSCALE: "true"}) == broken


def test_without_its_label_a_set_may_lose_pods() -> None:
    """SI-14: the label went away in an earlier write."""
    unlabelled: Events = lambda t: t.zone(10, "a", labels={NO_DOWNSCALE: "false"}).persist(20)  # noqa: E731 (a case like others)
    assert judge(unlabelled, labels={NO_DOWNSCALE: "true"}) == []


def path_changed(later: float) -> Events:
    return lambda t: t.zone(20, "a", annotations={PATH_KEY: "x"}).prepare(20 + later, "a-2")


TARGETS = cases(
    {
        "as the set says": lambda t: t.prepare(10, "a-2"),
        "another path -> SI-21": lambda t: t.prepare(10, "a-2", path="/ingester/shutdown"),
        "another method -> SI-21": lambda t: t.prepare(10, "a-2", method="GET"),
        "another pod -> SI-21": lambda t: t.prepare(10, "a-2", uid="foreign"),
        "another set": lambda t: t.prepare(10, "a-2", actor="prometheus", method="GET"),
        "the former path, after a minute": path_changed(60),
        "the former path, after two -> SI-21": path_changed(121),
        "a pod that no statefulset owns -> SI-21": lambda t: t.pod(
            1, "stray-0", owner="another-set"
        ).prepare(10, "stray-0"),
    }
)


@pytest.mark.parametrize(("events", "broken"), TARGETS)
def test_only_owned_pods_are_called(events: Events, broken: list[str]) -> None:
    """SI-21: calls go to pods of sets of the namespace, by the path that the set names."""
    assert judge(events) == broken


def record(t: HistoryBuilder, at: float) -> HistoryBuilder:
    body = {"metadata": {"annotations": {DOWNSCALE_RECORD: "{}"}}}
    return t.call(at, "patch", PODS, "a-2", body=body)


def dry(t: HistoryBuilder) -> HistoryBuilder:
    return t.review(19.5, "a", dry_run=True).send_request(20, query={"dryRun": "All"})


def requested_twice(t: HistoryBuilder, status: int = 429) -> None:
    t.live_read(18).review(19, "a").review(19.6, "a", begun=s(19.1), allowed=False, status=status)
    t.send_request(20, status=400)


def called_twice(t: HistoryBuilder, **between: Any) -> None:
    t.live_read(18).prepare(18.8, "a-2")
    if between:
        t.prepare(19.1, "a-2", **between)
    t.prepare(19.3, "a-2").review(19.6, "a", begun=s(18.5)).send_request(20, status=400)


REVIEWS = cases(
    {
        "SI-15 a pod was called for a dry run -> SI-15": lambda t: dry(t.prepare(19.2, "a-2")),
        "SI-15 a record was written for it -> SI-15": lambda t: dry(record(t, 19.2)),
        "SI-15 for a real one at the same time": lambda t: dry(
            t.review(19.4, "a", 99).prepare(19.2, "a-2")
        ),
        "SI-15 it was written -> SI-15": lambda t: t.zone(
            20, "a", limit="2", call=t.number + 1
        ).send_request(20, query={"dryRun": "All"}),
        "SI-16 allowed, then refused -> SI-16": requested_twice,
        "SI-16 called twice for one write -> SI-16": called_twice,
        "SI-16 told in between that it stays": lambda t: called_twice(t, method="DELETE"),
        "SI-16 by two processes, one after the other": lambda t: called_twice(
            t.lived(19.05, "crashed").lived(19.1, "started")
        ),
    }
)


@pytest.mark.parametrize(("events", "broken"), REVIEWS)
def test_reviews_leave_no_trace_and_act_once(events: Events, broken: list[str]) -> None:
    """SI-15: a dry run calls no pod and writes nothing. SI-16: the same question, one effect."""
    assert judge(events) == broken


def stamp(t: HistoryBuilder, at: float, second: int, actor: str = OPERATOR) -> HistoryBuilder:
    """Record a downscale at a second after the world began."""
    text = f"2026-01-02T03:04:{5 + second:02}Z"
    return t.zone(at, "a", annotations={LAST_DOWNSCALE: text}, actor=actor)


def recorded(*seconds: int) -> Events:
    """Scale down at 20 s, and record these times for it, one second after the other."""

    def events(t: HistoryBuilder) -> None:
        t.scale(20)
        for place, second in enumerate(seconds):
            stamp(t, 21 + place, second)

    return events


def stamped(t: HistoryBuilder, second: int = 20) -> HistoryBuilder:
    """Scale down at 20 s; the answer itself records a time."""
    text = f"2026-01-02T03:04:{5 + second:02}Z"
    return t.scale(20, annotations={LAST_DOWNSCALE: text})


def behind(at: float) -> Events:
    """Have an event held back at a time, and the downscale that follows be seen late."""
    text = "event 2 of statefulsets: MODIFIED zone-a"
    return lambda t: stamp(stamped(t.fault(at, "delay_event", text), 21), 21.5, 22)


STAMPS = cases(
    {
        "once": recorded(20),
        "another time -> SI-16": recorded(20, 21),
        "SI-11 a later one: it was written later than the answer says": recorded(15, 21),
        "D-23 what the answer has recorded -> SI-16": lambda t: stamp(stamped(t), 21, 21),
        "D-23 changed by a person": lambda t: stamp(stamped(t), 21, 59, PERSON),
        "seen late by a second": lambda t: stamp(
            stamped(t, 21).fault(20.1, "delay_event", "event 3 of statefulsets: MODIFIED zone-a"),
            22,
            22,
        ),
        "seen late behind one of long ago -> SI-16": behind(2),
    }
)


@pytest.mark.parametrize(("events", "broken"), STAMPS)
def test_a_downscale_is_recorded_once(events: Events, broken: list[str]) -> None:
    """SI-16: one downscale, one record, but for one correction to a later time."""
    assert judge(events) == broken
