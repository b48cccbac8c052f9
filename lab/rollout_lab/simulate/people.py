"""What people do in a simulated world: the changes that were requested, as calls and accidents.

What may be requested is decided in `changes`. A new pod gets the node that the pod of its name had,
another node where that is cordoned, and none where there is no room.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from rollout_lab.drains import EVICTION, Draining, evict
from rollout_lab.model.fields import children, name_of, text
from rollout_lab.model.history import Called, Record, Reviewed
from rollout_lab.model.request import MERGE_PATCH, STRATEGIC_PATCH, ApiAnswer, ApiRequest
from rollout_lab.nodes.kubelet import SCHEDULER
from rollout_lab.process import RESTART_PAUSE, SimulatedProcess
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.simulate.changes import (
    Change,
    Cordon,
    DeletePod,
    EvictPod,
    KillOperator,
    Names,
    NewImage,
    NewTemplate,
    NoRoom,
    Pause,
    PodFails,
    PodRecovers,
    ScaleChange,
)
from rollout_lab.simulate.policies import PolicyEdit, render_edit
from rollout_lab.simulate.times import CHANGE_MARK, CRASHES
from rollout_lab.world import Sandbox
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import PAUSED

_PLACE: Final = re.compile(r"; (?:\d+ evictions? ahead|the next eviction in line)$")
# Where pods go whose node is not known, or is cordoned: nothing is known of other nodes.
ELSEWHERE: Final = "another-node"


class Places(msgspec.Struct, kw_only=True):
    """Which node each new pod gets."""

    homes: Mapping[str, str]
    """The node of each pod of the input."""
    say: Callable[[str, str], None]
    """Has the readers of the story know what has happened, and to whom."""
    retry: Callable[[], None]
    """Has the scheduler try again for pods that wait."""
    _cordoned: set[str] = set()
    _missing: int = 0
    _waiting: set[str] = set()

    def cordon(self, nodes: Collection[str]) -> None:
        """Place no pod on these nodes any more."""
        self._cordoned.update(nodes)

    def limit(self, pods: int) -> None:
        """Place so many pods nowhere; those that wait already count."""
        self._missing = pods
        self._waiting.clear()
        self.retry()

    def choose(self, pod: JsonObject) -> str | None:
        """Return the node that a pod gets, None where it waits."""
        name = name_of(pod)
        if name in self._waiting:
            return None
        if len(self._waiting) < self._missing:
            self._waiting.add(name)
            self.say(SCHEDULER, f"no room for {name}: it waits for a node")
            return None
        home = self.homes.get(name, ELSEWHERE)
        return ELSEWHERE if home in self._cordoned else home


def drop_repeats(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records without evictions that are refused once more for the same reason.

    Of a pod that is down, its state in parentheses changes, and with it the place in the line.
    """
    last: dict[str, tuple[int, str]] = {}
    repeated: set[int] = set()
    for record in records:
        if isinstance(record, Called) and record.request.subresource == EVICTION:
            reason = (record.status, record.message.partition(" (")[0])
            if record.status >= 400 and last.get(record.request.name) == reason:
                repeated.add(record.number)
            last[record.request.name] = reason
    for record in records:
        match record:
            case Called(number=call) | Reviewed(call=call) if call in repeated:
                pass
            case Reviewed():
                # How many are ahead differs for pods that are refused together.
                yield replace(record, message=_PLACE.sub("", record.message))
            case _:
                yield record


PERSON: Final = "you"


