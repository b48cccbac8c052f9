"""StatefulSets of rollout groups: builders, changes, and waits for a named condition.

Every wait watches; none sleeps. A wait that ends in vain says what the world looks like.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.zones import ZoneSpec, statefulset

from tests.world.api import PODS, STATEFULSETS, Api, Event, Json, Relisted, Resource

PAUSED: Final = "grafana.com/rollout-paused"
REVISION: Final = "controller-revision-hash"
# Not what a rollout takes, but what a machine may take on which much else runs.
WAIT_LIMIT: Final = timedelta(seconds=120)


async def create_zones(api: Api, namespace: str, zones: Iterable[ZoneSpec]) -> list[str]:
    names = []
    for zone in zones:
        await api.create(STATEFULSETS, namespace, statefulset(zone, namespace))
        names.append(zone.name)
    return names


async def set_image(api: Api, namespace: str, names: Iterable[str], image: str) -> None:
    """Change the template of each set, which makes a new revision."""
    template = {"spec": {"containers": [{"name": "app", "image": image}]}}
    for name in names:
        patch = {"spec": {"template": template}}
        await api.patch(STATEFULSETS, namespace, name, patch, kind="strategic")


class Snapshot(msgspec.Struct):
    """StatefulSets and pods of a namespace by name, as watches brought them."""

    sets: dict[str, Json] = {}
    pods: dict[str, Json] = {}
    _owned: dict[str, dict[str, Json]] = {}
    """Pods by name, by the UID of each owner: a world may hold thousands."""

    def pods_of(self, name: str) -> list[Json]:
        owner = self.sets[name]["metadata"]["uid"] if name in self.sets else ""
        return list(self._owned.get(owner, {}).values())

    def take(self, kind: Resource, event: Event) -> None:
        """Move on by one event of StatefulSets or pods."""
        objects = self.sets if kind is STATEFULSETS else self.pods
        match event:
            case Relisted(items=items):
                for gone in list(objects.values()):
                    self._drop(objects, gone)
                for item in items:
                    self._put(objects, item)
            case Event("DELETED"):
                self._drop(objects, event.object)
            case _:
                self._put(objects, event.object)

    def _put(self, objects: dict[str, Json], new: Json) -> None:
        name = new["metadata"]["name"]
        objects[name] = new
        for owner in new["metadata"].get("ownerReferences", ()):
            self._owned.setdefault(owner["uid"], {})[name] = new

    def _drop(self, objects: dict[str, Json], gone: Json) -> None:
        name = gone["metadata"]["name"]
        objects.pop(name, None)
        for owner in gone["metadata"].get("ownerReferences", ()):
            self._owned.get(owner["uid"], {}).pop(name, None)

    def describe(self) -> str:
        """Return the state as text: a line a set, a line a pod."""
        lines = [
            f"{name}: generation {one['metadata']['generation']}, wants"
            f" {one['spec'].get('replicas')}, status"
            f" { {key: value for key, value in one['status'].items() if key != 'conditions'} }"
            for name, one in sorted(self.sets.items())
        ]
        lines += [f"  {describe_pod(pod)}" for _, pod in sorted(self.pods.items())]
        return "\n".join(lines)


Missing = str
"""What a condition still lacks, in words; empty when it holds."""
Check = Callable[[Snapshot], Missing]


async def wait_until(
    api: Api, namespace: str, check: Check, limit: timedelta = WAIT_LIMIT
) -> Snapshot:
    """Watch until `check` finds nothing missing and return that state.

    Raises TimeoutError with what is missing and the present state.
    """
    snapshot = Snapshot()
    queue: asyncio.Queue[tuple[Resource, Event]] = asyncio.Queue()
    missing = "nothing was seen"
    try:
        async with asyncio.timeout(limit.total_seconds()), asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(_feed(api, kind, namespace, queue), name=f"wait-{kind.plural}")
                for kind in (STATEFULSETS, PODS)
            ]
            while True:
                kind, event = await queue.get()
                snapshot.take(kind, event)
                missing = check(snapshot) if queue.empty() else missing
                if not missing:
                    break
            for watch in watches:
                watch.cancel()
    except TimeoutError as late:
        raise TimeoutError(f"after {limit}: {missing}\n{snapshot.describe()}") from late
    return snapshot


async def wait_adopted(
    api: Api, namespace: str, names: Sequence[str], limit: timedelta = WAIT_LIMIT
) -> Snapshot:
    """Wait until each set is rolled and its status names the update revision as the current."""
    return await wait_until(api, namespace, each_of(names, missing_adopted), limit)


def each_of(names: Iterable[str], missing: Callable[[Snapshot, str], Missing]) -> Check:
    """Return a check that nothing is missing of any set.

    The set that lacked something is read first the next time: most often it still does.
    """
    order = list(names)

    def check(now: Snapshot) -> Missing:
        for place, name in enumerate(order):
            if text := missing(now, name):
                order.insert(0, order.pop(place))
                return text
        return ""

    return check


def missing_ready(now: Snapshot, name: str) -> Missing:
    """Return what a set lacks to be ready and reported so."""
    found = now.sets.get(name)
    if found is None:
        return f"{name} does not exist"
    wanted = found["spec"].get("replicas", 1)
    status = found["status"]
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return f"{name}: its status is behind"
    if status.get("replicas", 0) != wanted or status.get("availableReplicas", 0) != wanted:
        return (
            f"{name}: {status.get('replicas', 0)} pods, {status.get('availableReplicas', 0)}"
            f" available, wants {wanted}"
        )
    unready = [describe_pod(pod) for pod in now.pods_of(name) if not is_ready(pod)]
    if unready or len(now.pods_of(name)) != wanted:
        return f"{name}: not ready: {unready or 'pods are missing'}"
    return ""


def missing_rolled(now: Snapshot, name: str) -> Missing:
    """Return what a set lacks to be rolled out: ready, and each pod on the update revision."""
    missing = missing_ready(now, name)
    if missing:
        return missing
    status = now.sets[name]["status"]
    outdated = [
        pod["metadata"]["name"]
        for pod in now.pods_of(name)
        if pod["metadata"]["labels"].get(REVISION) != status["updateRevision"]
    ]
    return f"{name}: outdated: {sorted(outdated)}" if outdated else ""


def missing_adopted(now: Snapshot, name: str) -> Missing:
    """Return what a set lacks to be rolled out with its current revision moved on."""
    missing = missing_rolled(now, name)
    if missing:
        return missing
    status = now.sets[name]["status"]
    current, update = status["currentRevision"], status["updateRevision"]
    return "" if current == update else f"{name}: current revision {current}, update {update}"


def is_ready(pod: Json) -> bool:
    """Say whether a pod is running, not terminating, and ready in every container."""
    status = pod["status"]
    statuses = status.get("containerStatuses", [])
    return (
        status.get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and condition(pod, "Ready") == "True"
        and len(statuses) == len(pod["spec"]["containers"])
        and all(each["ready"] and "running" in each.get("state", {}) for each in statuses)
    )


def condition(pod: Json, kind: str) -> str:
    """Return the status of a condition, empty if it has none."""
    for each in pod["status"].get("conditions", ()):
        if each["type"] == kind:
            return str(each["status"])
    return ""


def describe_pod(pod: Json) -> str:
    status = pod["status"]
    states = [
        f"{'ready' if each['ready'] else 'not ready'}/{'/'.join(each.get('state', {}))}"
        f"/{each['restartCount']} restarts"
        for each in status.get("containerStatuses", ())
    ]
    ending = " terminating" if "deletionTimestamp" in pod["metadata"] else ""
    return (
        f"{pod['metadata']['name']} {pod['metadata'].get('labels', {}).get(REVISION)}"
        f" {status.get('phase')} Ready={condition(pod, 'Ready')}{ending} {states}"
    )


async def _feed(
    api: Api, kind: Resource, namespace: str, queue: asyncio.Queue[tuple[Resource, Event]]
) -> None:
    async for event in api.follow(kind, namespace):
        queue.put_nowait((kind, event))
