"""The benchmarks of the webhooks run, and ask and count what they say they do (D-53, D-64).

Sizes are tiny here: whether a figure is good is told by `python -m benchmarks`, not by a test.
"""

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.__main__ import main
from benchmarks.figures import Figure, Result, render_explanation, render_line
from benchmarks.hooks import FIRST, GUARDED, falling
from benchmarks.load import (
    NoAnswerError,
    Tally,
    measure_handshakes,
    measure_pace,
    measure_saturation,
)
from benchmarks.objects import NAMESPACE, OBJECT_VERSION, Json, Place, encode_set, list_places
from benchmarks.prepare import count_in_flight
from benchmarks.processes import open_server
from benchmarks.questions import NO_DOWNSCALE_PATH, REFUSED, Kind, make_review
from benchmarks.server import Spec, Traits, World
from benchmarks.single import selects
from benchmarks.tasks import Load, Task
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import NO_DOWNSCALE
from rollout_operator.model.review import Scalable
from tests.world.pki import make_pki
from tests.world.webpods import PodCall

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
Figures = Mapping[str, float]


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
def test_reviews_are_asked_and_all_refused() -> None:
    """D-53: both kinds, saturated and at a pace, against a bare server; the API is not asked."""
    figures, targets = run("reviews")

    for kind, cpu in (("object", 160), ("scale", 110)):
        assert targets[f"{kind}_cpu_us"]["at_most"] == cpu
        assert targets[f"{kind}_per_s"]["at_least"] == 2_500
        assert targets[f"{kind}_share_of_bare"]["at_least"] == 0.25
        assert targets[f"{kind}_paced_p99_ms"]["at_most"] == 5
        assert figures[f"{kind}_right"] == figures[f"{kind}_paced_right"] == 1
        assert figures[f"{kind}_paced_api_reads"] == 0
        assert figures[f"{kind}_cpu_us"] > 0
        assert figures[f"{kind}_bare_cpu_us"] > 0


@pytest.mark.slow
def test_connections_are_opened_and_answered() -> None:
    """D-50, D-53: silent ones, with and without a handshake, and new ones that ask."""
    figures, targets = run("connections")

    assert figures["plain_opened"] == figures["greeted_opened"] == 40
    assert figures["plain_right"] == figures["greeted_right"] == figures["new_right"] == 1
    assert figures["plain_asked"] >= 20
    assert targets["greeted_growth_mib"]["at_most"] == 64
    assert targets["new_cpu_us"]["at_most"] == 1_500
    assert targets["new_per_s"]["at_least"] == 500


@pytest.mark.slow
def test_hostile_bodies_are_sent_and_answered() -> None:
    """D-50, D-68: memory and stalls of the operator, and what honest reviews feel."""
    figures, targets = run("hostile")

    assert figures["answered"] == figures["small_right"] == 1
    assert figures["small_slower"] > 0
    assert figures["growth_mib"] < targets["growth_mib"]["at_most"] == 64
    assert targets["stall_ms"]["at_most"] == 250


@pytest.mark.slow
def test_pods_are_prepared_and_counted() -> None:
    """PREP-20: each pod that goes is called once; what is asked of the API server is told."""
    figures, targets = run("prepare")

    assert figures["allowed"] == 1
    assert figures["calls_per_pod_least"] == figures["calls_per_pod_most"] == 1
    assert figures["in_flight"] == 3
    assert figures["p50_ms"] >= figures["floor_ms"] == 50
    assert figures["requests_list_statefulsets"] == figures["requests_list_pods"] == 1
    assert targets["in_flight"]["at_most"] == 32
    assert targets["p99_ms"]["at_most"] == 600


def test_a_target_may_be_a_least() -> None:
    figures = [
        Figure(name="slow_per_s", value=10, means="how many", at_least=20),
        Figure(name="fast_per_s", value=30, means="how many", at_least=20),
    ]
    result = Result(benchmark="sample", setting={}, figures=figures, machine={})

    assert msgspec.json.decode(render_line(result))["targets"] == {
        "slow_per_s": {"at_least": 20, "met": False},
        "fast_per_s": {"at_least": 20, "met": True},
    }
    assert "slow_per_s = 10  (target: at least 20; MISSED)" in render_explanation(result)


