"""The benchmarks of evictions run, and count what they say they count (D-55, D-64).

Sizes are tiny here: whether a figure is good is told by `python -m benchmarks`, not by a test.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import msgspec
import pytest

from benchmarks.__main__ import main
from benchmarks.evicting import make_request, measure_storm, read_cpu, summarize
from benchmarks.evictions_drain import Run as Drained
from benchmarks.evictions_drain import describe as describe_drain
from benchmarks.evictions_drain import read_drain
from benchmarks.evictions_storm import Run as Stormed
from benchmarks.evictions_storm import describe as describe_storm
from benchmarks.objects import NAMESPACE, Place, encode_budget, encode_pod, encode_set
from benchmarks.questions import make_eviction, make_eviction_review
from benchmarks.server import Spec, Traits, World
from benchmarks.tasks import Storm, Task
from benchmarks.timeline import Rollout
from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.review import decode_review

Json = dict[str, Any]
Figures = Mapping[str, float]
BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ZONES = ("zone-a", "zone-b")


# Running them


def run(name: str) -> tuple[Figures, Mapping[str, Mapping[str, float]]]:
    """Return figures and targets of a tiny run."""
    lines: list[str] = []
    assert main([name, "--small"], lines.append) == 0
    (line,) = lines
    printed = msgspec.json.decode(line)
    assert printed["benchmark"] == name
    return printed["figures"], printed["targets"]


@pytest.mark.slow
def test_evictions_are_decided_and_counted() -> None:
    """D-55: refused under a budget, with few and with many pods around, and out of scope."""
    figures, targets = run("evictions")

    for kind in ("refused", "unselected"):
        assert figures[f"{kind}_right"] == 1
        assert figures[f"{kind}_cpu_us"] > 0
        assert targets[f"{kind}_cpu_us"]["at_most"] == 1_000
        assert targets[f"{kind}_per_s"]["at_least"] == 300
    assert figures["many_right"] == 1
    assert figures["bare_cpu_us"] > 0
    assert targets["growth"]["at_most"] < 1.5


@pytest.mark.controlplane
def test_a_storm_is_answered_by_an_api_server() -> None:
    """D-55: every answer is a verdict or a retryable refusal."""
    figures, targets = run("evictions_storm")

    assert figures["allowed"] >= 1
    assert figures["others"] == 0
    assert figures["allowed"] + figures["refused"] + figures["absent"] == 40
    assert 0 < figures["share_of_server"] < 1
    assert targets["per_s"]["at_least"] == 300
    assert targets["p99_ms"]["at_most"] == 1_000
    assert targets["violations"]["at_most"] == 0


@pytest.mark.controlplane
def test_a_drain_is_measured_from_the_audit_log() -> None:
    figures, targets = run("evictions_drain")

    assert figures["evicted"] == 3
    assert figures["asked_per_pod"] >= 1
    assert figures["wall_s"] >= figures["floor_s"] > 0
    assert figures["zones_short"] == 1
    assert figures["unexpected"] == figures["violations"] == 0
    assert targets["ratio"]["at_most"] == 1.15


# What is asked


def test_the_review_is_of_a_pod_that_is_served() -> None:
    review = decode_review(msgspec.json.encode(make_eviction_review(Place(group=1, zone="b"))))

    assert (review.namespace, review.name) == (NAMESPACE, "store-1-zone-b-0")
    assert review.operation == "CREATE"
    assert review.subresource == "eviction"
    assert review.dry_run is False


def test_the_request_is_whole() -> None:
    head, _, body = make_eviction(Place(group=0, zone="a")).partition(b"\r\n\r\n")

    assert head.startswith(b"POST /admission/pod-eviction?timeout=10s HTTP/1.1\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert 1_000 <= len(body) <= 1_600


def test_the_budget_selects_the_pods_and_sets_of_its_group() -> None:
    """ZPDB-01: of its own group and of no other."""
    budget = decode_budget(encode_budget(1))
    assert isinstance(budget, Budget)
    assert budget.max_unavailable == 1
    for group, is_selected in ((1, True), (0, False)):
        place = Place(group=group, zone="a")
        for one in (decode_pod(encode_pod(place)), decode_statefulset(encode_set(place, 3))):
            assert (dict(budget.selector).items() <= dict(one.labels).items()) is is_selected


def test_the_server_shows_budgets_and_who_is_unready() -> None:
    traits = Traits(zone_pods=2, budgeted=(0,), unready=("store-0-zone-c-1",))
    world = World(Spec(port=1, cert="", key="", pods=12, traits=traits))

    listed = msgspec.json.decode(world.page("zoneawarepoddisruptionbudgets", 0, 500))
    pods = msgspec.json.decode(world.page("pods", 0, 500))["items"]

    assert [one["metadata"]["name"] for one in listed["items"]] == ["store-0"]
    assert len(pods) == 12
    unready = [pod for pod in map(decode_pod, map(msgspec.json.encode, pods)) if not pod.is_ready]
    assert [pod.name for pod in unready] == ["store-0-zone-c-1"]


# A storm


def test_answers_are_summed_up() -> None:
    answers = [(0.1, 201), (0.2, 429), (0.3, 429), (0.4, 404), (0.5, 500)]

    assert summarize(answers, wall=2.0) == {
        "count": 5,
        "per_s": 2.5,
        "p50_ms": pytest.approx(300),
        "p99_ms": pytest.approx(500),
        "max_ms": pytest.approx(500),
        "allowed": 1,
        "refused": 2,
        "absent": 1,
        "others": 1,
    }


STORM = Storm(port=1, token="t", namespace="n", pods=("a-0", "b-0"), count=5)


def test_an_eviction_is_a_request_of_its_pod() -> None:
    head, _, body = make_request(STORM, "b-0").partition(b"\r\n\r\n")

    assert head.startswith(b"POST /api/v1/namespaces/n/pods/b-0/eviction HTTP/1.1\r\n")
    assert b"Authorization: Bearer t" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert msgspec.json.decode(body)["metadata"] == {"name": "b-0", "namespace": "n"}


def test_a_storm_needs_somebody_to_ask() -> None:
    with pytest.raises(ValueError, match="storm: not set"):
        asyncio.run(measure_storm(Task()))


def test_time_of_all_threads_is_counted() -> None:
    """The API server works in many threads, and the main one does little."""
    before = read_cpu(os.getpid())
    left, right = socket.socketpair()

    def burn() -> None:
        while read_cpu(os.getpid()) < before + 0.05:
            sum(range(10_000))
        right.send(b"x")

    thread = Thread(target=burn)
    thread.start()
    assert left.recv(1) == b"x"
    thread.join()
    left.close()
    right.close()

    assert read_cpu(os.getpid()) >= before + 0.05


def test_what_a_storm_cost_is_divided_among_its_evictions() -> None:
    answers = summarize([(0.1, 201), (0.1, 429), (0.1, 429), (0.1, 404)], wall=1.0)
    figures = {
        each.name: each.value
        for each in describe_storm(
            Stormed(answers=answers, operator=0.004, starved=0.0, server=0.012, violations=2)
        )
    }

    assert figures["cpu_us"] == pytest.approx(1_000)
    assert figures["server_cpu_us"] == pytest.approx(3_000)
    assert figures["share_of_server"] == pytest.approx(0.75)
    assert (figures["allowed"], figures["refused"], figures["violations"]) == (1, 2, 2)


# A drain


def entry(at: float, took: float, verb: str, name: str, **more: Any) -> Json:
    """Return an entry of the audit log; `at` and `took` in seconds."""
    received = BEGIN + timedelta(seconds=at)
    return {
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": received.isoformat(),
        "stageTimestamp": (received + timedelta(seconds=took)).isoformat(),
        "verb": verb,
        "user": {"username": "someone"},
        "objectRef": {"resource": "pods", "name": name},
        "responseStatus": {"code": 200},
        **more,
    }


def evicted(at: float, pod: str, code: int = 201) -> Json:
    target = {"resource": "pods", "name": pod, "subresource": "eviction"}
    return entry(at, 0.5, "create", pod, objectRef=target, responseStatus={"code": code})


def counted(at: float, zone: str, ready: int) -> Json:
    """Return the entry of a set's status: so many of its two pods are ready."""
    target = {"resource": "statefulsets", "name": zone, "subresource": "status"}
    body = {"spec": {"replicas": 2}, "status": {"readyReplicas": ready}}
    return entry(at, 0, "update", zone, objectRef=target, requestObject=body)


