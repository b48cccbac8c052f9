"""Composition root of the sandbox: a simulated world, and the operator's own code on its clients.

Runs on whatever loop is running: a `VirtualTimeLoop`, where an hour takes a moment and one seed
always gives one story, or an ordinary loop, in real time. What is not here is what a simulated
world cannot have: sockets, and with them TLS, certificates and the admin server.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rollout_lab.admission.webhooks import HookCall
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.cluster import Cluster
from rollout_lab.flux import Flux, FluxTimes
from rollout_lab.model.history import History, Said
from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest, create
from rollout_lab.network.faults import Faults, NoFaults
from rollout_lab.nodes.behaviour import DEFAULT, Choose
from rollout_lab.process import ACTOR, SimulatedProcess, World
from rollout_lab.schemas.kinds import NAMESPACES
from rollout_lab.trace.lines import strip_time
from rollout_lab.virtual_loop.pace import SimulatedClock, StepTimes, loop_time
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Config
from rollout_operator.kube.api import JsonObject
from rollout_operator.telemetry import logs

if TYPE_CHECKING:
    from rollout_operator.gates.controller import Asks
    from rollout_operator.outbound import Outbound

EPOCH: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_WEBHOOKS_ON: Final = "-server-tls.enabled=true"
_NO_ELECTION: Final = "-leader-election.enabled=false"


class Sandbox:
    """A simulated world. Use with `async with`, inside of a running loop."""

    def __init__(
        self,
        *,
        seed: int = 0,
        choose: Choose = DEFAULT,
        pace: StepTimes | None = None,
        faults: Faults | None = None,
        namespace: str = "default",
        epoch: datetime = EPOCH,
        flux: FluxTimes | None = None,
        completes_on_delete: bool = False,
        open_outbound: "Callable[[timedelta], Outbound] | None" = None,
        asker: "Asks | None" = None,
    ) -> None:
        """Make a world with an empty namespace; `choose` tells how each of its pods behaves.

        `epoch` is the time at which it begins, and `flux` how long its controllers take.
        `open_outbound` opens the way to servers that tenants name, with the time of a request;
        `asker` answers the questions of health checks instead.
        `completes_on_delete`: StatefulSets under OnDelete are completed, as since Kubernetes 1.37.
        """
        self.namespace = namespace
        self.epoch = epoch
        self._began = loop_time()
        self.history = History()
        self.faults = faults or NoFaults()
        self._seed = seed
        self._processes: list[SimulatedProcess] = []
        self.api = SimulatedApi(
            self.history, elapsed=self.elapsed, epoch=epoch, rng=self.rng("api")
        )
        self.api.hooks = self._call_hook
        self.cluster = Cluster(
            self.api,
            rng=self.rng("cluster"),
            choose=choose,
            pace=pace or StepTimes(),
            elapsed=self.elapsed,
            completes_on_delete=completes_on_delete,
        )
        self.flux = Flux(self.api, rng=self.rng("flux"), times=flux)
        self._tasks = TaskStack()
        self._choice = self.rng("service")
        self._world = World(
            api=self.api,
            endpoints=self.cluster.endpoints,
            faults=self.faults,
            elapsed=self.elapsed,
            clock=self.clock,
            rng=self.rng,
            open_outbound=open_outbound,
            asker=asker,
        )

    async def __aenter__(self) -> Self:
        self.api.call_now(_create_namespace(self.namespace))
        self.cluster.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            await process.end()
        await self._tasks.stop()
        self.cluster.stop()
        self.api.stop()

    def start_flux(self) -> None:
        """Have the controllers of Flux work from now on."""
        self._tasks.start("flux", self.flux.run())

    def elapsed(self) -> timedelta:
        """Return the time since this world began."""
        return loop_time() - self._began

    def clock(self) -> SimulatedClock:
        """Return a clock that is right, for a process to have."""
        return SimulatedClock(self.epoch - self._began)

    def rng(self, purpose: str) -> random.Random:
        """Return the random source for a purpose, by the seed of this world."""
        return random.Random(f"{self._seed} {purpose}")

    def process(
        self,
        name: str = "operator-1",
        *,
        args: Sequence[str] = (),
        webhooks: bool = False,
        elects: bool = False,
        writes_events: bool = False,
    ) -> SimulatedProcess:
        """Return a process of the operator with these flags, not started yet.

        It acts without being elected unless it `elects`: a lease that is renewed every two seconds
        is most of what happens in a world. Nor does it write Events unless it is told to.

        Raises ConfigError for flags that make no configuration.
        """
        config = _read_flags(
            (f"-kubernetes.namespace={self.namespace}",)
            + ((_WEBHOOKS_ON,) if webhooks else ())
            + (() if elects else (_NO_ELECTION,))
            + tuple(args)
        )
        process = SimulatedProcess(self._world, name, config, writes_events=writes_events)
        self._processes.append(process)
        return process

    async def call(self, request: ApiRequest) -> ApiAnswer:
        """Call the API server as a person does. Raises Refusal."""
        answer = await self.api.call(request)
        if not answer.is_ok:
            raise ApiRefusal(
                answer.status, answer.reason, answer.message, retry_after=answer.retry_after
            )
        return answer

    def say(self, actor: str, text: str) -> None:
        """Have readers of the story know what a person does, and why."""
        self.history.add(Said(at=self.elapsed(), actor=actor, text=text))

    @contextmanager
    def listening(self, level: str = "info") -> Iterator[None]:
        """Take the operator's log into the history, from this level on, instead of to stderr."""
        logs.configure(level=level, write=self._take_line)
        try:
            yield
        finally:
            logs.configure()

    def _take_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\n")
        # Its own time is the machine's, not the world's.
        self.say(ACTOR.get(), strip_time(text))

    async def _call_hook(self, call: HookCall) -> bytes:
        """Call a process behind the Service. Raises OSError."""
        ready = [process for process in self._processes if process.is_serving]
        if not ready:
            raise ConnectionRefusedError("no endpoints available for service")
        return await self._choice.choice(ready).answer(call)


@lru_cache(maxsize=32)
def _read_flags(args: tuple[str, ...]) -> Config:
    return read_config(args)


def _create_namespace(name: str) -> ApiRequest:
    body: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return create(NAMESPACES, body, user="sandbox")
