"""The commands of stories of live reads: of groups of two zones, and of sets alone."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

from rollout_lab.schemas.patches import merge

from rollout_operator.controllers.observe import choose_most_live_reads
from rollout_operator.kube.api import ApiClient
from rollout_operator.model.names import ApiError, DecodeError, GroupName
from rollout_operator.model.objects import Group, Unreadable
from tests.controllers.fake_client import FakeClient, Json, pod_json, set_json
from tests.controllers.fed_context import FedContext
from tests.virtual_time import VirtualClock
from tests.web.client_stage import ClientStage


class ReadStage(ClientStage):
    """A process that reads; `groups` or `sets` says what there is."""

    def _build(self, sets: Sequence[Json], pods: Sequence[Json]) -> None:
        self.turns = asyncio.Semaphore(0)
        self._attend(FakeClient(sets, pods))
        self.context = FedContext(self.client, VirtualClock())
        self.context.sync(self.client)
        self.observer = self.context.make_observer(cast(ApiClient, self.client))

    def look(self) -> list[str]:
        calls = self.client.calls[self.shown :]
        self.shown += len(calls)
        return calls

    async def do_groups(self, *words: str) -> None:
        """Begin with groups of two zones of two pods, or so many; those of `odd` differ."""
        how = dict(word.split("=") for word in words if "=" in word)
        sets, pods = [], []
        for group in (word for word in words if "=" not in word):
            for name in (f"{group}-a", f"{group}-b"):
                key = "zone" if how.get("odd") == group else "name"
                match = {"rollout-group": group, key: name}
                many = int(how.get("pods", 2))
                labels = {"rollout-group": group}
                sets.append(set_json(name, replicas=many, labels=labels, selector=match))
                pods += [pod_json(name, ordinal) for ordinal in range(many)]
                for one in pods[-many:]:
                    one["metadata"]["labels"].update(match)
        self._build(sets, pods)

    async def do_sets(self, *names: str) -> None:
        """Begin with sets of three pods in group ingester."""
        pods = [pod_json(name, ordinal) for name in names for ordinal in range(3)]
        self._build([set_json(name) for name in names], pods)

    async def do_edit(self, name: str, patch: str) -> None:
        """Store a set, or a pod such as `a-0`, with this; the caches follow if they can."""
        plural = "statefulsets" if ("statefulsets", name) in self.client.objects else "pods"
        held = self.client.objects.get((plural, name)) or pod_json(name[0], int(name[2:]))
        self.client.put(plural, merge(held, json.loads(patch)))

    async def do_see(self) -> None:
        self.context.sync(self.client)

    async def do_spoilt(self, name: str) -> None:
        """Have only the cache not know what a set is like."""
        sets = self.context.sets
        [old] = [one for one in sets.list_all() if one.name == name]
        lost = Unreadable(
            kind="StatefulSet", namespace="test", name=name, uid=old.uid,
            resource_version="1", labels=old.labels, error="spoiled",
        )  # fmt: skip
        sets.replace_all([lost if one is old else one for one in sets.list_all()])

    async def do_turns(self) -> None:
        """Have each read of pods wait until `give` lets one go."""

        async def wait(plural: str) -> None:
            if plural == "pods":
                await self.turns.acquire()

        self.client.turn = wait

    async def do_give(self, many: str = "1") -> None:
        for _ in range(int(many)):
            await self.settle()
            self.turns.release()
        await self.settle()

    async def do_turn(self, seconds: str) -> None:
        """Have each read wait for its turn for so long."""

        async def wait(plural: str) -> None:
            await asyncio.sleep(float(seconds))

        self.client.turn = wait

    async def do_no_turn(self) -> None:
        """Have our own rate limits give no turn in time."""

        async def refuse(plural: str) -> None:
            await self.do_fail("throttled", "turn", "1")
            await self._go_on("turn")

        self.client.turn = refuse

    async def do_read(self, group: str) -> str:
        """Read a group live."""
        cached = self.observer.observe(GroupName(group))
        try:
            return _render(await self.observer.observe_live(cached))
        except ApiError as error:
            return type(error).__name__

    async def do_alone(self, name: str) -> str:
        """Read a set alone."""
        try:
            group = await self.observer.observe_alone(name)
        except (ApiError, DecodeError) as error:
            return type(error).__name__
        return f"{group.name}: {_render(group)}"

    async def do_most(self, qps: str) -> str:
        """Show how many groups are read at a time at this rate."""
        return str(choose_most_live_reads(float(qps)))


def _render(group: Group) -> str:
    found = []
    for zone in group.zones:
        ordinals = [pod.name.rpartition("-")[2] for pod in zone.pods]
        shown = ordinals if len(ordinals) < 5 else [ordinals[0], "..", ordinals[-1]]
        lost = [f"lost {pod.name.rpartition('-')[2]}" for pod in zone.unreadable_pods]
        found.append(" ".join([zone.sts.name, *shown, *lost]))
    age = group.snapshot_age
    return ", ".join(found) + f" {age.total_seconds():g}s old" * (age > timedelta(0))
