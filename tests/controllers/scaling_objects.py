"""Zones as the API server holds them, and what surrounds the controller of counts.

`zone("b", 3, follows="a")` is zone-b that follows zone-a; `mirroring("b", 3)` mirrors DEMO, and
`delayed("b", 5)` calls its pods before they go, with a delay of an hour. The API server, pods and
references remember their calls, in order; a test says what goes wrong.
"""

import asyncio
import copy
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    FORCE_REPLICAS,
    GROUP_LABEL,
    LAST_DOWNSCALE,
    LEADING_ZONE,
    MAX_UNAVAILABLE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
    PREPARE_DOWNSCALE,
    UPSCALE_WHEN_READY,
    ApiError,
    GroupName,
    Refused,
    UnknownOutcome,
)
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.scaling import Reading, Reference, Scale
from rollout_operator.model.units import format_next_second
from rollout_operator.pods import Method
from tests.controllers.fake_client import FakeClient, Json, apply_steps, pod_json, set_json
from tests.virtual_time import EPOCH, elapsed
from tests.web.downscale_world import part

URL: Final = "http://pod/prepare-delayed-downscale"

# Short names of annotations.
KEYS: Final = {
    "follows": LEADING_ZONE,
    "gate": UPSCALE_WHEN_READY,
    "force": FORCE_REPLICAS,
    "last": LAST_DOWNSCALE,
    "span": MIN_TIME_BETWEEN_DOWNSCALES,
    "write_back": MIRROR_WRITE_BACK,
    "delay": DOWNSCALE_DELAY,
    "url": DOWNSCALE_DELAY_URL,
    "limit": MAX_UNAVAILABLE,
}

DEMO: Final = Reference("rollout-operator.grafana.com", "ReplicaTemplate", "demo")
REFUSAL: Final = Refused("admission webhook denied the request: not today", status=403)
NO_ANSWER: Final = UnknownOutcome("no answer within 10s")


def zone(letter: str, replicas: int, /, **given: str) -> Json:
    """Return a whole zone; `given` are annotations by the short names above.

    `follows` is a letter.
    """
    one = set_json(f"zone-{letter}", replicas=replicas, current="new")
    if "follows" in given:
        given["follows"] = f"zone-{given['follows']}"
    annotations = {KEYS[key]: text for key, text in {"limit": "2", **given}.items()}
    part(one, "metadata")["annotations"] = annotations
    part(one, "status")["updatedReplicas"] = replicas
    part(one, "spec")["serviceName"] = "pods"
    return one


def guarded(letter: str, replicas: int, /, **annotations: str) -> Json:
    """Return a zone of which a review announces each downscale."""
    one = zone(letter, replicas, **annotations)
    labels = part(part(one, "metadata"), "labels")
    labels[PREPARE_DOWNSCALE] = "true"
    return one


def old(letter: str, replicas: int, /, **annotations: str) -> Json:
    """Return a zone of which all pods are to be replaced."""
    one = zone(letter, replicas, **annotations)
    part(one, "status").update(currentRevision="old", updatedReplicas=0)
    return one


def mirroring(letter: str, replicas: int, **annotations: str) -> Json:
    """Return a zone that mirrors DEMO."""
    one = zone(letter, replicas, **annotations)
    part(part(one, "metadata"), "annotations").update(
        {
            MIRROR_NAME: "demo",
            MIRROR_KIND: "ReplicaTemplate",
            MIRROR_API_VERSION: "rollout-operator.grafana.com/v1",
        }
    )
    return one


def delayed(letter: str, replicas: int, **annotations: str) -> Json:
    """Return a zone that mirrors DEMO, whose pods are to be prepared for an hour."""
    return mirroring(letter, replicas, **{"delay": "1h", "url": URL, **annotations})


def in_group(one: Json, group: str) -> Json:
    """Return the zone as a member of another group."""
    part(one, "metadata")["labels"] = {GROUP_LABEL: group}
    return one


