"""A kubelet for pods without nodes: binds them, writes their status, ends them when deleted.

How a pod behaves is chosen by a function of the test, called once when the pod first appears and
once more when it is deleted. `make_unready` and `make_ready` change a living pod.

Also Node objects for pods that are to be drained, and the choice of a node for each new pod.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, Protocol, Self, assert_never

import aiohttp
import msgspec
from msgspec.structs import replace

from tests.world.api import PODS, REOPEN_PAUSE, Api, ApiError, Event, Json, Relisted, Resource
from tests.world.plane import KUBELET, ControlPlane

NODE: Final = "world-node"
# Requests in flight at once. More only makes the API server and this process fight for two cores.
PARALLEL_CALLS: Final = 32


class Kind(Enum):
    """What becomes of a pod once it is bound."""

    NORMAL = auto()
    """Running, and ready after a while."""
    NEVER_READY = auto()
    """Running, its container started, never ready."""
    CRASH_LOOP = auto()
    """Running, its container waiting in CrashLoopBackOff, restarts counted up."""
    GATE_CLOSED = auto()
    """Containers ready, but a readiness gate keeps the condition Ready false."""
    NO_STATUSES = auto()
    """Condition Ready true without any container status: a claim without proof."""
    PENDING = auto()
    """Never bound to a node."""
    FAILED = auto()
    """Phase Failed, as after an eviction by the node."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind = Kind.NORMAL
    ready_after: timedelta = timedelta(milliseconds=100)
    """From first sight until ready (or until the trouble of `kind` shows)."""
    terminates_after: timedelta = timedelta(milliseconds=50)
    """From the deletion's first sight until the pod is gone."""
    period: timedelta = timedelta(seconds=1)
    """Between two crashes."""


class Addresses(Protocol):
    """Gives pods their addresses; `webpods.WebPods` listens on those that it gives."""

    async def seat(self, pod: Json) -> str:
        """Return the address of a pod seen for the first time."""
        ...

    async def leave(self, pod: Json) -> None: ...


NORMAL: Final = Behaviour()
Choose = Callable[[Json], Behaviour]
Place = Callable[[Json], Awaitable[str]]


def always(behaviour: Behaviour = NORMAL) -> Choose:
    """Return a choice that gives each pod the same behaviour."""
    return lambda _pod: behaviour


def by_image(table: dict[str, Behaviour], otherwise: Behaviour = NORMAL) -> Choose:
    """Return a choice by the image of the first container."""
    return lambda pod: table.get(image_of(pod), otherwise)


def image_of(pod: Json) -> str:
    """Return the image of a pod's first container."""
    image: str = pod["spec"]["containers"][0]["image"]
    return image


class _Seat(msgspec.Struct):
    """One pod's place: its newest object and the tasks that play it."""

    pod: Json
    ip: str
    script: asyncio.Task[None] | None = None
    is_ending: bool = False
    restarts: int = 0
    started: str = msgspec.field(default_factory=lambda: _timestamp())

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])


