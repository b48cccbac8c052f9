"""Plays sequences on the real control plane, many at once, and records their transcripts."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Final, Self

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Access, connect
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.telemetry.metrics import Metrics
from tests.contract.controllers_pods import REAL_CHOICE
from tests.contract.hook_server import HookServer
from tests.contract.plays import Needs
from tests.contract.plays import Sequence as Played
from tests.contract.real import Lethe, RealSide
from tests.contract.world import World
from tests.world.api import NAMESPACES, SERVICE_ACCOUNTS, Api, ApiError
from tests.world.budgets import install_kinds
from tests.world.flux import install_flux
from tests.world.kubelet import Kubelet
from tests.world.plane import ADMIN, ControlPlane

AT_ONCE: Final = 16
"""Sequences played together: more only queue at the API server."""


class RealStage:
    """The control plane with all that sequences need there. Use with `async with`."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._stack = AsyncExitStack()
        self._api = plane.api()
        self._hooks = HookServer(plane)
        self.lethe = Lethe(plane)
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._api)
            await stack.enter_async_context(self._hooks)
            await install_kinds(self._api)
            await install_flux(self._api)
            clock = LoopClock()
            file = self._plane.folder / "contract.conf"
            self._plane.kubeconfig(file, self._plane.tokens[ADMIN])
            transport = await connect(
                Access(namespace="default", api_url=self._plane.url, config_file=str(file)), clock
            )
            stack.push_async_callback(transport.close)
            self._client = Client(transport, RateLimiter(0, 0), Metrics())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def record(self, played: Played) -> list[str]:
        """Play one sequence in a namespace of its own and return its transcript."""
        assert self._client is not None, "use `async with`"
        side = RealSide(
            plane=self._plane,
            api=self._api,
            hooks=self._hooks,
            client=self._client,
            lethe=self.lethe,
            namespace=f"contract-{secrets.token_hex(4)}",
        )
        await _create_namespace(self._api, side.namespace)
        try:
            world = World(side)
            if played.needs is Needs.CONTROLLERS:
                async with Kubelet(self._plane, side.namespace, REAL_CHOICE):
                    await played.play(world)
            else:
                await played.play(world)
            return world.transcript.render(has_texts=played.has_texts)
        finally:
            if played.needs is Needs.OBLIVION and not side.has_forgotten:
                await self.lethe.leave()
            await side.clear()


Recordings = Mapping[str, list[str] | Exception]


async def record_all(plane: ControlPlane, sequences: Sequence[Played]) -> Recordings:
    """Play sequences on a running control plane, many at once, each kind of need in turn.

    A sequence that fails is recorded by its error.
    """
    found: dict[str, list[str] | Exception] = {}
    async with RealStage(plane) as stage:
        await plane.stop_controllers()
        try:
            await _record_some(stage, _of(sequences, Needs.API), found)
            forgetful = _of(sequences, Needs.OBLIVION)
            stage.lethe.expect(len(forgetful))
            await _record_some(stage, forgetful, found)
        finally:
            plane.start_controllers()
        await _record_some(stage, _of(sequences, Needs.CONTROLLERS), found)
    return found


async def _record_some(
    stage: RealStage, some: Sequence[Played], found: dict[str, list[str] | Exception]
) -> None:
    waits = any(one.needs is Needs.OBLIVION for one in some)
    slots = asyncio.Semaphore(len(some) if waits else AT_ONCE)

    async def record(one: Played) -> list[str]:
        async with slots:
            return await stage.record(one)

    results = await asyncio.gather(*map(record, some), return_exceptions=True)
    for one, result in zip(some, results, strict=True):
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
        found[str(one)] = result


def _of(sequences: Sequence[Played], needs: Needs) -> list[Played]:
    return [one for one in sequences if one.needs is needs]


async def _create_namespace(api: Api, name: str) -> None:
    """Create a namespace with the account that pods need: no controller may be there to do it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await api.create(NAMESPACES, "", body)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with suppress(ApiError):  # the controller was faster
        await api.create(SERVICE_ACCOUNTS, name, account)
