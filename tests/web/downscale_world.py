"""A small world around the two hooks: an API server of dictionaries, pods that remember calls.

Time is virtual. The caches show what `sync` put in last; `commit` is the API server writing what a
review allowed.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, cast

import msgspec

from rollout_operator.controllers.downscales import DownscaleController
from rollout_operator.controllers.executor import Executor, LabelRule
from rollout_operator.guards.prepared_pods import PodRecords
from rollout_operator.kube.api import ApiClient
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import LAST_DOWNSCALE, GroupName, Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.scaling import Review, Scalable, Version
from rollout_operator.pods import PodError
from rollout_operator.web.no_downscale import Parents, RepeatedReads, UnconfirmedReads
from rollout_operator.web.prepare_downscale import PrepareContext, PrepareDownscale
from tests.controllers.fake_client import FakeClient, Json, pod_json, set_json
from tests.controllers.fed_context import FedContext
from tests.gates import OpenArbiter
from tests.virtual_time import VirtualClock

GROUP: Final = GroupName("ingester")
LIMIT: Final = timedelta(seconds=9)
PREPARED: Final[Mapping[str, str]] = {"grafana.com/prepare-downscale": "true"}
WHERE: Final[Mapping[str, str]] = {
    "grafana.com/prepare-downscale-http-port": "8080",
    "grafana.com/prepare-downscale-http-path": "ingester/prepare",
}
LONG_AGO: Final = "2025-12-24T00:00:00Z"
SECOND: Final = timedelta(seconds=1)
HOUR: Final = 3600.0
WAIT: Final = {"grafana.com/min-time-between-zones-downscale": "1h"}


class PodCall(msgspec.Struct, frozen=True):
    """One call that arrived at a pod."""

    method: str
    pod: str
    uid: Uid
    at: timedelta
    path: str = ""
    place: str = ""
    """Service, port and path: the host is that of a Service of the namespace."""


async def confirm(method: str, endpoint: Endpoint) -> None:
    """Answer 200 after a tenth of a second."""
    await asyncio.sleep(0.1)


class FakePods:
    """The pods behind a `PodClient`: they take calls, and `answer` says what becomes of each."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.calls: list[PodCall] = []
        self.confirmed: list[PodCall] = []
        self.answer: Callable[[str, Endpoint], Awaitable[None]] = confirm

    def names(self, method: str) -> list[str]:
        """Return the pods that were called, in order."""
        return [call.pod for call in self.calls if call.method == method]

    def prepared(self) -> set[Uid]:
        """Return the pods whose last call was a POST, confirmed or not: they may be waiting."""
        last = {call.uid: call.method for call in self.calls}
        return {uid for uid, method in last.items() if method == "POST"}

    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]:
        failures: list[PodError] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                for endpoint in endpoints:
                    tasks.create_task(self._call("POST", endpoint))
        except* PodError as group:
            failures += [error for error in group.exceptions if isinstance(error, PodError)]
        return failures

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        failed: dict[Uid, PodError] = {}

        async def call(endpoint: Endpoint) -> None:
            try:
                await self._call("DELETE", endpoint)
            except PodError as error:
                failed[endpoint.uid] = error

        async with asyncio.TaskGroup() as tasks:
            for endpoint in endpoints:
                tasks.create_task(call(endpoint))
        return failed

    async def _call(self, method: str, endpoint: Endpoint) -> None:
        now = self._clock.elapsed()
        service = endpoint.host.removeprefix(f"{endpoint.pod}.").partition(".test.svc")[0]
        place = f"{service}:{endpoint.port}/{endpoint.path}"
        one = PodCall(method, endpoint.pod, endpoint.uid, now, endpoint.path, place)
        self.calls.append(one)
        await self.answer(method, endpoint)
        self.confirmed.append(one)


