"""Sequences on the sandbox, in virtual time: no process, no socket, some milliseconds each."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from rollout_lab.admission.webhooks import HookCall
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.cluster import Cluster
from rollout_lab.model.history import History
from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import NoFaults
from rollout_lab.network.link import Link
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.virtual_loop.pace import StepTimes

from rollout_operator.kube.api import JsonObject
from rollout_operator.kube.rate_limit import RateLimiter
from tests.contract.controllers_pods import SIMULATED_CHOICE
from tests.contract.plays import Needs, Sequence
from tests.contract.reviews import answer_review
from tests.contract.sides import NAMESPACES, Clients, Decide, Silence
from tests.contract.world import World

EPOCH: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMESPACE: Final = "contract-sandbox"
DEFAULT_PACE: Final = StepTimes()
# A certificate's place: the sandbox does not look into it.
BUNDLE: Final = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="


@dataclass(kw_only=True)
class SandboxSide:
    """A simulated API server, for one sequence."""

    api: SimulatedApi
    client: SimulatedClient
    namespace: str = NAMESPACE
    decisions: dict[str, Decide] = field(default_factory=dict)

    async def call(self, request: ApiRequest) -> ApiAnswer:
        return await self.api.call(request)

    @asynccontextmanager
    async def watch(
        self, request: ApiRequest
    ) -> AsyncIterator[AsyncIterator[JsonObject] | ApiAnswer]:
        try:
            stream = self.api.open_watch(request)
        except ApiRefusal as refusal:
            yield refusal.answer()
            return

        async def events() -> AsyncIterator[JsonObject]:
            async for event in stream:
                yield {"type": event.type, "object": msgspec.json.decode(event.body)}

        try:
            yield events()
        finally:
            stream.close()

    def hook_url(self, path: str) -> tuple[str, str]:
        return f"https://localhost:1{path}", BUNDLE

    def attend(self, path: str, decide: Decide) -> None:
        self.decisions[path] = decide

    def clients(self) -> Clients:
        return self.client

    async def forget_past(self) -> None:
        self.api.compact()

    def send_bookmarks(self) -> None:
        self.api.send_bookmarks()

    async def pause(self, span: timedelta) -> None:
        await asyncio.sleep(span.total_seconds())

    async def answer_hook(self, call: HookCall) -> bytes:
        """Answer one review as the sequence decides."""
        path = call.path.partition("?")[0]
        review: Any = msgspec.json.decode(call.body)
        verdict = await self.decisions[path](review["request"])
        match verdict:
            case Silence():
                await asyncio.Event().wait()
                raise TimeoutError
            case _:
                return answer_review(call.body, verdict)


def play_simulated(
    played: Sequence, *, seed: int = 0, pace: StepTimes = DEFAULT_PACE
) -> list[str] | Exception:
    """Play a sequence on a sandbox of its own and return its transcript, or why it broke off.

    That may be NotModelled: the sandbox says what it does not know.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_outcome(played, random.Random(seed), pace))


async def _outcome(played: Sequence, rng: random.Random, pace: StepTimes) -> list[str] | Exception:
    (found,) = await asyncio.gather(_play(played, rng, pace), return_exceptions=True)
    if isinstance(found, BaseException) and not isinstance(found, Exception):
        raise found
    return found


async def _play(played: Sequence, rng: random.Random, pace: StepTimes) -> list[str]:
    elapsed = _stopwatch()
    api = SimulatedApi(History(), elapsed=elapsed, epoch=EPOCH, rng=rng)
    link = Link("operator-1", faults=NoFaults(), rng=rng)
    unlimited = RateLimiter(0, 0)
    side = SandboxSide(api=api, client=SimulatedClient(api, link, name="acting", limits=unlimited))
    api.hooks = side.answer_hook
    body: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    made = await api.call(ApiRequest(verb="create", resource=NAMESPACES, body=body))
    assert made.is_ok, made.message
    cluster = Cluster(
        api, rng=rng, elapsed=elapsed, choose=SIMULATED_CHOICE, pace=pace, completes_on_delete=True
    )
    if played.needs is Needs.CONTROLLERS:
        cluster.start()
    try:
        world = World(side)
        await played.play(world)
        return world.transcript.render(has_texts=played.has_texts)
    finally:
        cluster.stop()


def _stopwatch() -> Callable[[], timedelta]:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    return lambda: timedelta(seconds=loop.time() - begin)