@dataclass(slots=True, kw_only=True)
class People:
    """Those who change things."""

    sandbox: Sandbox
    names: Names
    operator: SimulatedProcess
    places: Places
    begin: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    """Starts what goes on beside later changes; the caller is its parent."""
    _begun: list[asyncio.Task[None]] = field(default_factory=list)
    _drains: list[Draining] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)
    """A sentence for each change that the API server refused."""
    _marks: int = 0

    async def apply(self, change: Change) -> None:
        """Let one change happen now; what is refused is part of the story."""
        self.sandbox.say(PERSON, change.text)
        for answer in await self._carry_out(change):
            if not answer.is_ok:
                self._refused.append(f"{change.text} was refused: {answer.explanation}")

    async def _carry_out(self, change: Change) -> Sequence[ApiAnswer]:
        """Do what it says; return what the API server answers, where it was called."""
        match change.deed:
            case NewTemplate(zones=zones, is_bad=is_bad):
                self._marks += 1
                mark = f"{CRASHES if is_bad else ''}{self._marks}"
                return await self._send(_mark(zone, mark) for zone in self.names.expand(zones))
            case NewImage(image=image, zones=zones):
                return await self._send(
                    self._change_image(zone, image) for zone in self.names.expand(zones)
                )
            case ScaleChange(zone=zone, replicas=replicas):
                request = _patch(zone, {"spec": {"replicas": replicas}}, subresource="scale")
                if zone not in self.names.zones:
                    request = replace(request, resource=REPLICA_TEMPLATES)
                return await self._send([request])
            case Pause(zone=zone, is_paused=is_paused) if self.names.is_policy(zone):
                return await self._send([render_edit(PolicyEdit(zone, "paused", is_paused))])
            case Pause(zone=zone, is_paused=is_paused):
                annotations = {PAUSED: "true" if is_paused else None}
                body: JsonObject = {"metadata": {"annotations": annotations}}
                return await self._send(_patch(name, body) for name in self.names.expand([zone]))
            case PolicyEdit() as edit:
                return await self._send([render_edit(edit)])
            case DeletePod(pod=pod):
                return await self._send([ApiRequest(verb="delete", resource=PODS, name=pod)])
            case EvictPod(pod=pod):
                return [await evict(self.sandbox, pod, PERSON)]
            case Cordon() as cordon:
                self._cordon(change, cordon)
            case NoRoom(pods=pods):
                self.places.limit(pods)
            case KillOperator():
                self._begun.append(self.begin(self._kill_operator()))
            case PodFails(pod=pod):
                self._disturb(pod, is_well=False)
            case PodRecovers(pod=pod):
                self._disturb(pod, is_well=True)
            case _:
                assert_never(change.deed)
        return ()

    def stop(self) -> tuple[str, ...]:
        """End what still goes on; return what is not done then."""
        for task in self._begun:
            task.cancel()
        rest = (line for drain in self._drains for line in drain.describe_rest())
        return (*self._refused, *rest)

    def _cordon(self, change: Change, cordon: Cordon) -> None:
        nodes = self.names.list_nodes(cordon)
        self.places.cordon(nodes)
        if cordon.is_drain:
            drain = Draining(sandbox=self.sandbox, what=change.text, nodes=nodes, actor=PERSON)
            self._drains.append(drain)
            self._begun.append(self.begin(drain.run()))

    async def _kill_operator(self) -> None:
        self.operator.crash("killed by you")
        await asyncio.sleep(RESTART_PAUSE.total_seconds())
        self.sandbox.say(self.operator.name, "is started again by the kubelet")
        self.operator.start()

    async def _send(self, requests: Iterable[ApiRequest]) -> list[ApiAnswer]:
        return [
            await self.sandbox.api.call(
                replace(request, namespace=self.sandbox.namespace, user=PERSON)
            )
            for request in requests
        ]

    def _change_image(self, zone: str, image: str) -> ApiRequest:
        sts = self.sandbox.api.get(STATEFULSETS, self.sandbox.namespace, zone) or {}
        first = text(children(sts, "spec", "template", "spec", "containers")[0], "name")
        spec = {"containers": [{"name": first, "image": image}]}
        # What crashed did so with another image.
        head = {"annotations": {CHANGE_MARK: None}}
        body: JsonObject = {"spec": {"template": {"metadata": head, "spec": spec}}}
        return _patch(zone, body, content_type=STRATEGIC_PATCH)

    def _disturb(self, pod: str, *, is_well: bool) -> None:
        cluster = self.sandbox.cluster
        found = self.sandbox.api.get(PODS, self.sandbox.namespace, pod) or {}
        if is_well and text(found, "status", "phase") == "Pending":
            self.sandbox.say(PERSON, f"{pod} has not started at that time: nothing is done")
            return
        try:
            if is_well:
                cluster.mend_pod(pod)
            else:
                cluster.fail_pod(pod)
        except LookupError:
            self.sandbox.say(PERSON, f"{pod} is not there at that time: nothing is done")


def _mark(zone: str, mark: str) -> ApiRequest:
    """Return the request that makes a new revision, as `kubectl rollout restart` does."""
    head = {"annotations": {CHANGE_MARK: mark}}
    return _patch(zone, {"spec": {"template": {"metadata": head}}})


def _patch(
    zone: str, body: JsonObject, *, subresource: str = "", content_type: str = MERGE_PATCH
) -> ApiRequest:
    return ApiRequest(
        verb="patch",
        resource=STATEFULSETS,
        name=zone,
        subresource=subresource,
        body=body,
        content_type=content_type,
    )
