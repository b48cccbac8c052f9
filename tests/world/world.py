"""One test's part of the world: a namespace, or several, with kubelet, judge and operators."""

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from rollout_lab.zones import ZoneSpec

from tests.world import sets
from tests.world.api import (
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    STATEFULSETS,
    Api,
    ApiError,
    Json,
    Resource,
)
from tests.world.hooks import Hooks, Registration
from tests.world.judge import Judge
from tests.world.kubelet import Choose, Kubelet, image_of
from tests.world.manifests import (
    ACCOUNT,
    apply_manifests,
    grant_component,
    grant_shipped_role,
    remove_cluster_scoped,
)
from tests.world.operatorproc import Launch, OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.proxy import FaultProxy
from tests.world.sets import WAIT_LIMIT, Check, Missing, Snapshot
from tests.world.webpods import WebPods

NO_GRACE: Final = timedelta(0)
# A demo that is kept is played with for hours.
TOKEN_LIFE: Final = timedelta(days=1)


class World:
    """A namespace of its own with everything that plays in it. Use with `async with`."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        choose: Choose | None = None,
        *,
        namespace: str = "",
    ) -> None:
        self.plane = plane
        self.folder = folder
        self.namespace = namespace or f"test-{secrets.token_hex(4)}"
        self.user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        self.token = ""
        """The operator's, from the ServiceAccount of the shipped manifests."""
        self.may_be_forbidden = False
        """Whether the test wants more than the shipped Role allows, or takes verbs away."""
        self.api: Api = plane.api()
        self.kubelet = Kubelet(plane, self.namespace, choose)
        self.judge = Judge(plane, self.namespace, self.user)
        self.proxy = FaultProxy(plane)
        self._granted: set[tuple[str, ...]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            await self.plane.create_namespace(self.api, self.namespace)
            stack.push_async_callback(self._clear)
            await grant_shipped_role(self.api, self.namespace)
            self.token = await self.plane.fetch_token(self.api, self.namespace, ACCOUNT, TOKEN_LIFE)
            for part in (self.kubelet, self.judge, self.proxy):
                await stack.enter_async_context(part)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stack.__aexit__(*raised)

    async def create(self, *zones: ZoneSpec) -> list[str]:
        """Create zones, wait until they are ready, and return their names."""
        names = await sets.create_zones(self.api, self.namespace, zones)
        await self.wait_ready(names)
        return names

    # Objects of the namespace

    async def get(self, resource: Resource, name: str) -> Json:
        return await self.api.get(resource, self.namespace, name)

    async def post(self, resource: Resource, body: Json) -> Json:
        return await self.api.create(resource, self.namespace, body)

    async def patch(
        self, resource: Resource, name: str, patch: object, *, kind: str = "merge"
    ) -> Json:
        return await self.api.patch(resource, self.namespace, name, patch, kind=kind)

    async def delete(self, resource: Resource, name: str, *, propagation: str = "") -> None:
        await self.api.delete(resource, self.namespace, name, propagation=propagation)

    async def set_image(self, names: Iterable[str], image: str) -> None:
        await sets.set_image(self.api, self.namespace, names, image)

    async def set_replicas(self, name: str, replicas: int) -> None:
        await self.patch(STATEFULSETS, name, {"spec": {"replicas": replicas}})

    async def annotate(self, name: str, **changes: str | None) -> None:
        """Set annotations of a set by key, or remove them with None (use `**{"a/b": "c"}`)."""
        await self.patch(STATEFULSETS, name, {"metadata": {"annotations": changes}})

    async def label(self, name: str, **changes: str | None) -> None:
        """Set labels of a set by key, or remove them with None."""
        await self.patch(STATEFULSETS, name, {"metadata": {"labels": changes}})

    # Waits: each raises TimeoutError with what is missing

    async def wait_until(self, check: Check, limit: timedelta = WAIT_LIMIT) -> Snapshot:
        """Watch until `check` finds nothing missing and return that state."""
        return await sets.wait_until(self.api, self.namespace, check, limit)

    async def wait_ready(self, names: Sequence[str]) -> Snapshot:
        return await self.wait_until(sets.each_of(names, sets.missing_ready))

    async def wait_rolled(self, names: Sequence[str]) -> Snapshot:
        """Wait until each set is ready, wholly on its update revision, and its status says so."""
        return await self.wait_until(sets.each_of(names, sets.missing_rolled))

    async def wait_adopted(self, names: Sequence[str], limit: timedelta = WAIT_LIMIT) -> None:
        await sets.wait_adopted(self.api, self.namespace, names, limit)

    async def wait_pod(self, name: str, what: str, holds: Callable[[Json], bool]) -> Json:
        def check(now: Snapshot) -> Missing:
            pod = now.pods.get(name)
            return "" if pod is not None and holds(pod) else f"{name} is not {what}"

        return (await self.wait_until(check)).pods[name]

    async def wait_image(self, pod: str, image: str) -> None:
        await self.wait_pod(pod, f"at {image}", lambda found: image_of(found) == image)

    async def roll(self, names: Sequence[str], image: str, limit: timedelta = WAIT_LIMIT) -> None:
        """Give each set a new template, and wait until it is rolled out and adopted."""
        await self.set_image(names, image)
        await self.wait_adopted(names, limit)

    # What plays in it

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
            command=(),
        )

    async def operator(self, *flags: str, is_through_proxy: bool = False) -> OperatorProcess:
        """Start an operator and wait until it is ready; it is killed when the world ends."""
        launch = self.launch(*flags, is_through_proxy=is_through_proxy)
        process = await self._stack.enter_async_context(OperatorProcess(launch))
        await process.wait_ready()
        return process

    async def serve_pods(self) -> WebPods:
        """Let every pod from now on answer HTTP at the address in its status."""
        pods = await self._stack.enter_async_context(WebPods())
        self.kubelet.addresses = pods
        return pods

    async def grant(self, component: str, *, verbs: Collection[str] = ()) -> None:
        """Grant what a component does, once; where verbs are named, its rules of these only.

        With `webhooks` comes the empty Secret.
        """
        if (asked := (component, *verbs)) not in self._granted:
            self._granted.add(asked)
            granted = await grant_component(self.api, self.namespace, component, verbs)
            self._stack.push_async_callback(remove_cluster_scoped, self.api, granted)

    async def register(self, wanted: Registration, probe: str = "") -> Hooks:
        """Write webhook configurations; they are removed when the world ends.

        With a set for proof return once the API server calls the operator by all of them.
        """
        hooks = await self._stack.enter_async_context(Hooks(self.api, self.namespace, wanted))
        if probe:
            await hooks.wait_injected()
            await hooks.wait_called(probe)
        return hooks

    async def assert_permitted(self) -> None:
        """Raise AssertionError where an operator requested what the shipped Role forbids."""
        if not self.may_be_forbidden:
            forbidden = [
                call for call in await self.judge.calls(with_events=True) if call.code in (401, 403)
            ]
            assert not forbidden, f"SEC-17: {forbidden}"

    async def _clear(self) -> None:
        """Remove what would keep the controllers busy; nothing waits for the namespace's end."""
        with suppress(ApiError, TimeoutError):  # thousands of pods take a while
            for resource, grace in ((STATEFULSETS, None), (PODS, NO_GRACE)):
                await self.api.delete(
                    resource, self.namespace, grace=grace, propagation="Background"
                )
            await self.api.delete(NAMESPACES, "", self.namespace)