def ago(span: timedelta) -> str:
    """Return a time so long before the world began, as an annotation has it."""
    return format_next_second(EPOCH - span)


def pods_of(one: Json) -> list[Json]:
    """Return the ready pods of a zone, each at the revision that the zone is at."""
    name, status = str(part(one, "metadata")["name"]), part(one, "status")
    count = int(str(part(one, "spec")["replicas"]))
    return [make_pod(name, ordinal, str(status["currentRevision"])) for ordinal in range(count)]


def make_pod(name: str, ordinal: int, revision: str) -> Json:
    """Return one ready pod."""
    pod = pod_json(name, ordinal, revision=revision)
    part(pod, "metadata")["uid"] = f"uid-{name}-{ordinal}"
    part(pod, "status")["podIP"] = f"10.0.0.{ordinal}"
    return pod


def set_count(replicas: int) -> Callable[[Json], None]:
    """Return a change of `spec.replicas`, for `ScalingClient.change`."""
    return lambda one: part(one, "spec").update(replicas=replicas)


def record_time(text: str) -> Callable[[Json], None]:
    """Return a change of the time of the last downscale."""
    return lambda one: part(part(one, "metadata"), "annotations").update({LAST_DOWNSCALE: text})


class ScalingClient(FakeClient):
    """Takes JSON patches of sets, as `Replicas` sends them: `patch` of counts, `mark` of marks."""

    def __init__(self, sets: Sequence[Json], pods: Sequence[Json]) -> None:
        super().__init__(sets, pods)
        self.patched: list[str] = []
        """Counts that were written, such as `zone-b 2`."""
        self.sent: list[list[JsonObject]] = []
        """Patches of counts, whatever became of them."""
        self.meddle: Callable[[Json], None] = lambda one: None
        """Changes what a JSON patch is about to store, as another webhook may."""
        self.after: Callable[[str], None] = lambda call: None
        """Called with every JSON patch that was stored, before it is answered."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        if isinstance(patch, dict):
            return await super().patch(resource, namespace, name, patch, subresource)
        paths = {str(step["path"]) for step in patch if step["op"] != "test"}
        is_count = "/spec/replicas" in paths
        call = f"{'patch' if is_count else 'mark'} {resource.plural}/{name}"
        if is_count:
            self.sent.append(list(patch))
        await self._record(call)
        one = apply_steps(self._held(resource, name), patch)
        if is_count:
            self.meddle(one)
            _raise_generation(one)
            self.patched.append(f"{name} {_inside(one, 'spec')['replicas']}")
        body = self._write(resource, name, one)
        self.after(call)
        return body

    def change(self, name: str, edit: Callable[[Json], None]) -> None:
        """Write a set as a person does."""
        one = copy.deepcopy(self.objects["statefulsets", name])
        before = copy.deepcopy(one.get("spec"))
        edit(one)
        if one["spec"] != before:
            _raise_generation(one)
        meta = _inside(one, "metadata")
        meta["resourceVersion"] = str(int(str(meta["resourceVersion"])) + 1)
        self.objects["statefulsets", name] = one

    def count(self, name: str) -> object:
        """Return how many replicas a set wants."""
        return _inside(self.objects["statefulsets", name], "spec")["replicas"]

    def refuse(self, name: str, error: ApiError = REFUSAL) -> None:
        """Answer every patch of a set with this error, and store nothing."""

        def fail(call: str) -> None:
            if call == f"patch statefulsets/{name}":
                raise error

        self.before = fail

    def lose_answer(self, name: str) -> None:
        """Store the next patch of a set, and answer nothing; later ones go as ever."""

        def lose(call: str) -> None:
            if call == f"patch statefulsets/{name}":
                self.after = former
                raise NO_ANSWER

        former, self.after = self.after, lose

    def tries(self, name: str) -> int:
        """Return how many patches of a set arrived."""
        return self.calls.count(f"patch statefulsets/{name}")


class FakeReferences:
    """A `References` whose readings a test sets."""

    def __init__(self) -> None:
        self.readings: dict[Reference, Reading] = {}
        self.live: dict[Reference, Reading] = {}
        """What a live read shows, where that is another."""
        self.wanted: dict[GroupName, tuple[Reference, ...]] = {}
        self.published: list[int] = []
        self.takes = timedelta(0)
        """How long a live read takes."""
        self.tries = 0
        self.error: ApiError | None = None

    def show(self, replicas: int, status: int = 0) -> None:
        """Let DEMO show these counts."""
        self.readings[DEMO] = Scale(replicas=replicas, status_replicas=status)

    def want(self, group: GroupName, references: Collection[Reference]) -> None:
        self.wanted[group] = tuple(references)

    async def refresh(self, reference: Reference) -> Reading:
        await asyncio.sleep(self.takes.total_seconds())
        return self.live.get(reference, self.readings[reference])

    async def publish(self, reference: Reference, replicas: int) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.published.append(replicas)
        reading = self.readings[reference]
        assert isinstance(reading, Scale)
        self.readings[reference] = replace(reading, status_replicas=replicas)


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod answers: a good one by default, that is prepared from its first POST on."""

    prepared: timedelta | None = None
    """For how long it is, when the world begins."""
    status: int = 200
    body: bytes | None = None
    error: OSError | None = None
    takes: timedelta = timedelta(milliseconds=50)