class Kubelet:
    """Plays every pod of a namespace (or of all, with an empty name). Use with `async with`."""

    def __init__(
        self, plane: ControlPlane, namespace: str = "", choose: Choose | None = None
    ) -> None:
        self.namespace = namespace
        self.choose: Choose = choose or always()
        self.addresses: Addresses = _PlainAddresses()
        """To be set before the first pod appears."""
        self.place: Place = _place_anywhere
        """Finds the node of a pod that has none."""
        self.api: Api = plane.api(plane.tokens[KUBELET])
        self._seats: dict[str, _Seat] = {}
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)
        self._tasks = asyncio.TaskGroup()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.api.__aenter__()
        await self._tasks.__aenter__()
        self._watch = self._tasks.create_task(self._follow(), name="kubelet-watch")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        try:
            if self._watch is not None:
                self._watch.cancel()
            for seat in self._seats.values():
                if seat.script is not None:
                    seat.script.cancel()
            await self._tasks.__aexit__(*raised)
        finally:
            await self.api.__aexit__(*raised)

    async def make_unready(self, name: str) -> None:
        """Take a living pod's readiness away; it stays so until `make_ready`."""
        await self._force(name, is_ready=False)

    async def make_ready(self, name: str) -> None:
        """Make a living pod ready, whatever its behaviour was."""
        await self._force(name, is_ready=True)

    async def crash(self, name: str) -> None:
        """Put a living pod into a crash loop; it stays so until `make_ready`."""
        self._seat(name).restarts += 1
        await self._force(name, is_ready=False, state=_CRASHED)

    async def _force(self, name: str, *, is_ready: bool, state: Json | None = None) -> None:
        seat = self._seat(name)
        await self._stop_script(seat)
        await self._write(seat, _status(seat, is_ready=is_ready, state=state))

    @contextmanager
    def choosing(self, choose: Choose) -> Iterator[None]:
        """Use another choice inside a block."""
        before, self.choose = self.choose, choose
        try:
            yield
        finally:
            self.choose = before

    def _seat(self, name: str) -> _Seat:
        for seat in self._seats.values():
            if seat.name == name and not seat.is_ending:
                return seat
        raise LookupError(f"no living pod {name} has been seen")

    # Watching

    async def _follow(self) -> None:
        async for event in self.api.follow(PODS, self.namespace):
            match event:
                case Relisted(items=items):
                    present = {pod["metadata"]["uid"] for pod in items}
                    for uid in self._seats.keys() - present:
                        await self._forget(uid)
                    for pod in items:
                        await self._see(pod)
                case Event("DELETED"):
                    await self._forget(event.object["metadata"]["uid"])
                case _:
                    await self._see(event.object)

    async def _see(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        seat = self._seats.get(uid)
        if seat is None:
            seat = self._seats[uid] = _Seat(pod, await self.addresses.seat(pod))
            if "deletionTimestamp" not in pod["metadata"]:
                seat.script = self._tasks.create_task(
                    self._play(seat, self.choose(pod)), name=f"kubelet-play-{seat.name}"
                )
        seat.pod = pod
        if "deletionTimestamp" in pod["metadata"] and not seat.is_ending:
            seat.is_ending = True
            ending = self._end(seat, self.choose(pod).terminates_after, seat.script)
            seat.script = self._tasks.create_task(ending, name=f"kubelet-end-{seat.name}")

    async def _forget(self, uid: str) -> None:
        seat = self._seats.pop(uid, None)
        if seat is not None:
            await self._stop_script(seat)
            await self.addresses.leave(seat.pod)

    async def _stop_script(self, seat: _Seat) -> None:
        script, seat.script = seat.script, None
        if script is not None and script is not asyncio.current_task():
            script.cancel()
            await asyncio.wait([script])

    # Playing

    async def _play(self, seat: _Seat, behaviour: Behaviour) -> None:
        if behaviour.kind is Kind.PENDING:
            return
        if not seat.pod["spec"].get("nodeName"):
            await self._bind(seat)
        if behaviour.ready_after:
            await self._write(seat, _status(seat, is_ready=False))
            await asyncio.sleep(behaviour.ready_after.total_seconds())
        match behaviour.kind:
            case Kind.NORMAL:
                await self._write(seat, _status(seat, is_ready=True))
            case Kind.NEVER_READY:
                await self._write(seat, _status(seat, is_ready=False))
            case Kind.CRASH_LOOP:
                await self._crash_for_ever(seat, behaviour.period)
            case Kind.GATE_CLOSED:
                await self._write(seat, _status(seat, is_ready=False, is_gated=True))
            case Kind.NO_STATUSES:
                await self._write(seat, _status(seat, is_ready=True) | {"containerStatuses": []})
            case Kind.FAILED:
                status = _status(seat, is_ready=False, state=_ENDED)
                await self._write(seat, status | {"phase": "Failed", "reason": "Evicted"})
            case _:
                assert_never(behaviour.kind)

    async def _crash_for_ever(self, seat: _Seat, period: timedelta) -> None:
        while True:
            seat.restarts += 1
            await self._write(seat, _status(seat, is_ready=False, state=_CRASHED))
            await asyncio.sleep(period.total_seconds())

    async def _end(self, seat: _Seat, after: timedelta, script: asyncio.Task[None] | None) -> None:
        if script is not None:
            script.cancel()
            await asyncio.wait([script])
        await asyncio.sleep(after.total_seconds())
        path = PODS.path(seat.namespace, seat.name)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": seat.uid}}
        await self._call("DELETE", path, options)

    # Writing

    async def _bind(self, seat: _Seat) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": seat.name},
            "target": {"kind": "Node", "name": await self.place(seat.pod)},
        }
        await self._call("POST", PODS.path(seat.namespace, seat.name, "binding"), binding)

    async def _write(self, seat: _Seat, status: Json) -> None:
        patch = {"metadata": {"uid": seat.uid}, "status": status}
        await self._call("PATCH", PODS.path(seat.namespace, seat.name, "status"), patch)

    async def _call(self, method: str, path: str, body: Json) -> None:
        """Send until answered; a pod that is gone, or another of its name, needs nothing more."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        while True:
            try:
                async with self._slots:
                    await self.api.call(method, path, body=body, content_type=kind)
            except ApiError as refused:
                if refused.status in (404, 409) or "metadata.uid: Invalid" in str(refused):
                    return
                if refused.status not in (401, 403, 429) and refused.status < 500:
                    raise
            except (aiohttp.ClientError, TimeoutError):
                pass  # the API server is away
            else:
                return
            await asyncio.sleep(REOPEN_PAUSE.total_seconds())


class _PlainAddresses:
    _given = 0

    async def seat(self, pod: Json) -> str:
        self._given += 1
        high, low = divmod(self._given, 256)
        return f"10.{1 + high // 256}.{high % 256}.{low}"

    async def leave(self, pod: Json) -> None:
        pass


async def _place_anywhere(_: Json) -> str:
    return NODE


def slow_to_end(after: timedelta) -> Behaviour:
    """Return a behaviour whose pods take long to terminate."""
    return replace(NORMAL, terminates_after=after)


_CRASHED: Final = {
    "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
}
_ENDED: Final = {"terminated": {"exitCode": 137, "reason": "Error"}}


def _status(
    seat: _Seat, *, is_ready: bool, is_gated: bool = False, state: Json | None = None
) -> Json:
    """Return the status of a pod; where a gate is closed its containers alone are ready."""
    now, are_containers_ready = _timestamp(), is_ready or is_gated
    state = state or {"running": {"startedAt": seat.started}}
    flags = {
        "PodScheduled": True,
        "Initialized": True,
        "ContainersReady": are_containers_ready,
        "Ready": is_ready,
    }
    return {
        "phase": "Running",
        "hostIP": "127.0.0.1",
        "podIP": seat.ip,
        "podIPs": [{"ip": seat.ip}],
        "startTime": seat.started,
        "conditions": [
            {"type": kind, "status": "True" if flag else "False", "lastTransitionTime": now}
            for kind, flag in flags.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "ready": are_containers_ready,
                "started": are_containers_ready,
                "restartCount": seat.restarts,
                "state": state,
            }
            for container in seat.pod["spec"]["containers"]
        ],
    }


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


NODES: Final = Resource("v1", "nodes", is_namespaced=False)
ZONE: Final = "topology.kubernetes.io/zone"
# Until a pod that finds no node tries again.
RETRY: Final = timedelta(milliseconds=200)


class Nodes:
    """The nodes of zones, two for each. Use with `async with`."""

    def __init__(self, api: Api, zones: Iterable[str]) -> None:
        self._api = api
        self._zones = {f"node-{zone}-{number}": zone for zone in zones for number in (1, 2)}

    async def __aenter__(self) -> Self:
        for name, zone in self._zones.items():
            metadata = {"name": name, "labels": {ZONE: zone, "kubernetes.io/hostname": name}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            await self._api.create(NODES, "", node)
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            patch = {"status": {"conditions": [ready]}}
            await self._api.patch(NODES, "", name, patch, subresource="status")
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in self._zones:
            with suppress(ApiError):
                await self._api.delete(NODES, "", name)

    async def place(self, pod: Json) -> str:
        """Return the node of a pod, once there is one in its zone that takes pods.

        Pods take turns, so that each node has every second one. A zone without nodes has `NODE`.
        """
        zone, _, ordinal = str(pod["metadata"]["name"]).rpartition("-")
        if zone not in self._zones.values():
            return NODE
        nodes = [name for name, of in self._zones.items() if of == zone]
        wanted = nodes[int(ordinal) % len(nodes) :] + nodes
        while True:
            closed = {
                one["metadata"]["name"]
                for one in await self._api.items(NODES)
                if one["spec"].get("unschedulable")
            }
            if found := next((name for name in wanted if name not in closed), ""):
                return found
            await asyncio.sleep(RETRY.total_seconds())
