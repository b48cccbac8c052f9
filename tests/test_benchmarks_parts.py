"""What benchmarks print, serve and call, and how they count it (D-53, D-64)."""

import asyncio
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.evicting import measure_storm, read_cpu
from benchmarks.figures import Figure, Result, percentile, render_explanation, render_line
from benchmarks.hooks import FIRST, GUARDED, falling
from benchmarks.load import (
    NoAnswerError,
    Tally,
    measure_handshakes,
    measure_pace,
    measure_saturation,
)
from benchmarks.objects import NAMESPACE, Place, encode_budget, encode_pod, encode_set, list_places
from benchmarks.plans import make_group
from benchmarks.prepare import count_in_flight
from benchmarks.questions import NO_DOWNSCALE_PATH, REFUSED, Kind, make_eviction, make_review
from benchmarks.server import Feed, Spec, World
from benchmarks.tasks import Load, Task
from rollout_operator.kube.store import decides
from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.custom import decode_budget
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.scaling import Scalable
from rollout_operator.planning.rollout import plan_group
from tests.world.pki import make_pki
from tests.world.webpods import PodCall

Json = dict[str, Any]
Figures = Mapping[str, float]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


# What is printed


def test_a_missed_target_is_a_field_and_no_failure() -> None:
    figures = [
        Figure(name="wait_ms", value=12.34567, means="how long", at_most=10),
        Figure(name="ratio", value=1.0001, means="how much", at_most=1.15),
        Figure(name="slow_per_s", value=10, means="how fast", at_least=20),
        Figure(name="events", value=123456.7, means="how many"),
    ]
    result = Result(benchmark="sample", setting={"pods": 5}, figures=figures, machine={"cpus": 2})

    assert msgspec.json.decode(render_line(result)) == {
        "benchmark": "sample",
        "setting": {"pods": 5},
        "figures": {"wait_ms": 12.35, "ratio": 1.0, "slow_per_s": 10, "events": 123457.0},
        "targets": {
            "wait_ms": {"at_most": 10, "met": False},
            "ratio": {"at_most": 1.15, "met": True},
            "slow_per_s": {"at_least": 20, "met": False},
        },
        "machine": {"cpus": 2},
    }
    assert render_explanation(result).splitlines() == [
        "sample",
        "  wait_ms = 12.35  (target: at most 10; MISSED)",
        "      how long",
        "  ratio = 1  (target: at most 1.15; met)",
        "      how much",
        "  slow_per_s = 10  (target: at least 20; MISSED)",
        "      how fast",
        "  events = 123457",
        "      how many",
    ]


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(1, 0.99, 1), (100, 0.99, 99), (200, 0.99, 198), (10, 0, 1)]
)
def test_a_percentile_is_one_of_the_values(count: int, share: float, expected: float) -> None:
    values = [float(number) for number in range(1, count + 1)]
    random.Random(1).shuffle(values)

    assert percentile(values, share) == expected
    with pytest.raises(ValueError, match="no values"):
        percentile([], share)


# What is served and called


@pytest.mark.parametrize("pods", [1, 6, 50, 200, 5_000])
def test_pods_are_spread_over_whole_groups(pods: int) -> None:
    sets = list_places(pods)
    sizes = [len(places) for places in sets]

    assert sum(sizes) == pods
    assert len(sets) % 3 == 0
    assert max(sizes) - min(sizes) <= 1
    assert len({place.pod_uid for places in sets for place in places}) == pods


def test_objects_are_as_large_as_they_are_in_clusters() -> None:
    """D-51, D-53: pods of 10 kB, StatefulSets of 21.6; smaller ones make figures better."""
    place = Place(group=1, zone="b", ordinal=2)
    sizes = {
        "pod": (encode_pod(place), 9_500, 10_500),
        "set": (falling(Kind.OBJECT, NO_DOWNSCALE_PATH, (17, 16)), 21_000, 22_500),
        "scale": (falling(Kind.SCALE, NO_DOWNSCALE_PATH, (17, 16)), 1_600, 2_100),
        "eviction": (make_eviction(place), 1_000, 1_900),
    }

    for name, (content, least, most) in sizes.items():
        head, _, body = content.partition(b"\r\n\r\n")
        assert least <= len(body or content) <= most, name
        assert not body or f"Content-Length: {len(body)}".encode() in head
    assert b"managedFields" in sizes["pod"][0]
    pod = decode_pod(encode_pod(place))
    assert (pod.name, pod.owner_uid, pod.is_ready) == ("store-1-zone-b-2", place.set_uid, True)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_review_is_about_the_set_that_is_served(kind: Kind) -> None:
    """D-20: the version and UID of the cached set, else the operator would have to read it."""
    served = decode_statefulset(encode_set(FIRST, 17, GUARDED.labels))
    review = decode_review(msgspec.json.encode(make_review(kind, (17, 16), FIRST, GUARDED)))

    assert isinstance(review.old, Scalable)
    assert isinstance(review.new, Scalable)
    assert (review.old.replicas, review.new.replicas) == (served.replicas, 16)
    assert (review.namespace, review.name) == (NAMESPACE, served.name)
    assert (review.old.uid, review.old.resource_version) == (served.uid, served.resource_version)
    assert review.subresource == ("scale" if kind is Kind.SCALE else "")
    assert review.dry_run is False


def test_the_served_world_is_at_rest_until_pods_are_outdated() -> None:
    """Memory and CPU of an idle operator are measured: nothing may be due."""
    assert plan_group(make_group(3, outdated=0)).actions == ()
    assert len(plan_group(make_group(100, outdated=51)).actions) == 1


