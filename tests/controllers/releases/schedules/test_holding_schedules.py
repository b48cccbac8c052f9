"""Versions that are announced before a schedule has its gate, in a simulated cluster: RELB-42.

A world begins on a Friday at 03:04:05.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from rollout_lab.process import SimulatedProcess

from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    IMAGE_POLICIES,
    NAMESPACES,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    JsonObject,
)
from tests.controllers.releases.world import ReleaseSandbox
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough

ALWAYS: Final[JsonObject] = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
WEB: Final[JsonObject] = {**ALWAYS, "rolloutSelector": {"matchLabels": {"tier": "web"}}}
ODD: Final[JsonObject] = {
    "matchExpressions": [{"key": "tier", "operator": "Like", "values": ["w"]}]
}
CLOSED: Final = "RolloutSchedule prod/freeze is closed, and its gate does not say so yet"


class GapSandbox(ReleaseSandbox):
    """A Rollout that has 1.0.0, and what may hold 1.1.0."""

    process: SimulatedProcess

    async def announce(self, tag: str) -> None:
        await self.sandbox.flux.announce(self.sandbox.namespace, "app", tag)

    async def history(self, name: str = "app") -> list[str]:
        """Return the tags that were deployed, the newest first."""
        status = await self.get_status(ROLLOUTS, name)
        return [one["version"]["tag"] for one in status.get("history", ())]

    async def condition(self) -> tuple[str, str]:
        """Return reason and message of `GatesPassing`."""
        status = await self.get_status(ROLLOUTS, "app")
        conditions = {one["type"]: one for one in status["conditions"]}
        return conditions["GatesPassing"]["reason"], conditions["GatesPassing"]["message"]


@asynccontextmanager
async def deployed(*unlisted: str) -> AsyncIterator[GapSandbox]:
    """Run a cluster and a process by which 1.0.0 is deployed; it may not list some kinds."""
    async with GapSandbox.opened(namespace="prod") as world:
        world.sandbox.api.forbidden |= {("operator-1", "list", plural) for plural in unlisted}
        policy = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}
        await world.create(IMAGE_POLICIES[0], "app", policy)
        source = {"interval": "1m", "url": "oci://registry.example/app"}
        owned = {"rollout.kuberik.com/rollout": "app"}
        await world.create(OCI_REPOSITORIES[0], "app", source, annotations=owned)
        await world.create_rollout()
        await world.announce("1.0.0")
        world.process = await world.start()
        await world.sleep(5)
        assert await world.history() == ["1.0.0"]
        yield world


@pytest.mark.parametrize("pause", [0, 0.01, 0.05, 0.2])
@in_virtual_time
async def test_a_schedule_holds_from_its_first_moment(pause: float) -> None:
    """RELB-42: not only once its gate is written."""
    async with deployed() as world:
        await world.create(ROLLOUT_SCHEDULES, "freeze", ALWAYS)
        await world.sleep(pause)
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]
        assert await world.condition() == ("SomeGatesBlocking", "not passing: freeze-app")


@pytest.mark.parametrize("closing", ["RolloutSchedule", "ClusterRolloutSchedule", "RolloutGate"])
@in_virtual_time
async def test_what_closes_while_a_deployment_waits_to_be_recorded_holds_it(closing: str) -> None:
    """RELB-42: a request may wait for its turn for as long as others are before it."""
    names = ("a", "b", "c")
    slow = ("-kubernetes.client-qps=0.2", "-kubernetes.client-burst=1")
    async with GapSandbox.opened(namespace="prod") as world:
        policy = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}
        await world.create(IMAGE_POLICIES[0], "app", policy)
        for name in names:
            await world.create_rollout(name)
        await world.announce("1.0.0")
        await world.start(*slow)
        await world.sleep(300)
        await world.announce("1.1.0")
        await world.sleep(1)
        waiting = [name for name in names if await world.history(name) == ["1.0.0"]]
        assert len(waiting) >= 2
        for name in names if closing == "RolloutGate" else ("freeze",):
            resource = {
                "RolloutSchedule": ROLLOUT_SCHEDULES,
                "ClusterRolloutSchedule": CLUSTER_ROLLOUT_SCHEDULES,
                "RolloutGate": ROLLOUT_GATES,
            }[closing]
            gate: JsonObject = {"rolloutRef": {"name": name}, "passing": False}
            await world.create(resource, name, gate if resource is ROLLOUT_GATES else ALWAYS)
        await world.sleep(300)
        assert [name for name in names if await world.history(name) == ["1.0.0"]] == waiting


@pytest.mark.parametrize("pause", [0, 0.01, 0.05, 0.2])
@in_virtual_time
async def test_a_change_of_a_schedule_counts_at_once(pause: float) -> None:
    """RELB-42: though its gate is open still."""
    async with deployed() as world:
        await world.create(ROLLOUT_SCHEDULES, "freeze", {**ALWAYS, "action": "Allow"})
        await world.sleep(5)
        assert world.list_all(ROLLOUT_GATES)[0]["spec"]["passing"] is True
        await world.patch(ROLLOUT_SCHEDULES, "freeze", {"spec": {"action": "Deny"}})
        await world.sleep(pause)
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]


@pytest.mark.parametrize("pause", [0, 0.01, 0.05, 0.2])
@in_virtual_time
async def test_labels_of_a_rollout_count_at_once(pause: float) -> None:
    """RELB-42: by these a schedule selects it."""
    async with deployed() as world:
        await world.create(ROLLOUT_SCHEDULES, "freeze", WEB)
        await world.sleep(5)
        await world.patch(ROLLOUTS, "app", {"metadata": {"labels": {"tier": "web"}}})
        await world.sleep(pause)
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]


@pytest.mark.parametrize("pause", [0, 0.3, 1])
@in_virtual_time
async def test_a_process_that_starts_obeys_schedules_first(pause: float) -> None:
    """RELB-42: also one that closed while no process was there."""
    brief: JsonObject = {"timeRange": {"start": "03:05", "end": "03:30"}}
    async with deployed() as world:
        await world.create(ROLLOUT_SCHEDULES, "freeze", {**ALWAYS, "rules": [brief]})
        await world.sleep(5)
        world.process.crash()
        await world.sleep(120)
        assert world.list_all(ROLLOUT_GATES)[0]["spec"]["passing"] is True
        if not pause:
            await world.announce("1.1.0")
        world.process.start()
        await world.sleep(pause)
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]


@in_virtual_time
async def test_a_schedule_of_the_cluster_counts_without_its_gate() -> None:
    """RELB-42: by the labels of the namespace, which may change."""
    async with deployed() as world:
        world.sandbox.api.forbidden.add(("operator-1", "create", "rolloutgates"))
        spec: JsonObject = {**ALWAYS, "namespaceSelector": {"matchLabels": {"env": "prod"}}}
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", spec)
        await world.patch(NAMESPACES, "prod", {"metadata": {"labels": {"env": "prod"}}})
        await world.sleep(5)
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]
        text = CLOSED.replace("RolloutSchedule prod/", "ClusterRolloutSchedule ")
        assert await world.condition() == ("SchedulesBlocking", text)
        await world.patch(NAMESPACES, "prod", {"metadata": {"labels": {"env": "dev"}}})
        await world.sleep(2)
        assert await world.history() == ["1.1.0", "1.0.0"]


@in_virtual_time
async def test_one_that_closes_while_namespaces_are_not_known_holds() -> None:
    """RELB-42: its gate is open still, and stays so until it is known again what it selects."""
    async with deployed() as world:
        await world.patch(NAMESPACES, "prod", {"metadata": {"labels": {"env": "prod"}}})
        nights = {"name": "nights", "timeRange": {"start": "03:20", "end": "06:00"}}
        spec: JsonObject = {
            **ALWAYS,
            "namespaceSelector": {"matchLabels": {"env": "prod"}},
            "rules": [nights],
        }
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", spec)
        await world.sleep(30)
        assert world.list_all(ROLLOUT_GATES)[0]["spec"]["passing"] is True
        refused = {("operator-1", verb, "namespaces") for verb in ("list", "watch")}
        world.sandbox.api.forbidden |= refused
        await world.sleep(20 * 60)
        assert world.list_all(ROLLOUT_GATES)[0]["spec"]["passing"] is True
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]
        text = CLOSED.replace("RolloutSchedule prod/", "ClusterRolloutSchedule ")
        assert await world.condition() == ("SchedulesBlocking", text)
        world.sandbox.api.forbidden -= refused
        await world.sleep(120)
        assert world.list_all(ROLLOUT_GATES)[0]["spec"]["passing"] is False
        assert await world.history() == ["1.0.0"]


@in_virtual_time
async def test_namespaces_that_may_not_be_listed_any_more_are_named() -> None:
    """RELB-42: the schedule selects another namespace, but labels may have changed meanwhile."""
    async with deployed() as world:
        spec: JsonObject = {**ALWAYS, "namespaceSelector": {"matchLabels": {"env": "prod"}}}
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", spec)
        await world.sleep(30)
        refused = {("operator-1", verb, "namespaces") for verb in ("list", "watch")}
        world.sandbox.api.forbidden |= refused
        await world.sleep(20 * 60)
        await world.announce("1.1.0")
        await world.sleep(120)
        assert await world.history() == ["1.0.0"]
        reason, text = await world.condition()
        assert reason == "SchedulesBlocking"
        begin = "ClusterRolloutSchedule freeze: Namespace: the cache is too old: "
        assert text.startswith(begin)
        assert "403" in text
        assert text.endswith("; it has no gate here")
        world.sandbox.api.forbidden -= refused
        await world.sleep(120)
        assert await world.history() == ["1.1.0", "1.0.0"]


@in_virtual_time
async def test_schedules_of_a_namespace_do_not_hide_one_of_the_cluster() -> None:
    """RELB-42: the reason names three, and a tenant may have a hundred that hold as well."""
    async with deployed() as world:
        world.sandbox.api.forbidden.add(("operator-1", "create", "rolloutgates"))
        for name in "abc":
            await world.create(ROLLOUT_SCHEDULES, name, ALWAYS)
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", ALWAYS)
        await world.sleep(5)
        await world.announce("1.1.0")
        await world.sleep(5)
        assert await world.history() == ["1.0.0"]
        reason, text = await world.condition()
        assert reason == "SchedulesBlocking"
        assert text.startswith("ClusterRolloutSchedule freeze is closed")


@in_virtual_time
async def test_a_schedule_whose_gate_is_refused_is_obeyed_all_the_same() -> None:
    """RELB-42: it holds, says why, and opens by the clock."""
    async with deployed() as world:
        world.sandbox.api.forbidden.add(("operator-1", "create", "rolloutgates"))
        brief: JsonObject = {"timeRange": {"start": "03:00", "end": "03:10"}}
        await world.create(ROLLOUT_SCHEDULES, "freeze", {**ALWAYS, "rules": [brief]})
        await world.announce("1.1.0")
        await world.sleep(300)
        assert world.list_all(ROLLOUT_GATES) == []
        assert await world.history() == ["1.0.0"]
        assert await world.condition() == ("SchedulesBlocking", CLOSED)
        await world.sleep(120)
        assert await world.history() == ["1.1.0", "1.0.0"]


@in_virtual_time
async def test_a_schedule_that_is_gone_holds_nothing() -> None:
    """RELB-42: the Rollout is reconciled again as soon as it goes."""
    async with deployed() as world:
        world.sandbox.api.forbidden.add(("operator-1", "create", "rolloutgates"))
        await world.create(ROLLOUT_SCHEDULES, "freeze", ALWAYS)
        await world.announce("1.1.0")
        await world.sleep(30)
        assert await world.condition() == ("SchedulesBlocking", CLOSED)
        await world.delete(ROLLOUT_SCHEDULES, "freeze")
        await world.sleep(2)
        assert await world.history() == ["1.1.0", "1.0.0"]


@in_virtual_time
async def test_a_schedule_that_does_not_say_what_it_selects_holds_what_has_no_gate_of_it() -> None:
    """RELB-42: until it is mended, and no Rollout that is requested by name."""
    async with deployed() as world:
        await world.create(ROLLOUT_SCHEDULES, "freeze", {**ALWAYS, "rolloutSelector": ODD})
        await world.announce("1.1.0")
        await world.sleep(60)
        assert await world.history() == ["1.0.0"]
        reason, text = await world.condition()
        assert reason == "SchedulesBlocking"
        assert text.startswith("RolloutSchedule prod/freeze: spec.rolloutSelector")
        assert text.endswith("; it has no gate here")
        await world.patch(ROLLOUTS, "app", {"spec": {"wantedVersion": "1.2.0"}})
        await world.sleep(5)
        assert await world.history() == ["1.2.0", "1.0.0"]
        await world.announce("1.3.0")
        await world.patch(ROLLOUTS, "app", {"spec": {"wantedVersion": None}})
        await world.sleep(60)
        assert (await world.history())[0] == "1.2.0"
        fixed: JsonObject = {"matchLabels": {"tier": "db"}, "matchExpressions": None}
        await world.patch(ROLLOUT_SCHEDULES, "freeze", {"spec": {"rolloutSelector": fixed}})
        await world.sleep(2)
        assert (await world.history())[0] == "1.3.0"


@in_virtual_time
async def test_schedules_that_may_not_be_read_may_be_closed() -> None:
    """RELB-42: new versions wait for the right, and a tag is put right meanwhile."""
    async with deployed("rolloutschedules") as world:
        await world.announce("1.1.0")
        await world.sleep(60)
        assert await world.history() == ["1.0.0"]
        reason, text = await world.condition()
        assert reason == "SchedulesBlocking"
        assert text.startswith("RolloutSchedule: ")
        other: JsonObject = {"spec": {"ref": {"tag": "0.9.0"}}}
        await world.patch(OCI_REPOSITORIES[0], "app", other)
        await world.sleep(10)
        assert (await world.get(OCI_REPOSITORIES[0], "app"))["spec"]["ref"]["tag"] == "1.0.0"
        world.sandbox.api.forbidden.clear()
        await world.sleep(15)
        assert await world.history() == ["1.1.0", "1.0.0"]


@in_virtual_time
async def test_a_role_without_schedules_of_the_cluster_has_none_to_obey() -> None:
    """RELB-42: they are for processes that have the right."""
    async with deployed("clusterrolloutschedules") as world:
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", ALWAYS)
        await world.announce("1.1.0")
        await world.sleep(5)
        assert await world.history() == ["1.1.0", "1.0.0"]