# What is asked


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [(Kind.OBJECT, 21_000, 22_200), (Kind.SCALE, 1_600, 1_800)],
    ids=["D-53: a StatefulSet of 21.6 kB", "D-53: a Scale of 1.7 kB"],
)
def test_reviews_are_as_large_as_they_are(kind: Kind, least: int, most: int) -> None:
    head, _, body = falling(kind, NO_DOWNSCALE_PATH, (17, 16)).partition(b"\r\n\r\n")

    assert least <= len(body) <= most
    assert f"Content-Length: {len(body)}".encode() in head
    assert head.startswith(b"POST /admission/no-downscale?timeout=10s HTTP/1.1\r\n")


@pytest.mark.parametrize("kind", list(Kind))
def test_a_review_is_about_the_set_that_is_served(kind: Kind) -> None:
    """D-20: the version and UID of the cached set, else the operator would have to read it."""
    served = decode_statefulset(encode_set(FIRST, 17, GUARDED.labels))
    review = decode_review(msgspec.json.encode(make_review(kind, (17, 16), FIRST, GUARDED)))

    assert isinstance(review.old, Scalable)
    assert isinstance(review.new, Scalable)
    assert (review.old.replicas, review.new.replicas) == (served.replicas, 16)
    assert (review.namespace, review.name) == (NAMESPACE, served.name)
    assert review.old.uid == served.uid
    assert review.old.resource_version == served.resource_version == f"{OBJECT_VERSION}"
    assert review.subresource == ("scale" if kind is Kind.SCALE else "")
    assert served.labels[NO_DOWNSCALE] == "true"
    assert review.dry_run is False


def test_traits_are_served() -> None:
    """Labels of sets, addresses of pods, and zones of a size: what downscales need."""
    traits = Traits(labels={NO_DOWNSCALE: "true"}, zone_pods=2, addresses=("127.1.1.1", "::1"))
    world = World(Spec(port=0, cert="", key="", pods=6, traits=traits))
    pods = msgspec.json.decode(world.page("pods", 0, 500))["items"]
    sets = msgspec.json.decode(world.page("statefulsets", 0, 500))["items"]

    assert [decode_pod(msgspec.json.encode(pod)).ip for pod in pods] == ["127.1.1.1", "::1"] * 3
    assert [each["spec"]["replicas"] for each in sets] == [2, 2, 2]
    assert all(each["metadata"]["labels"][NO_DOWNSCALE] == "true" for each in sets)


def test_zones_have_the_size_that_is_asked_for() -> None:
    assert [len(places) for places in list_places(600, 100)] == [100] * 6


# What the API server answers


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("rollout-group=store-1", True),
        ("rollout-group=store-2", False),
        ("name in (a,b)", True),
        ("name in (b,c)", False),
        ("rollout-group=store-1,name=b", False),
        ("absent=a", False),
    ],
)
def test_a_selector_takes_what_it_names(selector: str, expected: bool) -> None:
    assert selects(selector, {"rollout-group": "store-1", "name": "a"}) is expected


def test_a_selector_makes_a_list() -> None:
    """A live look at a group lists its sets, and the pods of all of them, and nothing else."""
    world = World(Spec(port=0, cert="", key="", pods=60))

    sets = msgspec.json.decode(world.select("statefulsets", "rollout-group=store-1"))["items"]
    wanted = Place(group=1, zone="b").set_name
    pods = msgspec.json.decode(world.select("pods", f"name in ({wanted})"))["items"]

    assert [each["metadata"]["name"] for each in sets] == [
        Place(group=1, zone=zone).set_name for zone in "abc"
    ]
    assert {pod["metadata"]["labels"]["name"] for pod in pods} == {wanted}
    assert len(pods) == 10