class World:
    """The API server and the parts of the running process."""

    def __init__(
        self, sets: Sequence[Json], pods: Sequence[Json], *, tracker: str = "", qps: float = 0
    ) -> None:
        """Keep the times of downscales in the ConfigMap `tracker`, if that is given.

        Reviews have their shares of `qps` reads a second; zero: of any number.
        """
        self.qps = qps
        self.tracker = tracker
        self.clock = VirtualClock()
        self.client = FakeClient(sets, pods)
        self.calls = FakePods(self.clock)
        self.is_stopping = False
        self.starts = 0
        self.restart()

    def restart(self) -> None:
        """Forget everything but what the API server holds: a new process."""
        self.starts += 1
        name = f"process-{self.starts}"
        tracker = ("-use-zone-tracker", f"-zone-tracker.config-map-name={self.tracker}")
        context = FedContext(self.client, self.clock, None, *(tracker if self.tracker else ()))
        self.context, self.sets, self.pods = context, context.sets, context.pods
        self.sync()
        client = cast(ApiClient, self.client)
        self.observer = context.make_observer(client)
        self.hook = PrepareDownscale(
            PrepareContext(
                parents=Parents(
                    self.sets, client, UnconfirmedReads(self.qps), namespace="test",
                    clock=self.clock,
                ),
                observer=self.observer, repeated=RepeatedReads(self.qps, self.clock),
                locks=context.locks, downscales=context.downscales,
                pod_records=PodRecords(client, name), records=context.make_records(client),
                pods=self.calls, clock=self.clock, server_time=self.clock.now,
                namespace="test", cluster_domain="cluster.local.",
                is_stopping=lambda: self.is_stopping,
            )
        )  # fmt: skip
        self.controller = DownscaleController(
            context, client, self.calls, process=name, server_time=self.clock.now
        )
        self.executor = Executor(
            context, LabelRule(self.observer), OpenArbiter(), client=client, recording=client,
            on_step=lambda group, step: None,
        )  # fmt: skip

    def sync(self) -> None:
        self.context.sync(self.client)

    @asynccontextmanager
    async def controlling(self) -> AsyncIterator[None]:
        """Run the controller of the present process as the composition root does."""
        controller, downscales = self.controller, self.context.downscales
        queue = controller.controller
        failed = controller.adopt_all()
        downscales.on_change(lambda uid, group: queue.add(uid))
        for uid in (*failed, *downscales.list_sets()):
            queue.add(uid)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.run())
            yield
            queue.close()

    async def watch(self) -> None:
        """Let the caches follow, and wake the controller as the informers do."""
        self.sync()
        for one in self.sets.list_all():
            self.controller.controller.add(one.uid)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, with caches that follow every second."""
        for _ in range(int(seconds)):
            await self.clock.sleep(SECOND)
            self.sync()
        await self.clock.sleep(timedelta(seconds=seconds % 1))
        await self.watch()

    async def send_request(self, zone: str, to: int, **how: object) -> Verdict:
        """Send the prepare hook a review of fewer replicas; see `review`."""
        requested = self.review(zone, to, **how)
        return await self.hook.review(requested, self.clock.elapsed() + LIMIT)

    def review(self, zone: str, to: int, **how: object) -> Review:
        """Return a review of the Scale of a zone; `whole`: of the set itself."""
        whole, dry_run = bool(how.pop("whole", False)), bool(how.pop("dry_run", False))
        held = decode_statefulset(msgspec.json.encode(self.client.objects["statefulsets", zone]))
        assert not how, f"unknown {how}"
        old = Scalable(
            kind="StatefulSet" if whole else "Scale", uid=held.uid,
            resource_version=held.resource_version, replicas=held.replicas,
            service_name=held.service_name if whole else "",
            labels=held.labels if whole else {}, annotations=held.annotations if whole else {},
            first_ordinal=held.first_ordinal if whole else 0,
        )  # fmt: skip
        return Review(
            version=Version.V1, uid="u-1", operation="UPDATE", resource="statefulsets",
            subresource="" if whole else "scale", namespace="test", name=zone, dry_run=dry_run,
            old=old, new=msgspec.structs.replace(old, replicas=to),
        )  # fmt: skip

    def commit(self, zone: str, to: int, *, stamp: str = "") -> None:
        """Write a number of replicas, as the API server does; `stamp` is the annotation's value."""
        one = copy.deepcopy(self.client.objects["statefulsets", zone])
        one["spec"]["replicas"] = to
        for key in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"):
            one["status"][key] = to
        if stamp:
            one["metadata"]["annotations"][LAST_DOWNSCALE] = stamp
        meta = one["metadata"]
        meta["resourceVersion"] = str(int(str(meta["resourceVersion"])) + 1)
        self.client.put("statefulsets", one)

    def write_metadata(self, field: str, zone: str, key: str, value: str | None) -> None:
        """Write or remove a label or an annotation, as a person does."""
        one = copy.deepcopy(self.client.objects["statefulsets", zone])
        meta = one["metadata"]
        meta[field][key] = value
        if value is None:
            del meta[field][key]
        meta["resourceVersion"] = str(int(str(meta["resourceVersion"])) + 1)
        self.client.put("statefulsets", one)

    def recorded(self) -> list[str]:
        """Return the pods that carry a record."""
        return [
            pod.name
            for (plural, _), one in self.client.objects.items()
            if plural == "pods"
            for pod in [decode_pod(msgspec.json.encode(one))]
            if pod.downscale_record
        ]


def zone(
    name: str,
    replicas: int = 5,
    *,
    labels: Mapping[str, str] = PREPARED,
    annotations: Mapping[str, str] = WHERE,
    group: str | None = GROUP,
) -> Json:
    """Return a StatefulSet at rest."""
    grouped = {} if group is None else {"rollout-group": group}
    one = set_json(name, replicas=replicas, current="old", update="old")
    one["metadata"]["labels"] = {**grouped, **labels}
    one["metadata"]["annotations"] = dict(annotations)
    one["status"]["updatedReplicas"] = replicas
    return one


def pods_of(name: str, replicas: int = 5, *, first: int = 0) -> list[Json]:
    """Return ready pods, each with an address."""
    return [pod(name, ordinal) for ordinal in range(first, replicas)]


def pod(
    name: str, ordinal: int, *, uid: str = "", ready: bool = True, created: str = LONG_AGO
) -> Json:
    """Return one pod; another UID makes it another pod."""
    one = pod_json(name, ordinal, ready=ready)
    one["spec"] = {"containers": [{"name": "main", "ports": [{"containerPort": 8080}]}]}
    one["metadata"]["creationTimestamp"] = created
    one["status"]["podIP"] = f"127.0.0.{100 + ordinal}"
    if uid:
        one["metadata"]["uid"] = uid
    return one


def three_zones(
    replicas: int = 5, *, tracker: str = "", qps: float = 0, **changes: Mapping[str, str]
) -> World:
    """Return zones a, b and c, all whole; `changes` are annotations of a zone, by its letter."""
    names = {letter: f"zone-{letter}" for letter in "abc"}
    sets = [
        zone(name, replicas, annotations={**WHERE, **changes.get(letter, {})})
        for letter, name in names.items()
    ]
    pods = [one for name in names.values() for one in pods_of(name, replicas)]
    return World(sets, pods, tracker=tracker, qps=qps)


def tracked(world: World, data: Mapping[str, str] | None = None) -> World:
    """Return the world with its ConfigMap, empty where nothing else is said."""
    meta: Json = {"name": world.tracker, "uid": "u", "resourceVersion": "1"}
    meta["labels"] = {"mine": "kept"}
    world.client.objects["configmaps", world.tracker] = {"metadata": meta, "data": {**(data or {})}}
    return world