def back(at: float, pod: str) -> list[Json]:
    """Return what tells that a pod was away and is back: its own status and that of its set."""
    zone = pod.rpartition("-")[0]
    target = {"resource": "pods", "name": pod, "subresource": "status"}
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    return [
        counted(at - 1, zone, 1),
        entry(at, 0, "patch", pod, objectRef=target, requestObject=body),
        counted(at + 0.1, zone, 2),
    ]


def read(entries: Sequence[Json], limit: int = 1) -> Rollout:
    return read_drain(entries, ZONES, limit)


def test_restarts_begin_with_the_answer_to_an_eviction() -> None:
    """What was refused is no restart; the time until an answer is the operator's."""
    drain = read(
        [
            evicted(0, "zone-a-0"),
            evicted(0.1, "zone-b-0", code=429),
            *back(3.4, "zone-a-0"),
            evicted(4, "zone-b-0"),
            *back(6.4, "zone-b-0"),
        ]
    )

    assert [round(each.span, 3) for each in drain.restarts] == [3.0, 2.0]
    assert round(drain.floor, 3) == 5.0
    assert (drain.zones_short, drain.pods_down) == (1, 1)


def test_two_zones_at_once_are_seen() -> None:
    drain = read([evicted(0, "zone-a-0"), evicted(1, "zone-b-0"), *back(3, "zone-a-0")])

    assert drain.zones_short == 2


def test_a_drain_is_told_by_its_floor() -> None:
    entries = [evicted(0, "zone-a-0"), *back(3.4, "zone-a-0")]
    run = Drained(
        rollout=read(entries),
        began=(BEGIN - timedelta(seconds=3)).timestamp(),
        asked=4,
        unexpected=0,
        cpu=0.02,
        violations=0,
    )
    figures = {each.name: each.value for each in describe_drain(run)}

    assert figures["wall_s"] == pytest.approx(6.5)
    assert figures["floor_s"] == pytest.approx(3.0)
    assert figures["ratio"] == pytest.approx(6.5 / 3)
    assert figures["asked_per_pod"] == 4
    assert figures["cpu_ms_per_pod"] == pytest.approx(20)