async def test_a_secret_is_kept_and_requests_are_counted() -> None:
    place = Place(group=0, zone="a", ordinal=0)
    async with open_server(6) as target, aiohttp.ClientSession() as session:
        core = f"{target.url}/api/v1/namespaces/{NAMESPACE}"

        async def ask(method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
            async with session.request(method, core + path, json=body, ssl=False) as answer:
                return answer.status, await answer.json()

        missing, _ = await ask("GET", "/secrets/tls")
        secret = {"metadata": {"name": "tls"}, "data": {"ca": "eA=="}}
        _, created = await ask("POST", "/secrets", secret)
        _, replaced = await ask("PUT", "/secrets/tls", secret | {"data": {"ca": "eQ=="}})
        _, found = await ask("GET", "/secrets/tls")
        _, patched = await ask("PATCH", f"/pods/{place.pod_name}", {"metadata": {}})
        _, listed = await ask("GET", "/pods")
        counts = await target.fetch_counts()

    assert missing == 404
    assert created["data"] == {"ca": "eA=="}
    assert found == replaced
    assert found["data"] == {"ca": "eQ=="}
    assert found["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert patched["metadata"]["uid"] == place.pod_uid
    assert len(listed["items"]) == 6
    assert counts == {
        "get secrets": 2,
        "create secrets": 1,
        "update secrets": 1,
        "patch pods": 1,
        "list pods": 1,
    }


# How it is asked


@contextmanager
def serving(folder: Path, answer: bytes = ANSWER, *, after: float = 0.0) -> Iterator[Load]:
    """Run a TLS server that answers one connection after the other, each request after a while."""
    pki = make_pki(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.cert, pki.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, context, answer, after))
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield Load(
                port=port,
                pid=os.getpid(),
                request=b"x" * 100,
                expected=b"fine",
                connections=1,
                warm_up_s=0.0,
            )
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


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


def ask(measure: Callable[[Task], Coroutine[None, None, Figures]], asking: Load) -> Figures:
    """Return what one way of asking measures."""
    return asyncio.run(measure(Task(load=asking)))


def test_right_answers_are_counted(tmp_path: Path) -> None:
    with serving(tmp_path) as asking:
        measured = ask(measure_saturation, replace(asking, seconds=0.1))

    assert measured["right"] == 1
    assert measured["count"] > 1
    assert measured["cpu_us"] > 0


def test_other_answers_are_not_right(tmp_path: Path) -> None:
    """D-53: a wrong answer must not count as a fast one."""
    with serving(tmp_path, ANSWER.replace(b"fine", b"ouch")) as asking:
        measured = ask(measure_handshakes, replace(asking, count=3))

    assert measured["count"] == 3
    assert measured["right"] == 0


def test_connections_that_fail_are_no_right_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    asking = Load(port=port, pid=os.getpid(), request=b"x", count=4)

    measured = ask(measure_handshakes, asking)

    assert (measured["count"], measured["failed"], measured["right"]) == (0, 4, 0)


def test_a_request_that_waits_for_its_turn_takes_that_long(tmp_path: Path) -> None:
    """An open loop: a server of 20 answers a second is asked 100 times a second.

    Counted from when a request is sent, each would take 50 ms.
    """
    with serving(tmp_path, after=0.05) as asking:
        measured = ask(measure_pace, replace(asking, seconds=0.2, per_s=100.0))

    assert measured["count"] == 20
    assert measured["max_ms"] > 500
    assert measured["right"] == 1


@pytest.mark.parametrize("measure", [measure_saturation, measure_pace])
def test_a_server_that_hangs_up_spoils_the_measurement(
    tmp_path: Path, measure: Callable[[Task], Coroutine[None, None, Figures]]
) -> None:
    with serving(tmp_path, b"") as asking, pytest.raises(NoAnswerError, match="closed"):
        ask(measure, asking)


def test_a_status_decides_as_well() -> None:
    tally = Tally(REFUSED)
    tally.note(time.perf_counter(), b"HTTP/1.1 200 OK\r\n\r\n" + REFUSED)
    tally.note(time.perf_counter(), b"HTTP/1.1 429 Too Many Requests\r\n\r\n" + REFUSED)

    assert tally.summary()["right"] == 0.5


# What pods see


def a_call(at: float, done_at: float | None) -> PodCall:
    return PodCall(
        at=at,
        wall=datetime.now(UTC),
        pod="store-0",
        uid="u",
        address="127.0.0.1",
        method="POST",
        path="/",
        headers={},
        done_at=done_at,
    )


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
    assert count_in_flight([a_call(*span) for span in spans]) == expected
