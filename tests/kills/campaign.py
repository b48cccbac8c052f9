"""Rounds of SIGKILL, SIGSTOP and SIGTERM at random moments, and how long no replica acts.

A round has a namespace of its own, with two or three operators, work that goes on all the time, and
a judge at its end. The seed decides who is hit, how, and after what pause; the moment is left to
the machine.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from statistics import median
from typing import Final

import msgspec

from tests.kills.holders import Holders
from tests.kills.replicas import Replica, Replicas, replicate
from tests.kills.work import SCALED, list_zones, prepare
from tests.system.waits import wait_true
from tests.world.hooks import POD_EVICTION, PREPARE_DOWNSCALE, Registration
from tests.world.service import Service
from tests.world.world import World

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
        """Return what distinguishes it from others."""
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
        """Count in those of another round."""
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
        """Hit operators as planned."""
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
        hooks = await world.register(Registration(port=service.port, hooks=HOOKS))
        await hooks.wait_injected()
        await hooks.wait_called(list_zones(SCALED)[0])
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
