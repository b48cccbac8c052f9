"""Operators as a Deployment keeps them: each that ends is started again, and found by a Service.

A replica that is killed begins again in its pod, as a container does, or in another pod, as after
the loss of a node. Which of both matters: an earlier process of the same pod is no obstacle to
taking the Lease.
"""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.system.hooked import TLS_FLAGS
from tests.world.operatorproc import OperatorProcess
from tests.world.service import Service
from tests.world.world import World

# As shipped, but for the delay after SIGTERM: it only has to be longer than that of the Service.
FLAGS: Final = (*TLS_FLAGS, "-log.level=info", "-server-tls.shutdown-delay=2s")
# A readiness probe every five seconds, and three of them that fail.
UNREADY_AFTER: Final = timedelta(seconds=15)
START_LIMIT: Final = timedelta(seconds=60)
POLL_EVERY: Final = timedelta(milliseconds=50)
# What a process says as it ends by itself, with exit code 1: the next may have ended, too.
SUPERSEDED: Final = ("another process acts", "names no holder")


class Replica(msgspec.Struct):
    process: OperatorProcess
    pod: str
    is_frozen: bool = False
    is_ending: bool = False
    """Whether it has had SIGTERM: then its end is expected."""
    ready_since: float = math.inf
    """On the monotonic clock: since when nothing has happened to it."""

    @property
    def is_ready(self) -> bool:
        return self.ready_since < math.inf


@dataclass(slots=True)
class Replicas:
    service: Service
    members: list[Replica] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    """Ends that nothing explains."""
    superseded: int = 0
    """How often one found its Lease taken, and began anew."""
    _names: Iterator[int] = field(default_factory=itertools.count)

    def find(self, holder: str) -> Replica | None:
        """Return the replica that a Lease names, None where none of these has the name."""
        return next((one for one in self.members if holder.startswith(f"{one.pod}_")), None)

    def list_running(self) -> Sequence[Replica]:
        """Return those that are neither frozen nor about to end."""
        return [one for one in self.members if not (one.is_frozen or one.is_ending)]

    def start(self, one: Replica, *, in_new_pod: bool) -> None:
        """Start a process that has ended."""
        if in_new_pod:
            self._name(one)
        one.process.start()

    def kill(self, one: Replica, *, in_new_pod: bool) -> float:
        """Send SIGKILL and start it again at once; return when it died."""
        self._count_out(one)
        one.process.kill()
        died = time.monotonic()
        self.start(one, in_new_pod=in_new_pod)
        return died

    async def end(self, one: Replica) -> None:
        """Send SIGTERM, as the kubelet does, and start another pod in its place."""
        one.is_ending, one.ready_since = True, math.inf
        code = await self.service.end(one.process)
        if code != 0:
            self.unexpected.append(f"{one.pod} ended with {code} after SIGTERM")
        self.start(one, in_new_pod=True)
        one.is_ending = False

    async def freeze(self, one: Replica, span: timedelta) -> None:
        """Send SIGSTOP, and SIGCONT after so long; found not to be ready on the way."""
        one.is_frozen, one.ready_since = True, math.inf
        one.process.pause()
        await asyncio.sleep(min(span, UNREADY_AFTER).total_seconds())
        self.service.remove(one.process)
        await asyncio.sleep(max(span - UNREADY_AFTER, timedelta(0)).total_seconds())
        one.process.resume()
        one.is_frozen = False

    async def watch_over(self) -> None:
        """Start what has ended by itself, and lead to what is ready, until cancelled."""
        while True:
            for one in self.list_running():
                if not one.process.is_running:
                    self._record_end(one)
                    self.start(one, in_new_pod=False)
                elif not one.is_ready and await one.process.is_ready():
                    self.count_in(one)
            await asyncio.sleep(POLL_EVERY.total_seconds())

    def _record_end(self, one: Replica) -> None:
        code, tail = one.process.child.exit_code, one.process.child.tail()
        if code == 1 and any(text in tail for text in SUPERSEDED):
            self.superseded += 1
        else:
            self.unexpected.append(f"{one.pod} ended with {code}\n{tail}")
        self._count_out(one)

    def _count_out(self, one: Replica) -> None:
        one.ready_since = math.inf
        self.service.remove(one.process)

    def count_in(self, one: Replica) -> None:
        """Have the Service lead to one that is ready."""
        if not self.service.leads_to(one.process):
            self.service.add(one.process)
        one.ready_since = time.monotonic()

    def _name(self, one: Replica) -> None:
        """Give it the name of a pod that there was not before."""
        one.pod = f"pod-{next(self._names)}"
        launch = one.process.launch
        one.process.launch = replace(launch, env={**launch.env, "POD_NAME": one.pod})

    def add(self, process: OperatorProcess) -> Replica:
        """Count in a process that is not running, as a pod of its own."""
        one = Replica(process=process, pod="")
        self._name(one)
        self.members.append(one)
        return one


@asynccontextmanager
async def replicate(world: World, service: Service, count: int) -> AsyncIterator[Replicas]:
    """Start so many operators behind a Service, and yield them once all are ready."""
    replicas = Replicas(service)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            process = OperatorProcess(world.launch(*FLAGS))
            replicas.add(process)
            await stack.enter_async_context(process)
        for one in replicas.members:
            await one.process.wait_ready(START_LIMIT)
            replicas.count_in(one)
        yield replicas
