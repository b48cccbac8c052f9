"""The commands of a process behind a faulty link: what is planned to go wrong, calls, watches."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final

import msgspec
from rollout_lab.network.faults import CrashPoint, EventOutcome, Failure, FaultDecision

from rollout_operator.kube.api import SECRETS
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import ApiError
from tests.lab.client_world import ACTOR, NAMESPACE, ClientWorld, loop_time, never_returns, secret
from tests.simulation.planned_faults import CallPlan, EventPlan, ListPlan, Planned
from tests.stories import Steps

_SPANS: Final = ("delay", "freeze", "before", "after", "waits", "age")


class NetworkStage(Steps):
    """One process, whose faults are planned before its world begins."""

    def __init__(self) -> None:
        self.plans: list[Planned] = []
        self.limits: RateLimiter | None = None
        self.version = 0
        self.shown = 0
        self.told = 0
        self.ends: list[str] = []
        self.seen: list[str] = []
        self.made: ClientWorld | None = None

    @property
    def world(self) -> ClientWorld:
        if self.made is None:
            self.made = ClientWorld(*self.plans, limits=self.limits)
            self.made.link.on_crash = lambda: self.ends.append(f"crash at {loop_time():.0f}")
        return self.made

    def look(self) -> list[str]:
        """Return what the process has written, and which faults came true."""
        if self.made is None:
            return []
        commits, faults = self.made.commits()[self.shown :], self.made.reported[self.told :]
        self.shown, self.told = self.shown + len(commits), self.told + len(faults)
        shown = [f"wrote {one.name} at {one.at.total_seconds():.0f}" for one in commits]
        return [*shown, *(f"fault: {one.text}" for one in faults)]

    async def do_plan(self, kind: str, number: str, *words: str) -> None:
        """Plan what becomes of the n-th call, event or list."""
        fields: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            if key in _SPANS:
                fields[key] = timedelta(seconds=float(value))
            elif key == "fails":
                fields[key] = Failure[value]
            elif value:
                fields[key] = CrashPoint[value]
            else:
                fields[key] = True
        if kind == "event":
            outcome = EventOutcome(**fields)
            plan: Planned = EventPlan(
                actor=ACTOR, plural="secrets", number=int(number), outcome=outcome
            )
        elif kind == "list":
            plan = ListPlan(actor=ACTOR, plural="secrets", number=int(number), **fields)
        else:
            plan = CallPlan(actor=ACTOR, number=int(number), outcome=FaultDecision(**fields))
        self.plans.append(plan)

    async def do_limit(self, rate: str, burst: str) -> None:
        """Limit how often the process calls."""
        self.limits = RateLimiter(float(rate), int(burst))

    async def do_put(self, *names: str) -> None:
        """Let another client create or change Secrets, four seconds apart."""
        for number, name in enumerate(names):
            self.world.put(name, **{f"key-{number}": "MQ=="})
            await asyncio.sleep(4 * (number + 1 < len(names)))

    async def do_cut(self, seconds: str) -> None:
        """Have the link cut in a while."""
        asyncio.get_running_loop().call_later(
            float(seconds), setattr, self.world.link, "is_cut", True
        )

    async def do_heal(self, seconds: str) -> None:
        """Have everything heal in a while."""
        asyncio.get_running_loop().call_later(float(seconds), self.world.link.heal)

    async def do_compact(self) -> None:
        """Let the server forget."""
        self.world.api.compact()

    async def do_wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # Calls

    async def do_create(self) -> str:
        return await self._attempt(self.world.client.create(SECRETS, NAMESPACE, secret("new")))

    async def do_delete(self, name: str = "old", within: str = "") -> str:
        """Delete a Secret, to be sent within so many seconds."""
        world = self.world
        limit = {"sent_within": timedelta(seconds=float(within))} if within else {}
        return await self._attempt(
            world.client.delete(
                SECRETS, NAMESPACE, name, precondition=world.precondition(name), **limit
            )
        )

    async def do_fetch(self, name: str) -> str:
        return await self._attempt(self.world.client.fetch(SECRETS, NAMESPACE, name))

    async def do_list(self, who: str = "") -> str:
        """List Secrets, as informers do or live."""
        client = self.world.following if who else self.world.client
        return await self._attempt(client.fetch_page(SECRETS, NAMESPACE))

    async def _attempt(self, call: Awaitable[Any]) -> str:
        found: list[str] = []

        async def work() -> None:
            try:
                answer = await call
            except ApiError as error:
                wait = getattr(error, "retry_after", None)
                after = f", wait {wait.total_seconds():g}s" if wait else ""
                found.append(f"{type(error).__name__}{after}: {error}")
            else:
                items = getattr(answer, "items", None)
                names = [msgspec.json.decode(one)["metadata"]["name"] for one in items or ()]
                found.append("done" if items is None else f"listed {' '.join(names) or 'none'}")

        begun = loop_time()
        if await never_returns(work()):
            return "; ".join(["never returns", *self.ends])
        return f"{found[0]} ({loop_time() - begun:.0f}s)"

    # Watches

    async def do_follow(self, *words: str) -> str:
        """Watch like an informer that never lists, while Secrets are put, one a second."""
        names = [word for word in words if "=" not in word]
        given = dict(word.split("=") for word in words if "=" in word)
        self.version = self.version or self.world.api.revision
        self.seen.clear()
        self.ends.clear()
        lasts = timedelta(seconds=float(given.get("lasts", 40)))
        puts = asyncio.create_task(self._put_each_second(names))
        follows = asyncio.create_task(self._follow(int(given.get("streams", 1)), lasts))
        await puts
        if not (await asyncio.wait([follows], timeout=1000))[0]:
            follows.cancel()
            await asyncio.wait([follows])
        return f"{', '.join(self.seen) or 'nothing'}, ends: {', '.join(self.ends)}"

    async def _put_each_second(self, names: list[str]) -> None:
        for number, name in enumerate(names):
            await asyncio.sleep(1)
            self.world.put(name, **{f"key-{number}": "MQ=="})

    async def _follow(self, streams: int, lasts: timedelta) -> None:
        for _ in range(streams):
            try:
                async with self.world.following.watch(
                    SECRETS, NAMESPACE, resource_version=f"{self.version}", lasts=lasts
                ) as events:
                    async for event in events:
                        metadata = msgspec.json.decode(event.object)["metadata"]
                        self.version = int(metadata["resourceVersion"])
                        self.seen.append(f"{event.type} {metadata['name']} at {loop_time():.0f}")
            except ApiError as error:
                self.ends.append(f"{type(error).__name__} at {loop_time():.0f}: {error}")
            else:
                self.ends.append(f"end at {loop_time():.0f}")

    async def do_open(self) -> str:
        """Show how many watches the API server believes to be open."""
        streams = self.world.api._streams._open.values()
        return f"{sum(not one.is_closed for each in streams for _, one in each)} open"
