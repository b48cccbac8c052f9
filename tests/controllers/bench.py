"""The shell on a fake API server: executor, memory, controller, and caches that a test fills."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event
from typing import Final

import msgspec

from rollout_operator.controllers.executor import Executor, LabelRule, Report
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.controllers.worker import Attempts
from rollout_operator.guards.grants import InFlight, OwnDeletes
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Deletion
from rollout_operator.model.outcome import Code
from rollout_operator.planning.rollout import plan_group
from rollout_operator.telemetry.metrics import GroupStates, Metrics
from tests.controllers.fake_client import FakeClient, Json, pod_json, set_json
from tests.fakes_clock import FakeClock
from tests.gates import OpenArbiter

GROUP: Final = GroupName("ingester")


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """All parts of the shell. The caches show what `show` or `show_store` put in last."""

    client: FakeClient
    clock: FakeClock
    sets: StatefulSetStore
    pods: PodStore
    deletes: OwnDeletes
    observer: Observer
    executor: Executor
    stop: Callable[[], None]
    metrics: Metrics
    group_states: GroupStates
    controller: RolloutController
    refreshed: list[str]
    """Why the caches were to be listed again."""

    def show(self, sets: Sequence[Json], pods: Sequence[Json]) -> None:
        """Make the caches show these objects and no others."""
        self.sets.replace_all([decode_statefulset(_raw(one)) for one in sets])
        self.pods.replace_all([decode_pod(_raw(one)) for one in pods])

    def show_store(self) -> None:
        """Bring the caches up to date."""
        objects = self.client.objects.items()
        self.show(
            [one for (plural, _), one in objects if plural == "statefulsets"],
            [one for (plural, _), one in objects if plural == "pods"],
        )

    async def step(self) -> Report:
        """Observe, plan and carry out every action; return what came of the last."""
        return (await self.steps())[-1]

    async def steps(self) -> list[Report]:
        """Observe, plan and carry out every action; return what came of each."""
        group = self.observer.observe(GROUP)
        actions = plan_group(group).actions
        return [await self.executor.carry_out(group, action) for action in actions] or [Report()]

    async def read_back(self) -> None:
        """Read back the group's deletes without an answer."""
        await self.executor.read_back(self.observer.observe(GROUP).owners)

    def in_flight(self) -> list[Deletion]:
        """Return what the memory holds that the cache does not show."""
        return list(self.observer.observe(GROUP).deletions.values())

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric of the group."""
        return self.metrics.registry.get_sample_value(
            f"rollout_operator_{name}", {"rollout_group": GROUP, **labels}
        )

    def waits(self) -> list[Code]:
        """Return the codes of what holds the only group now."""
        (entry,) = self.group_states.entries()
        return [reason.code for reason in entry.plan.waits]


def bench(sets: Sequence[Json], pods: Sequence[Json]) -> Bench:
    """Return the shell on a store of these objects, which the caches show as well."""
    client, clock, metrics, stop = FakeClient(sets, pods), FakeClock(), Metrics(), Event()
    set_store, pod_store = StatefulSetStore(), PodStore()
    deletes, group_states = OwnDeletes(pod_store, clock), GroupStates(metrics, clock)
    observer = Observer(
        namespace="test",
        reader=client,
        clock=clock,
        sets=set_store,
        pods=pod_store,
        watches=(),
        in_flight=InFlight(pod_store, deletes, clock),
        now=clock.now,
    )
    executor = Executor(
        client,
        LabelRule(observer),
        deletes,
        clock=clock,
        metrics=metrics,
        arbiter=OpenArbiter(),
        is_stopping=stop.is_set,
    )
    refreshed: list[str] = []
    controller = RolloutController(
        observer=observer,
        executor=executor,
        deletes=deletes,
        attempts=Attempts(clock, longest=timedelta(seconds=5)),
        group_states=group_states,
        metrics=metrics,
        clock=clock,
        refresh=refreshed.append,
    )
    made = Bench(
        client=client,
        clock=clock,
        sets=set_store,
        pods=pod_store,
        deletes=deletes,
        observer=observer,
        executor=executor,
        stop=stop.set,
        metrics=metrics,
        group_states=group_states,
        controller=controller,
        refreshed=refreshed,
    )
    made.show_store()
    return made


def two_zones(*, limit: str = "2") -> tuple[list[Json], list[Json]]:
    """Zone a is rolled out, zone b is not: T-01 row 6."""
    sets = [set_json("a", current="new"), set_json("b", max_unavailable=limit)]
    pods = [pod_json("a", n, revision="new") for n in range(3)]
    return sets, [*pods, *(pod_json("b", n) for n in range(3))]


def rollable(limit: str = "1") -> Bench:
    """Return the shell on two zones, one of them with three outdated pods."""
    return bench(*two_zones(limit=limit))


def meta_of(one: Json) -> Json:
    """Return an object's metadata."""
    meta = one["metadata"]
    assert isinstance(meta, dict)
    return meta


def _raw(one: Json) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(one))
