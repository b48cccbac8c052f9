"""Rounds of SIGKILL, SIGSTOP and SIGTERM at random moments, and how long no replica acts.

A round has a namespace of its own, with two or three operators, work that goes on all the time, and
a judge at its end. The seed decides who is hit, how, and after what pause; the moment is left to
the machine.
"""

import asyncio
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from statistics import median
from typing import Final

import msgspec

from tests.kills.replicas import Replica, Replicas, replicate
from tests.kills.work import SCALED, list_zones, prepare
from tests.system.waits import wait_true
from tests.world.api import LEASES, Api
from tests.world.assets import locate_assets
from tests.world.hooks import POD_EVICTION, PREPARE_DOWNSCALE, Registration
from tests.world.manifests import LEASE
from tests.world.plane import ControlPlane
from tests.world.service import Service
from tests.world.world import World

# Twice what a takeover may last: a test that waits longer says what it has seen.
TAKEOVER_LIMIT: Final = timedelta(seconds=60)


class Holders:
    """Follows the Lease of one namespace for as long as `run` runs."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._moved = asyncio.Condition()
        self.terms: list[tuple[float, str]] = []
        """When, on the monotonic clock, which holder was seen first; empty: released."""

    @property
    def now(self) -> str:
        return self.terms[-1][1] if self.terms else ""

    async def run(self) -> None:
        async for event in self._api.follow(LEASES, self._namespace):
            if event.type == "DELETED" or event.object["metadata"]["name"] != LEASE:
                continue
            holder = event.object["spec"].get("holderIdentity") or ""
            if not self.terms or holder != self.now:
                async with self._moved:
                    self.terms.append((time.monotonic(), holder))
                    self._moved.notify_all()

    async def wait_after(self, former: str, since: float) -> timedelta:
        """Wait until another process than the `former` holder has the Lease; return how long.

        `since` is a moment on the monotonic clock. Raises TimeoutError with all holders.
        """

        def find() -> float | None:
            later = (at for at, holder in self.terms if at >= since and holder not in ("", former))
            return next(later, None)

        try:
            async with asyncio.timeout(TAKEOVER_LIMIT.total_seconds()), self._moved:
                await self._moved.wait_for(lambda: find() is not None)
        except TimeoutError as late:
            text = f"no other process than {former} since {since:.1f}: {self.terms[-5:]}"
            raise TimeoutError(text) from late
        return timedelta(seconds=(find() or since) - since)


HOOKS: Final = (PREPARE_DOWNSCALE, POD_EVICTION)
# How often the one that acts is hit, and not any.
LEADER_SHARE: Final = 0.75


class Hit(StrEnum):
    """What became of the operator that acted."""

    LOST = "killed with its pod"
    CRASHED = "killed, and begun again in its pod"
    FROZEN = "frozen"
    ENDED = "ended by SIGTERM"
    NONE_LEFT = "hit while each other one was down, too"


# LI-08: another acts. One that begins again in its pod may be the one that acts.
LIMITS: Final[Mapping[Hit, timedelta]] = {
    Hit.LOST: timedelta(seconds=20),
    Hit.CRASHED: timedelta(seconds=20),
    Hit.FROZEN: timedelta(seconds=20),
    Hit.ENDED: timedelta(seconds=3),
}


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """How many operators there are, and what is done to them."""

    seed: int
    replicas: int = 2
    kills: int = 10
    stops: int = 2
    ends: int = 3
    is_dense: bool = True
    """Whether operators are killed while another one is frozen."""
    frozen_for: timedelta = timedelta(seconds=30)
    longest_pause: float = 12.0
    """Seconds between two of them."""
    lost_share: float = 0.7
    """How often the pod is lost with its operator, and another one begins in its place."""

    @property
    def name(self) -> str:
        return f"seed {self.seed}, {self.replicas} operators"

    def make_rng(self, what: str) -> random.Random:
        """Return the random source of one thing that goes on: the order of others leaves it."""
        return random.Random(f"{self.seed} {what}")


class Figures(msgspec.Struct):
    """How long it took until an operator acted again, and what had been done to the one before."""

    spans: dict[Hit, list[timedelta]] = msgspec.field(
        default_factory=lambda: {hit: [] for hit in Hit}
    )
    kills: int = 0
    stops: int = 0
    superseded: int = 0
    work: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: "Figures") -> None:
        for hit, spans in other.spans.items():
            self.spans[hit] += spans
        self.kills += other.kills
        self.stops += other.stops
        self.superseded += other.superseded
        self.work += other.work

    def list_late(self) -> Sequence[str]:
        """Return what took longer than LI-08 promises."""
        return [
            f"{hit}: {span.total_seconds():.1f} s"
            for hit, limit in LIMITS.items()
            for span in self.spans[hit]
            if span >= limit
        ]

    def render(self) -> Sequence[str]:
        """Return all of it as lines; of times the shortest, the median and the longest."""
        work = ", ".join(f"{many} {what}" for what, many in sorted(self.work.items()))
        return [
            f"{self.kills} killed, {self.stops} frozen, {self.superseded} begun anew after that;"
            f" meanwhile {work}",
            *(f"{hit}: {_render(spans)}" for hit, spans in self.spans.items() if spans),
        ]


def _render(spans: Sequence[timedelta]) -> str:
    seconds = [span.total_seconds() for span in spans]
    least, middle, most = min(seconds), median(seconds), max(seconds)
    return f"{len(seconds)} times, {least:.1f} / {middle:.1f} / {most:.1f} s"


@dataclass(slots=True)
class _Hunt:
    """One round while it runs."""

    plan: Round
    replicas: Replicas
    holders: Holders
    figures: Figures = field(default_factory=Figures)

    async def run(self) -> None:
        if self.plan.is_dense:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._kill(), name="kills")
                tasks.create_task(self._stop(), name="stops")
        else:
            await self._kill()
            await self._stop()
        rng = self.plan.make_rng("ends")
        for _ in range(self.plan.ends):
            await self._pause(rng)
            await self._end()

    async def _kill(self) -> None:
        rng = self.plan.make_rng("kills")
        for _ in range(self.plan.kills):
            await self._pause(rng)
            victim, holder = self._choose(rng)
            is_lost = rng.random() < self.plan.lost_share
            hit = Hit.LOST if is_lost else Hit.CRASHED
            began = self.replicas.kill(victim, in_new_pod=is_lost)
            self.figures.kills += 1
            await self._measure(hit, victim, holder, began)

    async def _stop(self) -> None:
        rng = self.plan.make_rng("stops")
        for _ in range(self.plan.stops):
            await self._pause(rng)
            victim, holder = self._choose(rng)
            began = time.monotonic()
            self.figures.stops += 1
            async with asyncio.TaskGroup() as tasks:
                measuring = tasks.create_task(self._measure(Hit.FROZEN, victim, holder, began))
                await self.replicas.freeze(victim, self.plan.frozen_for)
                if (
                    holder and self.holders.now == holder
                ):  # no other one was up for long enough: it goes on
                    measuring.cancel()
                    self._record(Hit.FROZEN, victim, began, self.plan.frozen_for)

    async def _end(self) -> None:
        """End the one that acts, as an upgrade does: others are ready."""
        await wait_true("all ready, and one acts", self._is_calm)
        holder = self.holders.now
        victim = self.replicas.find(holder)
        assert victim is not None, holder
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.replicas.end(victim), name="ending")
            await self._measure(Hit.ENDED, victim, holder, began)

    def _choose(self, rng: random.Random) -> tuple[Replica, str]:
        """Return the one to hit, and the holder of the Lease where that is it."""
        holder = self.holders.now
        running = self.replicas.list_running()
        leader = self.replicas.find(holder)
        # Both are drawn each time: what comes next follows from the seed alone.
        is_leader_wanted, place = rng.random() < LEADER_SHARE, rng.random()
        if leader is not None and leader in running and is_leader_wanted:
            return leader, holder
        victim = running[int(place * len(running))]
        return victim, holder if victim is leader else ""

    async def _measure(self, hit: Hit, victim: Replica, holder: str, began: float) -> None:
        """Take the time until another process holds the Lease; none for one that did not act."""
        if not holder:
            return
        self._record(hit, victim, began, await self.holders.wait_after(holder, began))

    def _record(self, hit: Hit, victim: Replica, began: float, span: timedelta) -> None:
        others = [one for one in self.replicas.members if one is not victim]
        if not any(one.ready_since < began for one in others):
            hit = Hit.NONE_LEFT
        self.figures.spans[hit].append(span)

    def _is_calm(self) -> bool:
        is_ready = all(one.is_ready for one in self.replicas.members)
        return is_ready and self.replicas.find(self.holders.now) is not None

    async def _pause(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(0, self.plan.longest_pause))


async def play(world: World, plan: Round) -> Figures:
    """Play a round; return its figures. Raises AssertionError for what the judge finds."""
    work = await prepare(world, plan.make_rng)
    async with Service() as service, replicate(world, service, plan.replicas) as replicas:
        wanted = Registration(port=service.port, hooks=HOOKS)
        await world.register(wanted, list_zones(SCALED)[0])
        hunt = _Hunt(plan, replicas, Holders(world.api, world.namespace))
        async with asyncio.TaskGroup() as tasks:
            lasting = [
                tasks.create_task(replicas.watch_over()),
                tasks.create_task(hunt.holders.run()),
            ]
            working = tasks.create_task(work.run())
            await hunt.run()
            work.over.set()
            await working
            await work.assert_clean()
            for task in lasting:
                task.cancel()
    assert replicas.unexpected == []
    figures = hunt.figures
    figures.superseded, figures.work = replicas.superseded, work.done
    return figures


SIDE_BY_SIDE: Final = 2
KILLS: Final = 10
STOPS: Final = 2


class Played(msgspec.Struct):
    """What many rounds came to."""

    figures: Figures = msgspec.field(default_factory=Figures)
    failed: list[str] = []


def list_rounds(kills: int) -> Sequence[Round]:
    """Return rounds with so many kills together, of two and of three operators in turn."""
    count = -(-kills // KILLS)
    return [
        Round(seed=1 + number, replicas=2 + number % 2, kills=KILLS, stops=STOPS)
        for number in range(count)
    ]


def run_rounds(rounds: Sequence[Round]) -> Played:
    """Play all of them. Raises NoControlPlaneError."""
    return asyncio.run(_play_all(rounds))


async def _play_all(rounds: Sequence[Round]) -> Played:
    played, waiting = Played(), list(reversed(rounds))
    async with (
        ControlPlane(locate_assets(sys.stderr.write)).running() as plane,
        asyncio.TaskGroup() as tasks,
    ):
        for number in range(SIDE_BY_SIDE):
            tasks.create_task(_play_on(plane, waiting, played), name=f"lane-{number}")
    return played


async def _play_on(plane: ControlPlane, waiting: list[Round], played: Played) -> None:
    while waiting:
        plan = waiting.pop()
        folder = plane.folder / f"round-{plan.seed}"
        folder.mkdir()
        began = time.monotonic()
        text = "clean"
        try:
            async with World(plane, folder) as world:
                played.figures.add(await play(world, plan))
                await world.assert_permitted()
        except* (AssertionError, OSError, RuntimeError) as failures:
            text = "".join(traceback.format_exception(failures))
            played.failed.append(f"{plan.name}: {text}")
        sys.stderr.write(f"{plan.name}: {time.monotonic() - began:.0f} s, {text}\n")