_AUTHORIZATION: Final = "rbac.authorization.k8s.io"


@asynccontextmanager
async def beside(home: World, *, is_granted: bool = True) -> AsyncIterator[World]:
    """Yield one more namespace, whose Roles are bound to the operator of `home`."""
    world = World(home.plane, home.folder, home.kubelet.choose)
    world.judge = Judge(home.plane, world.namespace, home.user)
    async with world:
        world.may_be_forbidden = not is_granted
        await world.grant("webhooks")
        await world.grant("multi-az-rollouts")
        if is_granted:
            await bind(world, home)
        yield world


async def bind(world: World, home: World) -> None:
    """Let the operator of `home` do in this namespace what the Roles of it grant."""
    for binding in await world.api.items(ROLE_BINDINGS, world.namespace):
        name = binding["metadata"]["name"]
        await world.patch(ROLE_BINDINGS, name, {"subjects": [_account(home)]})


def permit_following(group: str, plural: str) -> Json:
    """Return the rule that a kind may be listed and watched."""
    return {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}


@asynccontextmanager
async def granting(home: World, *rules: Json) -> AsyncIterator[None]:
    """Grant the operator of `home` rules in the whole cluster, inside a block."""
    name = f"spaces-{home.namespace}"
    granted: list[Json] = [
        {"kind": "ClusterRole", "rules": [*rules]},
        {
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": _AUTHORIZATION, "kind": "ClusterRole", "name": name},
            "subjects": [_account(home)],
        },
    ]
    head = {"apiVersion": f"{_AUTHORIZATION}/v1", "metadata": {"name": name}}
    granted = [{**head, **one} for one in granted]
    await apply_manifests(home.api, "", granted)
    yield
    await remove_cluster_scoped(home.api, granted)


def _account(home: World) -> Json:
    return {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home.namespace}
