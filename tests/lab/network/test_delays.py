"""Simulated pods that are asked since when they are prepared: DELAY-07, DELAY-09, FP-17, FP-25."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from rollout_operator.lab.model.history import History, PodCalled
from rollout_operator.lab.network.faults import CrashPoint, PodFailure, PodFate
from rollout_operator.lab.network.planned_faults import PodPlan
from rollout_operator.lab.network.pod_client import SimulatedPodClient
from rollout_operator.lab.nodes.behaviour import (
    ACTS_THEN_RESETS,
    BROKEN,
    REFUSES,
    Behaviour,
    Response,
)
from rollout_operator.lab.nodes.pods import PodEndpoints
from rollout_operator.lab.virtual_loop.pace import Timers
from rollout_operator.model.decode.pod_answer import decode_word
from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import Uid
from rollout_operator.model.scaling import Word
from rollout_operator.pods.client import PodClient, Sender
from rollout_operator.telemetry.metrics import Metrics
from tests.lab.client_world import ACTOR, ClientWorld, never_returns
from tests.virtual_time import EPOCH, VirtualClock, elapsed, in_virtual_time

IP = "10.0.0.1"
PATH = "delayed"
"""Of delayed downscales; others are called on other paths."""


def endpoint(path: str = PATH) -> Endpoint:
    return Endpoint(pod="a-0", uid=Uid("u"), ip=IP, host="a-0.a", port=80, path=path, query="q")


@contextmanager
def pods(behaviour: Behaviour | None = None) -> Iterator[PodEndpoints]:
    timers = Timers()
    served = PodEndpoints(History(), elapsed=elapsed, now=VirtualClock().now, timers=timers)
    served.enter(IP, pod="a-0", uid="u", behaviour=behaviour or Behaviour())
    yield served
    timers.stop()


async def call(served: PodEndpoints, method: str = "POST", path: str = PATH) -> bytes:
    _, body = await served.serve(method, endpoint(path), ACTOR)
    return body


async def ask(served: PodEndpoints, path: str = PATH) -> int:
    """Return how many seconds after the beginning of the world the pod was prepared."""
    said = json.loads(await call(served, path=path))
    return int(said["timestamp"] - EPOCH.timestamp())


@in_virtual_time
async def test_a_pod_says_the_same_time_until_a_delete() -> None:
    """DELAY-09, SEED-076, SEED-077."""
    with pods() as served:
        await asyncio.sleep(100)
        assert await ask(served) == 100
        await asyncio.sleep(100)
        assert await ask(served) == 100
        assert await call(served, "DELETE") == b""
        await asyncio.sleep(100)
        assert await ask(served) == 300


@in_virtual_time
async def test_each_path_has_its_own_state() -> None:
    """SEED-080: preparing for a shutdown and for a delay are two things."""
    with pods() as served:
        assert await ask(served, "shutdown") == 0
        await asyncio.sleep(10)
        assert await ask(served) == 10
        await call(served, "DELETE")
        assert served.prepared("u")
        await asyncio.sleep(10)
        assert (await ask(served, "shutdown"), await ask(served)) == (0, 20)
        await call(served, "DELETE")
        await call(served, "DELETE", "shutdown")
        assert not served.prepared("u")


@pytest.mark.parametrize("uid", ["u", "u-2"])
@in_virtual_time
async def test_a_pod_that_starts_again_has_forgotten(uid: str) -> None:
    """The delay of a restarted or replaced pod starts again."""
    with pods() as served:
        assert await ask(served) == 0
        served.leave(IP)
        await asyncio.sleep(60)
        served.enter(IP, pod="a-0", uid=uid, behaviour=Behaviour())
        assert await ask(served) == 60


@in_virtual_time
async def test_a_pod_that_refuses_or_is_slow_is_not_prepared_before() -> None:
    with pods() as served:
        served.answer("a-0", "POST", BROKEN)
        assert await call(served) == b""
        served.answer("a-0", "POST", Response(after=timedelta(seconds=5)))
        assert await ask(served) == 5
        served.answer("a-0", "DELETE", BROKEN)
        await call(served, "DELETE")
        assert await ask(served) == 5


@in_virtual_time
async def test_a_pod_may_do_it_and_never_say_so() -> None:
    """FP-25: reset after processing; its time runs all the same."""
    with pods() as served:
        served.answer("a-0", "POST", ACTS_THEN_RESETS)
        with pytest.raises(ConnectionResetError):
            await call(served)
        served.answer("a-0", "POST", None)
        await asyncio.sleep(60)
        assert await ask(served) == 0


@in_virtual_time
async def test_the_clock_of_a_pod_may_be_wrong() -> None:
    """FP-17."""
    fast = Behaviour(prepare=Response(clock_offset=timedelta(hours=1)))
    with pods(fast) as served:
        assert await ask(served) == 3600


@pytest.mark.parametrize("body", [b"", b"OK", b'{"timestamp":0}', b'{"timestamp":1e400}'])
@in_virtual_time
async def test_a_pod_may_say_anything(body: bytes) -> None:
    """FP-25: hostile bodies, which are none of the calls that only want a status."""
    with pods(Behaviour(prepare=Response(body=body))) as served:
        assert await served.serve("POST", endpoint(), ACTOR) == (200, body)
        assert decode_word("a-0", 200, body, EPOCH).since is None
        assert [(one.path, one.acted) for one in served._history.list_all(PodCalled)] == [
            ("/delayed", True)
        ]


async def talk(served: PodEndpoints, fate: PodFate | None = None) -> Word:
    """Ask as the operator does."""
    faults = [] if fate is None else [PodPlan(actor=ACTOR, number=1, fate=fate)]
    sender: Sender = SimulatedPodClient(ClientWorld(*faults).link, served)
    client = PodClient(
        sender, timeout=timedelta(seconds=5), metrics=Metrics(), clock=VirtualClock()
    )
    words = await client.ask_all([endpoint()])
    return words[Uid("u")]


@in_virtual_time
async def test_the_operator_understands_its_pods() -> None:
    with pods() as served:
        word = await talk(served)
        assert (word.since, word.problem) == (EPOCH, "")


@pytest.mark.parametrize(
    ("fate", "problem", "acts"),
    [
        (PodFate(fails=PodFailure.REFUSED), "no answer: ConnectionRefusedError", False),
        (PodFate(fails=PodFailure.RESET_AFTER), "no answer: ConnectionResetError", True),
        (PodFate(fails=PodFailure.SILENT), "no answer within 5s", True),
        (PodFate(fails=PodFailure.LOST), "no answer within 5s", False),
        (PodFate(fails=PodFailure.REDIRECT), "HTTP status 307", False),
        (PodFate(fails=PodFailure.ERROR_AFTER), "HTTP status 500", True),
        (PodFate(after=timedelta(seconds=6)), "no answer within 5s", True),
    ],
)
@in_virtual_time
async def test_an_answer_that_does_not_arrive_is_no_word(
    fate: PodFate, problem: str, acts: bool
) -> None:
    """DELAY-07: and the pod may count all the same."""
    with pods() as served:
        word = await talk(served, fate)
        assert (word.since, word.problem) == (None, f"POST a-0: {problem}")
        assert served.prepared("u") is acts


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@in_virtual_time
async def test_a_late_pod_goes_on_without_its_caller(method: str) -> None:
    """SI-10: a server does not notice that its client has given up after 5 s."""
    with pods() as served:
        if method == "DELETE":
            await call(served)
        late = PodPlan(actor=ACTOR, number=1, fate=PodFate(takes=timedelta(seconds=7)))
        sender: Sender = SimulatedPodClient(ClientWorld(late).link, served)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await (
                    sender.ask(endpoint())
                    if method == "POST"
                    else sender.send("DELETE", endpoint())
                )
        assert served.prepared("u") is (method == "DELETE"), "not yet"
        await asyncio.sleep(2.1)
        assert served.prepared("u") is (method == "POST")


@in_virtual_time
async def test_a_pod_that_refuses_connections_has_no_word() -> None:
    with pods(Behaviour(prepare=REFUSES)) as served:
        assert (await talk(served)).problem == "POST a-0: no answer: ConnectionRefusedError"


@pytest.mark.parametrize("point", CrashPoint)
@in_virtual_time
async def test_a_crash_while_asking(point: CrashPoint) -> None:
    """SEED-078: only the pod knows then."""
    with pods() as served:
        world = ClientWorld(PodPlan(actor=ACTOR, number=1, fate=PodFate(crash=point)))
        asking = SimulatedPodClient(world.link, served).ask(endpoint())
        if point is CrashPoint.AFTER_REPLY:
            assert (await asking)[0] == 200
            await asyncio.sleep(1)
        else:
            assert await never_returns(asking)
        assert world.link.is_dead
        assert served.prepared("u") is (point is not CrashPoint.BEFORE_SEND)


@in_virtual_time
async def test_a_closed_door_asks_nobody() -> None:
    with pods() as served:
        client = SimulatedPodClient(ClientWorld().link, served)
        await client.close()
        with pytest.raises(OSError, match="closed"):
            await client.ask(endpoint())
        assert not served.prepared("u")
