"""What bodies made to cost memory and time do to the operator, and to honest reviews meanwhile."""

import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result
from benchmarks.hooks import GUARDED, falling, open_hooks
from benchmarks.load import NoAnswerError, Tally, make_context, request_once
from benchmarks.objects import NAMESPACE
from benchmarks.processes import forget_peak, measure_in_child, read_memory
from benchmarks.questions import NO_DOWNSCALE_PATH, REFUSED, Kind, make_post
from benchmarks.tasks import Load, Task
from tests.hostile_bodies import PATHS, list_hostile_bodies

PODS: Final = 50
# Replicas of the first of three sets.
REPLICAS: Final = (17, 16)
AT_ONCE: Final = 8
# Of the bodies that there are every fourth: they are in the child's memory all at once.
STEP: Final = 4
BODIES: Final = 28
ROUNDS: Final = 6
GROWTH_MIB: Final = 64.0
STALL_MS: Final = 250.0
_LAG: Final = re.compile(r"^rollout_operator_event_loop_lag_seconds (\S+)$", re.MULTILINE)


async def measure(*, small: bool) -> Result:
    """Measure one operator under all kinds of bodies, eight at a time."""
    bodies, rounds, quiet = (4, 1, 5) if small else (BODIES, ROUNDS, 200)
    async with open_hooks(PODS, GUARDED) as hooks:
        request = falling(Kind.SCALE, NO_DOWNSCALE_PATH, REPLICAS)
        load = replace(hooks.load(request, REFUSED), count=quiet)
        task = Task(load=load, count=bodies, rounds=rounds)
        measured = await measure_in_child("hostile", task)
        lag = _LAG.search(await hooks.operator.metrics())
    assert lag is not None, "always there"
    setting = {"bodies": bodies * rounds, "mib_each": 7, "at_once": AT_ONCE, "pods": PODS}
    figures = _describe({**measured, "stall_ms": float(lag[1]) * 1000})
    return Result(benchmark="hostile", setting=setting, figures=figures)


def _describe(measured: Mapping[str, float]) -> list[Figure]:
    growth = measured["most_mib"] - measured["idle_mib"]
    return [
        Figure(name="idle_mib", value=measured["idle_mib"], means="resident memory before"),
        Figure(
            name="growth_mib",
            value=growth,
            means="the most resident memory meanwhile, beyond the idle one",
            at_most=GROWTH_MIB,
        ),
        Figure(
            name="growth_share",
            value=growth / measured["sent_mib"],
            means=f"the same, as a share of the {AT_ONCE} bodies that are sent at a time",
        ),
        Figure(
            name="stall_ms",
            value=measured["stall_ms"],
            means="the longest delay of the event loop, as the operator itself measures it",
            at_most=STALL_MS,
        ),
        Figure(
            name="answered",
            value=measured["answered"],
            means="share of the bodies that got an answer, whatever it says",
            at_least=1.0,
        ),
        Figure(
            name="small_right",
            value=measured["small_right"],
            means="share of honest reviews of a Scale that were answered rightly meanwhile",
            at_least=1.0,
        ),
        Figure(
            name="small_p50_ms",
            value=measured["small_p50_ms"],
            means="time of such a review on a new connection: half of them",
        ),
        Figure(
            name="small_slower",
            value=measured["small_p50_ms"] / max(measured["quiet_p50_ms"], 1e-6),
            means="the same against what it took before",
        ),
    ]


async def measure_hostile(task: Task) -> Mapping[str, float]:
    """Ask honestly for a while, then go on while threads send the bodies."""
    load = task.requesting
    requests = list(islice(_make_requests(), 0, task.count * STEP, STEP))
    quiet, meanwhile = Tally(load.expected), Tally(load.expected)
    for _ in range(load.count):
        _request(load, quiet)
    idle = read_memory(load.pid)["now"]
    forget_peak(load.pid)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        sent = [
            threads.submit(_is_answered, replace(load, request=request))
            for _ in range(task.rounds)
            for request in requests
        ]
        while not all(one.done() for one in sent):
            _request(load, meanwhile)
    return {
        "idle_mib": idle,
        "most_mib": read_memory(load.pid)["most"],
        "sent_mib": sum(map(len, requests[:AT_ONCE])) / 2**20,
        "answered": sum(one.result() for one in sent) / len(sent),
        "quiet_p50_ms": quiet.summary()["p50_ms"],
        "small_p50_ms": meanwhile.summary()["p50_ms"],
        "small_right": meanwhile.summary()["right"],
    }


def _make_requests() -> Iterator[bytes]:
    for path in PATHS:
        for _, _, body in list_hostile_bodies([path], NAMESPACE):
            yield make_post(path, body)


def _request(load: Load, tally: Tally) -> None:
    try:
        took, answer = request_once(load, make_context())
        tally.record(time.perf_counter() - took, answer)
    except (OSError, NoAnswerError):
        tally.failed += 1


def _is_answered(load: Load) -> bool:
    try:
        _, answer = request_once(load, make_context())
    except (OSError, NoAnswerError):
        return False
    return answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))
