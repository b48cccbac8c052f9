"""The controller of counts on a fake API server, fake pods and fake references, in virtual time.

Caches show what `show_store` put in last; within `living` they follow each write, and workers run
as in the composition root.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

import msgspec
from rollout_lab.trace.log_lines import strip_time

from rollout_operator.aio.queue import Backoff, WorkQueue
from rollout_operator.controllers.executor import Executor, LabelRule
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.replicas import IntentWriter, Removals, Replicas, ScalingWrites
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.controllers.scaling import Contests, PodCaller, ScalingController
from rollout_operator.controllers.worker import Attempts, Result, Workers
from rollout_operator.guards.downscales import AnnotationTimes, Downscales
from rollout_operator.guards.grants import InFlight, OwnDeletes
from rollout_operator.guards.turns import Locks
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.outcome import Reason
from rollout_operator.pods import PodClient
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.metrics import GroupStates, Metrics
from tests.controllers.fake_client import Json
from tests.controllers.scaling_objects import (
    KEYS,
    FakeReferences,
    FakeStores,
    ScalingClient,
    make_pod,
    pods_of,
)
from tests.gates import OpenArbiter
from tests.virtual_time import VirtualClock
from tests.web.downscale_world import part, raw

GROUP: Final = GroupName("ingester")
HOUR: Final = timedelta(hours=1)
SECOND: Final = timedelta(seconds=1)
LAG: Final = 0.02  # seconds until a cache shows a write
LONGEST: Final = timedelta(seconds=5)
BACKOFF: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=5))


def _all() -> float:
    return 1.0


class Memory(msgspec.Struct, kw_only=True):
    """What dies with a process."""

    locks: Locks
    downscales: Downscales
    metrics: Metrics
    group_states: GroupStates
    counts: Replicas
    contests: Contests
    pod_calls: PodCaller
    scaling: ScalingController
    rollout: RolloutController


@dataclass(slots=True)
class Bench:
    """All parts. `zones` are what the store begins with."""

    zones: Sequence[Json]
    has_settled: bool = True
    """Whether sets obey at once: pods come and go, and the status is that of the newest spec."""
    is_stopping: bool = False
    now: Callable[[], datetime] = field(default_factory=lambda: VirtualClock().now)
    clock: VirtualClock = field(default_factory=VirtualClock)
    references: FakeReferences = field(default_factory=FakeReferences)
    stores: FakeStores = field(default_factory=FakeStores)
    sets: StatefulSetStore = field(default_factory=StatefulSetStore)
    pods: PodStore = field(default_factory=PodStore)
    queue: WorkQueue[GroupName] = field(default_factory=WorkQueue)
    lines: list[str] = field(default_factory=list)
    processes: Iterator[int] = field(default_factory=lambda: count(1))
    client: ScalingClient = field(init=False)
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.client = ScalingClient(self.zones, [pod for one in self.zones for pod in pods_of(one)])
        self.memory = self.build()
        self.show_store()

    def build(self) -> Memory:
        """Return the memory of a new process."""
        locks, metrics = Locks(), Metrics()
        downscales = Downscales(self.clock, late_calls=10 * SECOND)
        deletes = OwnDeletes(self.pods, self.clock)
        observer = Observer(
            namespace="test", reader=self.client, clock=self.clock, sets=self.sets, pods=self.pods,
            watches=(), in_flight=InFlight(self.pods, deletes, self.clock), now=self.now,
            find_downscale=downscales.find_underway,
        )  # fmt: skip
        removals = Removals(downscales.intents, self.clock, qps=5)
        counts = Replicas(
            self.client, observer, AnnotationTimes(self.client, downscales), locks=locks,
            downscales=downscales, clock=self.clock, metrics=metrics,
            intents=IntentWriter(
                self.client, self.client, removals, downscales, f"{next(self.processes)}"
            ),
            removals=removals, is_stopping=lambda: self.is_stopping,
        )  # fmt: skip
        calls = PodClient(self.stores, timeout=5 * SECOND, metrics=metrics, clock=self.clock)
        pod_calls = PodCaller(calls, now=self.now, on_answers=self._wake, late_calls=10 * SECOND)
        group_states, contests = GroupStates(metrics, self.clock), Contests(self.client, self.clock)
        attempts = Attempts(self.clock, longest=LONGEST)
        scaling = ScalingController(
            observer=observer, counts=counts, pod_calls=pod_calls, references=self.references,
            attempts=attempts, writes=ScalingWrites(attempts),
            contests=contests, removals=removals, group_states=group_states, metrics=metrics,
            clock=self.clock, cluster_domain="cluster.local.", late_calls=10 * SECOND,
        )  # fmt: skip
        executor = Executor(
            self.client,
            LabelRule(observer),
            deletes,
            clock=self.clock,
            metrics=metrics,
            locks=locks,
            arbiter=OpenArbiter(),
        )
        rollout = RolloutController(
            observer=observer, executor=executor, deletes=deletes,
            attempts=Attempts(self.clock, longest=LONGEST), group_states=group_states,
            metrics=metrics, clock=self.clock, refresh=lambda why: None,
        )  # fmt: skip
        return Memory(
            locks=locks, downscales=downscales, metrics=metrics, group_states=group_states,
            counts=counts, contests=contests, pod_calls=pod_calls, scaling=scaling,
            rollout=rollout,
        )  # fmt: skip

    async def reconcile(self) -> Result:
        """Reconcile the counts of the group once."""
        return await self.memory.scaling.reconcile(GROUP)

    async def roll(self) -> Result:
        """Reconcile the rollout of the group once."""
        return await self.memory.rollout.reconcile(GROUP)

    def show_store(self) -> None:
        """Bring the caches up to date."""
        objects = self.client.objects.items()
        self.sets.replace_all(
            [decode_statefulset(raw(one)) for (plural, _), one in objects if plural != "pods"]
        )
        self.pods.replace_all(
            [decode_pod(raw(one)) for (plural, _), one in objects if plural == "pods"]
        )

    def scale(self, letter: str, replicas: int) -> None:
        """Write a count as a person does; the caches follow."""
        self.client.change(
            f"zone-{letter}", lambda one: part(one, "spec").update(replicas=replicas)
        )
        self.follow()

    def annotate(self, letter: str, **texts: str | None) -> None:
        """Write annotations by their short names, None removes; the caches follow."""

        def change(one: Json) -> None:
            annotations = part(part(one, "metadata"), "annotations")
            for key, text in texts.items():
                annotations.pop(KEYS[key], None)
                if text is not None:
                    annotations[KEYS[key]] = text

        self.client.change(f"zone-{letter}", change)
        self.follow()

    def remove(self, letter: str) -> None:
        """Delete a set with all its pods; the caches follow."""
        name = f"zone-{letter}"
        del self.client.objects["statefulsets", name]
        for plural, pod in list(self.client.objects):
            if plural == "pods" and pod.startswith(f"{name}-"):
                del self.client.objects[plural, pod]
        self.follow()

    def follow(self) -> None:
        """Let the caches follow, and wake every group as informers do."""
        if self.has_settled:
            self._obey()
        before = {one.uid: one.group for one in self.sets.list_all()}
        self.show_store()
        after = {one.uid: one.group for one in self.sets.list_all()}
        for uid in before.keys() - after.keys():
            self.memory.pod_calls.forget(uid)
            self.memory.counts.forget(uid)
            self.memory.contests.forget(uid)
        groups = {*before.values(), *after.values()}
        for group in sorted(one for one in groups if one is not None):
            self.queue.add(group)

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Run workers; the caches follow each write after a moment."""
        pod_calls, loop, former = (
            self.memory.pod_calls,
            asyncio.get_running_loop(),
            self.client.after,
        )

        def follow_soon(call: str) -> None:
            loop.call_later(LAG, self.follow)
            former(call)

        self.client.after = follow_soon
        self.memory.downscales.on_change(lambda uid, group: self._wake(uid))
        counting = Workers(
            self.queue, self.memory.scaling.reconcile, count=4, backoff=BACKOFF, rng=_all
        )
        talking = Workers(pod_calls.queue, pod_calls.reconcile, count=4, backoff=BACKOFF, rng=_all)
        self.follow()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(counting.run())
            tasks.create_task(talking.run())
            yield
            self.queue.close()
            pod_calls.queue.close()

    def _wake(self, uid: Uid) -> None:
        found = self.sets.get_by_uid(uid)
        if found is not None and found.group is not None:
            self.queue.add(found.group)

    def _obey(self) -> None:
        """Let the controllers of sets do their work: pods come and go, and statuses follow."""
        for (plural, name), one in list(self.client.objects.items()):
            meta = part(one, "metadata")
            if plural == "pods" or part(one, "status")["observedGeneration"] == meta["generation"]:
                continue
            wanted = int(str(part(one, "spec")["replicas"]))
            self.client.change(name, partial(_settle, replicas=wanted))
            for _, there in [key for key in self.client.objects if key[0] == "pods"]:
                owner, _, number = there.rpartition("-")
                if owner == name and int(number) >= wanted:
                    del self.client.objects["pods", there]
            for ordinal in range(wanted):
                pod = make_pod(name, ordinal, str(part(one, "status")["updateRevision"]))
                self.client.objects.setdefault(("pods", f"{name}-{ordinal}"), pod)

    # What a test reads of it.

    def waits(self) -> list[str]:
        """Return what the page says of the only group: code and zone of each reason."""
        return [f"{one.code} {one.zone}".strip() for one in self.reasons()]

    def reasons(self) -> list[Reason]:
        """Return all that the page says of the only group."""
        (entry,) = self.memory.group_states.entries()
        return [*entry.plan.waits, *entry.plan.problems]

    def value(self, name: str, group: str = GROUP, **labels: str) -> float | None:
        """Return the value of a metric of a group."""
        return self.memory.metrics.registry.get_sample_value(
            f"rollout_operator_{name}", {"rollout_group": group, **labels}
        )

    def scalings(self, direction: str, outcome: str) -> float | None:
        """Return how many counts were sent with this outcome."""
        return self.value("scalings_total", direction=direction, outcome=outcome)

    def failures(self, reason: str) -> float | None:
        """Return how many reconciles failed for this reason."""
        return self.value("scaling_failures_total", reason=reason)

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Take the log: lines, without the time."""
        logs.configure(write=lambda line: self.lines.append(strip_time(line.decode())))
        try:
            yield self.lines
        finally:
            logs.configure()


def _settle(one: Json, replicas: int) -> None:
    generation = part(one, "metadata")["generation"]
    part(one, "status").update(
        observedGeneration=generation,
        replicas=replicas,
        readyReplicas=replicas,
        availableReplicas=replicas,
        updatedReplicas=replicas,
    )


async def pass_time(span: timedelta) -> None:
    """Let time pass."""
    await VirtualClock().sleep(span)
