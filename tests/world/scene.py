"""One test's part of the world: a namespace with its kubelet, its judge and its operators."""

import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rollout_operator.lab.zones import ZoneSpec
from tests.world.api import NAMESPACES, PODS, STATEFULSETS, Api, ApiError
from tests.world.hooks import SETS, Hooks, Registration
from tests.world.judge import Judge
from tests.world.kubelet import Choose, Kubelet
from tests.world.manifests import (
    ACCOUNT,
    grant_shipped_role,
    grant_webhook_roles,
    remove_cluster_scoped,
)
from tests.world.operatorproc import OPERATOR, Launch, OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.proxy import FaultProxy
from tests.world.reviews import Reviewer, Verdict
from tests.world.sets import create_zones, wait_ready
from tests.world.webpods import WebPods

NO_GRACE: Final = timedelta(0)


class World:
    """A namespace of its own with everything that plays in it. Use with `async with`."""

    def __init__(self, plane: ControlPlane, folder: Path, choose: Choose | None = None) -> None:
        self.plane = plane
        self.folder = folder
        self.namespace = f"test-{secrets.token_hex(4)}"
        self.user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        self.token = ""
        """The operator's, from the ServiceAccount of the shipped manifests."""
        self.may_be_forbidden = False
        """Whether the test asks for more than the shipped Role allows, or takes verbs away."""
        self.api: Api = plane.api()
        self.kubelet = Kubelet(plane, self.namespace, choose)
        self.judge = Judge(plane, self.namespace, self.user)
        self.proxy = FaultProxy(plane)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            await self.plane.create_namespace(self.api, self.namespace)
            stack.push_async_callback(self._clear)
            await grant_shipped_role(self.api, self.namespace)
            self.token = await self.plane.fetch_token(self.api, self.namespace, ACCOUNT)
            for part in (self.kubelet, self.judge, self.proxy):
                await stack.enter_async_context(part)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def create(self, *zones: ZoneSpec) -> list[str]:
        """Create zones, wait until they are ready, and return their names."""
        names = await create_zones(self.api, self.namespace, zones)
        await wait_ready(self.api, self.namespace, names)
        return names

    def launch(self, *flags: str, url: str = "", is_through_proxy: bool = False) -> Launch:
        """Return how to start an operator here, under the shipped Role."""
        url = url or (self.proxy.url if is_through_proxy else self.plane.url)
        name = f"operator-{secrets.token_hex(2)}.conf"
        config = self.plane.kubeconfig(self.folder / name, self.token, url=url)
        return Launch(
            folder=self.folder,
            url=url,
            kubeconfig=config,
            namespace=self.namespace,
            flags=flags,
            command=OPERATOR,
        )

    async def operator(self, *flags: str, is_through_proxy: bool = False) -> OperatorProcess:
        """Start an operator and wait until it is ready; it is killed when the world ends."""
        launch = self.launch(*flags, is_through_proxy=is_through_proxy)
        process = await self._stack.enter_async_context(OperatorProcess(launch))
        await process.wait_ready()
        return process

    async def serve_pods(self, *, keeps_addresses: bool = False) -> WebPods:
        """Let every pod from now on answer HTTP at the address in its status."""
        pods = await self._stack.enter_async_context(WebPods(keeps_addresses=keeps_addresses))
        self.kubelet.addresses = pods
        return pods

    async def grant_webhooks(self) -> None:
        """Grant the operator what reviews and certificates need, besides the base Role."""
        granted = await grant_webhook_roles(self.api, self.namespace)
        self._stack.push_async_callback(remove_cluster_scoped, self.api, granted)

    async def register(self, wanted: Registration) -> Hooks:
        """Write webhook configurations; they are removed when the world ends."""
        return await self._stack.enter_async_context(Hooks(self.api, self.namespace, wanted))

    async def later_webhook(
        self, verdict: Verdict, probe: str, resources: Sequence[str] = SETS
    ) -> Reviewer:
        """Let a webhook of somebody else review the same requests, after the mutating ones.

        It is at work on return; `probe` is the StatefulSet that proves it, by dry runs.
        """
        reviewer = await self._stack.enter_async_context(Reviewer(self.plane.pki))
        wanted = Registration(
            port=reviewer.port,
            hooks=("later",),
            resources=resources,
            labels={},
            ca_bundle=self.plane.pki.ca.read_bytes(),
        )
        await (await self.register(wanted)).wait_called(probe)
        reviewer.seen.clear()
        reviewer.verdict = verdict
        return reviewer

    async def assert_permitted(self) -> None:
        """Raise AssertionError where an operator asked for what the shipped Role forbids."""
        if not self.may_be_forbidden:
            forbidden = [call for call in await self.judge.calls() if call.code in (401, 403)]
            assert not forbidden, f"SEC-17: {forbidden}"

    async def _clear(self) -> None:
        """Remove what would keep the controllers busy; nobody waits for the namespace's end."""
        with suppress(ApiError):
            for resource, grace in ((STATEFULSETS, None), (PODS, NO_GRACE)):
                await self.api.delete(
                    resource, self.namespace, grace=grace, propagation="Background"
                )
            await self.api.delete(NAMESPACES, "", self.namespace)
