"""A world for guides: all of the operator's features, pods that answer, and time that passes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from tests.demo.kept import write_kubeconfig
from tests.system.guarded import LAST_DOWNSCALE
from tests.system.hooked import PROBE, TLS_FLAGS
from tests.system.pages import DOCS, Happening, Terminal
from tests.world.api import PODS, Json
from tests.world.budgets import install_kinds
from tests.world.hooks import BUDGET_HOOKS, NO_DOWNSCALE, PREPARE_DOWNSCALE, Hooks, Registration
from tests.world.kubelet import Behaviour, Kind, by_image
from tests.world.nodes import Nodes
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import Missing, Snapshot
from tests.world.webpods import WebPods
from tests.world.world import World

GUIDES: Final = DOCS / "guides"
# Beside the Roles of the base and of the component `webhooks`.
COMPONENTS: Final = ("scaling", "mirroring")
HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, *BUDGET_HOOKS)
# Pods are called again that often; guides wait for what they say then.
FLAGS: Final = (*TLS_FLAGS, "-reconcile.interval=1s")
# What the pages write for the ports of Mimir, Loki and Tempo.
PORTS: Final = ("8080", "3100", "3200")
NAMESPACE: Final = "NAMESPACE"
CRASHING: Final = "registry.example/db:crashes"
CRASHES: Final = Behaviour(kind=Kind.CRASH_LOOP)
QUICK: Final = Behaviour(
    ready_after=timedelta(milliseconds=30), terminates_after=timedelta(milliseconds=10)
)


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """Where guides are followed."""

    world: World
    pods: WebPods
    operator: OperatorProcess
    hooks: Hooks

    async def follow(
        self,
        name: str,
        happenings: Mapping[str, Happening] | None = None,
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Do what a guide says, with other words where it would take too long.

        Raises AssertionError for what does not come out so.
        """
        terminal = Terminal(
            kubeconfig=write_kubeconfig(self.world),
            folder=self.world.folder,
            words={
                **dict.fromkeys(PORTS, f"{self.pods.port}"),
                NAMESPACE: self.world.namespace,
                **(words or {}),
            },
            happenings=happenings or {},
        )
        await terminal.follow(GUIDES / name)
        await self.world.judge.assert_clean()

    async def let_delay_pass(self, pods: Sequence[str], span: timedelta) -> None:
        """Wait until these pods are prepared for a delayed downscale, and make it long ago."""
        uids = await self.wait_delay(pods)
        for uid in uids:
            self.pods.delayed_since[uid] -= int(span.total_seconds())
        await self._restart()

    async def wait_delay(self, pods: Sequence[str]) -> list[str]:
        """Wait until these pods are prepared for a delayed downscale, and return their UIDs."""
        found = await self.world.api.items(PODS, self.world.namespace)
        uids = [one["metadata"]["uid"] for one in found if one["metadata"]["name"] in pods]
        await self.pods.wait_until(
            f"prepared for later: {pods}",
            lambda: all(uid in self.pods.delayed_since for uid in uids),
        )
        return uids

    async def _restart(self) -> None:
        """Have pods called at once; an operator that goes on calls them again after a minute."""
        self.operator.kill()
        self.operator.start()
        await self.operator.wait_ready()

    async def wait_no_delay(self) -> None:
        """Wait until no pod is prepared for a delayed downscale."""
        await self.pods.wait_until("all un-prepared", lambda: not self.pods.delayed_since)

    async def let_pass_since_downscale(self, zone: str, span: timedelta) -> None:
        """Wait until the downscale of a zone is on record, and make it long ago."""

        def check(now: Snapshot) -> Missing:
            return "" if _read_record(now.sets.get(zone)) else f"no {LAST_DOWNSCALE} on {zone}"

        await self.world.wait_until(check)
        then = f"{datetime.now(UTC) - span:%Y-%m-%dT%H:%M:%SZ}"
        await self.world.annotate(zone, **{LAST_DOWNSCALE: then})

    def assert_prepared(self, *pods: str, path: str) -> None:
        """Raise AssertionError unless each of these pods was prepared to go at a path, once."""
        found = [(one.pod, one.method) for one in self.pods.calls if one.path == path]
        assert sorted(found) == sorted((pod, "POST") for pod in pods), self.pods.describe()


async def open_guide(world: World, nodes: Nodes | None = None) -> Guide:
    """Start an operator with all its webhooks, and return once the API server calls them.

    Pods of zones that have nodes are bound to them, all others to no node in particular.
    """
    if nodes is not None:
        world.kubelet.place = nodes.place
    world.kubelet.choose = by_image({CRASHING: CRASHES}, QUICK)
    pods = await world.serve_pods()
    await install_kinds(world.api)
    await world.grant_webhooks()
    for component in COMPONENTS:
        await world.grant(component)
    (probe,) = await world.create(PROBE)
    operator = await world.operator(*FLAGS)
    hooks = await world.register(Registration(port=operator.tls_port, hooks=HOOKS))
    await hooks.wait_injected()
    await hooks.wait_called(probe)
    return Guide(world=world, pods=pods, operator=operator, hooks=hooks)


def _read_record(zone: Json | None) -> str:
    annotations = zone["metadata"].get("annotations", {}) if zone else {}
    return str(annotations.get(LAST_DOWNSCALE, ""))
