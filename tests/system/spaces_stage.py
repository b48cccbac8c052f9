"""One process for several namespaces, for stories: each of them has a stage of its own."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from typing import Final

from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import GROUP_LABEL_LONG
from tests.system.hooked import calling
from tests.system.release_stage import FOLLOWED
from tests.system.review_stage import DOWNSCALE_HOOKS, ReviewStage
from tests.world.api import Json, Resource
from tests.world.budgets import install_kinds
from tests.world.hooks import INJECT_LABEL, NAMESPACE_LABEL, POD_EVICTION, Registration
from tests.world.world import World, beside, bind, granting, permit_following

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
CLUSTER_SCOPED: Final = frozenset(
    ("validatingwebhookconfigurations", "mutatingwebhookconfigurations", "nodes")
)
BATCHES: Final = "rollout_operator_multiaz_batch_duration_seconds_count"


class SpaceStage(ReviewStage):
    """One of the namespaces: `driven` sets are of a policy, and say their zone nowhere."""

    async def do_policy(self) -> None:
        zones = [
            ZoneSpec(name=f"db-zone-{letter}", group=None, replicas=1, labels={"app": "db"})
            for letter in "ab"
        ]
        self.driven = await self.world.create(*zones)
        body: Json = {
            "apiVersion": POLICIES.api_version,
            "kind": MULTI_AZ_ROLLOUTS.kind,
            "metadata": {"name": "db"},
            "spec": {
                "statefulSetSelector": {"matchLabels": {"app": "db"}},
                "rollingUpdate": {"intervalSeconds": 0},
            },
        }
        await self.world.post(POLICIES, body)

    async def do_driven(self, image: str) -> None:
        await self.world.set_image(self.driven, image)

    async def do_through(self) -> None:
        """Wait until the driven sets are rolled out."""
        await self.world.wait_adopted(self.driven)

    async def do_long(self) -> None:
        """Create zones that are grouped by the longer label."""
        spec = {"group": None, "replicas": 1, "labels": {GROUP_LABEL_LONG: "store"}}
        zones = [ZoneSpec(name=f"long-{letter}", **spec) for letter in "ab"]  # type: ignore[arg-type]
        self.names = await self.world.create(*zones)

    async def do_hooked(self, home: str) -> None:
        """Have reviews come to the operator of another namespace; the set `guarded` is proof."""
        wanted = Registration(
            port=self.operator().tls_port,
            hooks=(*DOWNSCALE_HOOKS, POD_EVICTION),
            labels={INJECT_LABEL: "true", NAMESPACE_LABEL: home},
        )
        await self.world.register(wanted, "guarded")


class SpacesStage(SpaceStage):
    """Its own namespace is `home`; `@b` stands for the name of another, `@self` for each."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.spaces: dict[str, SpaceStage] = {"home": self}
        self.begun = 0

    def _fill_in(self, part: str) -> str:
        for name, stage in self.spaces.items():
            part = part.replace(f"@{name}", stage.world.namespace)
        return super()._fill_in(part)

    async def do_start(self, *words: str) -> None:
        await super().do_start(*words)
        for stage in self.spaces.values():
            stage.operators, stage.last = self.operators, self.last

    async def do_beside(self, name: str, how: str = "") -> None:
        """Add a namespace, which may be `forbidden`."""
        space = beside(self.world, is_granted=not how)
        self.spaces[name] = SpaceStage(await self.running.enter_async_context(space))

    async def do_kinds(self) -> None:
        await install_kinds(self.world.api)
        await self.world.grant("multi-az-rollouts")

    async def do_nodes(self) -> None:
        """Let the operator follow nodes."""
        await self.running.enter_async_context(granting(self.world, permit_following("", "nodes")))

    async def do_following(self) -> None:
        """Let it find namespaces by what is in them, but for releases."""
        rules = [permit_following(*one) for one in FOLLOWED[:-1]]
        await self.running.enter_async_context(granting(self.world, *rules))

    async def do_bound(self, name: str) -> None:
        """Let it do in a namespace what the Roles there grant."""
        await bind(self.spaces[name].world, self.world)

    async def do_in(self, name: str, *words: str) -> str:
        return await self.spaces[name].act(shlex.join(words))

    async def do_each(self, *words: str) -> str:
        """Have a command done in all namespaces that are granted, one after the other."""
        return _join([await self._do(stage, [shlex.join(words)]) for stage in self._granted()])

    async def do_side(self, *commands: str) -> str:
        """Have commands done in all of them side by side."""
        return _join(await asyncio.gather(*(self._do(one, commands) for one in self._granted())))

    async def _do(self, stage: SpaceStage, commands: Sequence[str]) -> str:
        here, home = stage.world.namespace, self.world.namespace
        filled = (one.replace("@self", here).replace("@home", home) for one in commands)
        return "; ".join([await stage.act(one) for one in filled])

    def _granted(self) -> list[SpaceStage]:
        return [one for name, one in self.spaces.items() if name != "far"]

    # What shows

    async def do_reported(self) -> str:
        """Return which namespaces the status page has, by what it has of them."""
        operator = self.operator()
        document: Json = json.loads((await operator.fetch("/status.json"))[1])
        names = {one.world.namespace: name for name, one in self.spaces.items()}
        groups = [one for one in document["groups"] if one["name"] == "ingester"]
        spaces = document["namespaces"]
        found = {
            "groups": [one["namespace"] for one in groups],
            "policies": [one["namespace"] for one in document["policies"]],
            "ready": [one["name"] for one in spaces if one["is_ready"]],
            "not ready": [one["name"] for one in spaces if not one["is_ready"]],
        }
        shown = {what: sorted({names[one] for one in of}) for what, of in found.items()}
        return "; ".join(f"{what} {' '.join(of)}" for what, of in shown.items())

    async def do_series(self) -> str:
        """Say whether each series is there once, and which namespaces have one of batches."""
        lines = (await self.operator().metrics()).splitlines()
        series = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
        assert len(series) == len({*series})
        return " ".join(
            name
            for name, stage in self.spaces.items()
            if f'{BATCHES}{{namespace="{stage.world.namespace}",name="db"}}' in series
        )

    async def do_review(self, namespace: str, *parts: str) -> str:
        """Return the code of the answer to an eviction there."""
        async with calling(self.world, self.operator()) as caller:
            answer = await caller.evict(self._fill_in(namespace), "any-0")
        missing = [part for part in map(self._fill_in, parts) if part not in answer.message]
        return f"{answer.code}{f', not {missing} in {answer.message}' if missing else ''}"

    async def do_warned(self) -> str:
        """Return how often it is said that StatefulSets of the cluster may not be read."""
        lines = self.operator().log_lines()
        return str(sum("kind=StatefulSet" in one and "level=warn" in one for one in lines))

    async def do_judged(self) -> None:
        """Judge each namespace by itself."""
        watched = {one.world.namespace for one in self.spaces.values()}
        for one in self.spaces.values():
            one.world.judge.elsewhere = watched - {one.world.namespace}
            await one.world.judge.assert_clean()

    async def do_mark(self) -> None:
        """Let what is requested from now on be told."""
        self.begun = self.world.plane.audit_size()

    async def do_strays(self) -> str:
        """Return what was requested elsewhere, but for kinds of the cluster; and reads of nodes."""
        watched = {one.world.namespace for one in self.spaces.values()}
        entries = await self._list_requests()
        assert {one.get("objectRef", {}).get("namespace") for one in entries} >= watched
        strays = [
            one["requestURI"]
            for one in entries
            if (target := one.get("objectRef", {})).get("namespace") not in watched
            and target.get("resource") not in CLUSTER_SCOPED
        ]
        nodes = sum(one["requestURI"].endswith("/nodes?limit=1") for one in entries)
        return f"{strays or 'none'}, nodes {nodes}"

    async def do_watched(self) -> str:
        """Return what is watched in single namespaces, and whether StatefulSets are for all."""
        targets = [
            one["objectRef"] for one in await self._list_requests() if one["verb"] == "watch"
        ]
        others = {one.world.namespace for one in self.spaces.values() if one is not self}
        kinds = {one["resource"] for one in targets if one.get("namespace") in others}
        of_all = {one["resource"] for one in targets if "namespace" not in one}
        return f"{' '.join(sorted(kinds))}, for all {'statefulsets' in of_all}"

    async def _list_requests(self) -> list[Json]:
        await self.world.judge.settle()
        entries, _ = self.world.plane.read_audit(self.begun)
        return [one for one in entries if one["user"].get("username") == self.world.user]


def _join(found: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(found))