GOOD: Final = Store()


class FakeStores:
    """The pods behind a `PodClient`: a `Sender` that remembers calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """Such as `POST zone-b-4`."""
        self.at: list[timedelta] = []
        """When each of these arrived."""
        self.behave: dict[str, Store] = {}
        self._since: dict[tuple[str, str], float] = {}

    def prepare(self, zone: str, prepared: Mapping[int, timedelta], **how: object) -> None:
        """Let pods of a zone be prepared for so long, by ordinal; `how` as in `Store`."""
        for ordinal, span in prepared.items():
            one = Store(prepared=span, **how)  # type: ignore[arg-type]  # of the caller's names
            self.behave[f"zone-{zone}-{ordinal}"] = one

    def take(self) -> list[str]:
        """Return the calls since the last time, sorted by method and pod."""
        taken = sorted(self.calls)
        self.calls.clear()
        self.at.clear()
        return taken

    async def send(self, method: Method, endpoint: Endpoint) -> int:
        store = await self._arrive(method, endpoint)
        if method == "DELETE" and store.status // 100 == 2:
            self._since.pop((endpoint.pod, endpoint.uid), None)
            if store.prepared is not None:
                self.behave[endpoint.pod] = replace(store, prepared=None)
        return store.status

    async def post(self, endpoint: Endpoint) -> tuple[int, bytes]:
        store = await self._arrive("POST", endpoint)
        if store.body is not None:
            return store.status, store.body
        begun = elapsed().total_seconds()
        if store.prepared is not None:
            begun = -store.prepared.total_seconds()
        since = self._since.setdefault((endpoint.pod, endpoint.uid), begun)
        return store.status, json.dumps({"timestamp": int(EPOCH.timestamp() + since)}).encode()

    async def close(self) -> None:
        """Nothing is open."""

    async def _arrive(self, method: Method, endpoint: Endpoint) -> Store:
        self.calls.append(f"{method} {endpoint.pod}")
        self.at.append(elapsed())
        store = self.behave.get(endpoint.pod, GOOD)
        await asyncio.sleep(store.takes.total_seconds())
        if store.error is not None:
            raise store.error
        return store


def _raise_generation(one: Json) -> None:
    meta = _inside(one, "metadata")
    meta["generation"] = int(str(meta["generation"])) + 1


def _inside(one: Json, key: str) -> Json:
    found = one[key]
    assert isinstance(found, dict)
    return found
