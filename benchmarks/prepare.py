"""How long a downscale waits for its pods: all of a zone are told, each answers after a while.

The operator reads the group live, records the downscale on some pods, calls all that go, with the
default flags; each round scales down a zone of another group. The pods are servers of this process
on loopback addresses. Rounds are apart, so that none waits for the limit on API requests.
"""

import asyncio
import itertools
import math
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from benchmarks.figures import Figure, Result, median, percentile
from benchmarks.hooks import Hooks, open_hooks
from benchmarks.load import make_context, request_once
from benchmarks.objects import Json, Place
from benchmarks.processes import read_time
from benchmarks.questions import ALLOWED, PREPARE_PATH, Kind, make_request
from benchmarks.server import Traits
from rollout_operator.model.names import PREPARE_DOWNSCALE, PREPARE_PORT
from rollout_operator.model.names import PREPARE_PATH as PATH
from tests.world.webpods import PodCall, Respond, WebPods

P99_MS: Final = 600.0
AT_A_TIME: Final = 32
ANSWERS_AFTER: Final = timedelta(milliseconds=50)
# In that time the default limit of requests lets more pass than a round needs.
PAUSE_S: Final = 2.0
ZONES: Final = 3


class Round(msgspec.Struct, frozen=True):
    """One downscale."""

    took: float
    is_allowed: bool
    calls: Sequence[PodCall]
    cpu: float


async def measure(*, small: bool) -> Result:
    """Measure rounds, each of a whole zone of a group that nothing happened to before."""
    zone_pods, rounds, pause = (3, 2, 0.0) if small else (100, 12, PAUSE_S)
    async with WebPods() as pods:
        addresses = tuple([await pods.seat(_make_seat(each)) for each in range(zone_pods)])
        pods.behave("", Respond(after=ANSWERS_AFTER))
        traits = Traits(
            labels={PREPARE_DOWNSCALE: "true"},
            annotations={PATH: "store/prepare-shutdown", PREPARE_PORT: f"{pods.port}"},
            zone_pods=zone_pods,
            addresses=addresses,
        )
        async with open_hooks(rounds * zone_pods * ZONES, traits) as hooks:
            before = await hooks.target.fetch_counts()
            done = []
            for group in range(rounds):
                done.append(await _scale_down(hooks, pods, Place(group=group, zone="a"), traits))
                await asyncio.sleep(pause)
            requested = await hooks.target.fetch_counts() - before
    setting = {
        "pods": zone_pods,
        "zones": ZONES,
        "rounds": rounds,
        "pod_answers_after_ms": ANSWERS_AFTER / timedelta(milliseconds=1),
    }
    figures = [*_describe_times(done, zone_pods), *_describe_requests(requested, rounds)]
    return Result(benchmark="prepare", setting=setting, figures=figures)


def _make_seat(ordinal: int) -> Json:
    return {"metadata": {"name": f"{ordinal}", "uid": f"{ordinal}"}}


async def _scale_down(hooks: Hooks, pods: WebPods, place: Place, traits: Traits) -> Round:
    replicas = (traits.zone_pods, 0)
    load = hooks.load(make_request(Kind.OBJECT, PREPARE_PATH, replicas, place, traits))
    pods.calls.clear()
    before = read_time(load.pid)
    took, answer = await asyncio.to_thread(request_once, load, make_context())
    is_allowed = ALLOWED in answer
    if not is_allowed:  # its time then tells nothing; why is worth knowing
        sys.stderr.write(f"prepare: {place.set_name}: {answer.decode(errors='replace')}\n")
    return Round(
        took=took,
        is_allowed=is_allowed,
        calls=tuple(pods.calls),
        cpu=read_time(load.pid).cpu - before.cpu,
    )


def count_in_flight(calls: Sequence[PodCall]) -> int:
    """Return how many calls were at the pods at a time, at most; unfinished ones never end."""
    moments = [(call.at, 1) for call in calls]
    moments += [(call.done_at, -1) for call in calls if call.done_at is not None]
    return max(itertools.accumulate(step for _, step in sorted(moments)), default=0)


def _describe_times(rounds: Sequence[Round], pods: int) -> list[Figure]:
    took = [each.took * 1000 for each in rounds]
    counts = [len(each.calls) for each in rounds]
    waves = math.ceil(pods / AT_A_TIME)
    return [
        Figure(
            name="p50_ms",
            value=median(took),
            means="from connecting until the answer that allows it: half of the rounds",
        ),
        Figure(
            name="p99_ms",
            value=percentile(took, 0.99),
            means="the same, as 99 of 100 are at most",
            at_most=P99_MS,
        ),
        Figure(
            name="floor_ms",
            value=waves * (ANSWERS_AFTER / timedelta(milliseconds=1)),
            means="what the pods alone take, so many at a time",
        ),
        Figure(
            name="in_flight",
            value=max(count_in_flight(each.calls) for each in rounds),
            means="the most calls at the pods at a time",
            at_most=AT_A_TIME,
        ),
        Figure(
            name="calls_per_pod_least",
            value=min(counts) / pods,
            means="calls to a pod in a round, where they were fewest",
            at_least=1.0,
        ),
        Figure(
            name="calls_per_pod_most",
            value=max(counts) / pods,
            means="the same where they were most",
            at_most=1.0,
        ),
        Figure(
            name="allowed",
            value=sum(each.is_allowed for each in rounds) / len(rounds),
            means="share of rounds that were allowed",
            at_least=1.0,
        ),
        Figure(
            name="cpu_ms",
            value=median([each.cpu * 1000 for each in rounds]),
            means="processor time of the operator for a round: half of them",
        ),
    ]


def _describe_requests(requested: Counter[str], rounds: int) -> list[Figure]:
    """Return requests about sets and pods: a Secret is read all the time, by nobody's review."""
    calls = {
        what: count
        for what, count in requested.items()
        if what.endswith((" pods", " statefulsets")) and not what.startswith("watch ")
    }
    total = Figure(
        name="requests",
        value=sum(calls.values()) / rounds,
        means="requests to the API server for a round, watches left out",
    )
    return [total] + [
        Figure(
            name=f"requests_{'_'.join(what.split())}",
            value=count / rounds,
            means=f"of these: {what}",
        )
        for what, count in sorted(calls.items())
    ]