def test_the_budget_selects_the_pods_of_its_group() -> None:
    """ZPDB-01: of its own group and of no other."""
    budget = decode_budget(encode_budget(1))
    assert isinstance(budget, Budget)
    for group, is_selected in ((1, True), (0, False)):
        labels = dict(decode_pod(encode_pod(Place(group=group, zone="a"))).labels)
        assert (dict(budget.selector).items() <= labels.items()) is is_selected


@pytest.mark.parametrize(("feed", "expected"), [(Feed.DECIDING, True), (Feed.OTHER, False)])
async def test_events_decide_or_do_not(feed: Feed, expected: bool) -> None:
    """Each event is news to a cache that has seen those before it; then one pod goes."""
    world = World(Spec(port=0, cert="", key="", pods=7, feed=feed, events=20))
    items, token = [], "0"
    while token:  # in pages, all pods once
        page = msgspec.json.decode(world.page("pods", int(token), 3))
        items += page["items"]
        token = page["metadata"].get("continue", "")
    pods = {pod.name: pod for pod in (decode_pod(msgspec.json.encode(item)) for item in items)}
    assert len(items) == len(pods) == 7
    *changes, end = [msgspec.json.decode(line) async for line in world.feed()]
    versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in (*changes, end)]

    assert versions == sorted({*versions})
    for line in changes:
        pod = decode_pod(msgspec.json.encode(line["object"]))
        assert line["type"] == "MODIFIED"
        assert decides(pods[pod.name], pod) is expected
        pods[pod.name] = pod
    assert (len(changes), end["type"]) == (20, "DELETED")


# How it is called


@contextmanager
def serving(folder: Path, answer: bytes = ANSWER, *, after: float = 0.0) -> Iterator[Load]:
    """Run a TLS server that answers one connection after the other, each request after a while."""
    folder.mkdir(exist_ok=True)
    pki = make_pki(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.cert, pki.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, context, answer, after))
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield _load(port)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _load(port: int) -> Load:
    return Load(
        port=port,
        pid=os.getpid(),
        request=b"x" * 100,
        expected=b"fine",
        connections=1,
        warm_up_s=0.0,
        count=3,
        seconds=0.1,
    )


def _serve(listening: socket.socket, context: ssl.SSLContext, answer: bytes, after: float) -> None:
    while True:
        try:
            plain, _ = listening.accept()
        except OSError:
            return
        with context.wrap_socket(plain, server_side=True) as line:
            while answer and line.recv(1 << 16):
                time.sleep(after)
                # In two records: an answer is over when all of it is there.
                line.sendall(answer[:20])
                line.sendall(answer[20:])


Measure = Callable[[Task], Coroutine[None, None, Figures]]


def send_request(measure: Measure, load: Load) -> Figures:
    """Return what a way of calling measures."""
    return asyncio.run(measure(Task(load=load)))


def test_right_answers_are_counted_and_others_are_not(tmp_path: Path) -> None:
    """D-53: neither a wrong answer nor a connection that fails may count as a fast answer."""
    with serving(tmp_path / "right") as load:
        right = send_request(measure_saturation, load)
    with serving(tmp_path / "wrong", ANSWER.replace(b"fine", b"ouch")) as load:
        wrong = send_request(measure_handshakes, load)
    refused = send_request(measure_handshakes, load)

    assert (right["right"], right["count"] > 1, right["cpu_us"] > 0) == (1, True, True)
    assert (wrong["count"], wrong["right"]) == (3, 0)
    assert (refused["count"], refused["failed"], refused["right"]) == (0, 3, 0)
    tally = Tally(REFUSED)
    for status in (b"200 OK", b"429 Too Many Requests"):
        tally.record(time.perf_counter(), b"HTTP/1.1 " + status + b"\r\n\r\n" + REFUSED)
    assert tally.summary()["right"] == 0.5


def test_a_request_that_waits_for_its_turn_takes_that_long(tmp_path: Path) -> None:
    """An open loop: a server of 20 answers a second is called 100 times a second.

    Counted from when a request is sent, each would take 50 ms.
    """
    with serving(tmp_path, after=0.05) as load:
        measured = send_request(measure_pace, replace(load, seconds=0.2, per_s=100.0))

    assert (measured["count"], measured["right"]) == (20, 1)
    assert measured["max_ms"] > 500


@pytest.mark.parametrize("measure", [measure_saturation, measure_pace])
def test_a_server_that_hangs_up_spoils_the_measurement(tmp_path: Path, measure: Measure) -> None:
    with serving(tmp_path, b"") as load, pytest.raises(NoAnswerError, match="closed"):
        send_request(measure, load)


def test_evictions_without_a_task_are_an_error() -> None:
    with pytest.raises(ValueError, match="storm: not set"):
        asyncio.run(measure_storm(Task()))


def test_time_of_all_threads_is_counted() -> None:
    """The API server works in many threads, and the main one does little."""
    before = read_cpu(os.getpid())

    def burn() -> None:
        while read_cpu(os.getpid()) < before + 0.05:
            sum(range(10_000))

    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()

    assert read_cpu(os.getpid()) >= before + 0.05


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 0),
        ([(0, 1), (1, 2), (2, 3)], 1),
        ([(0, 2), (1, 3), (2.5, 4)], 2),
        ([(0, None), (1, None), (2, 3)], 3),
    ],
)
def test_calls_at_a_time_are_counted(
    spans: list[tuple[float, float | None]], expected: int
) -> None:
    """PREP-20: one that ends in the moment in which the next begins makes room for it."""
    about: Json = {
        "wall": datetime.now(UTC),
        "pod": "store-0",
        "uid": "u",
        "address": "127.0.0.1",
        "method": "POST",
        "path": "/",
        "headers": {},
    }
    assert count_in_flight([PodCall(at=at, done_at=end, **about) for at, end in spans]) == expected
