"""References on a simulated API server: what they read, and what they report.

@in_virtual_time
async def test_it() -> None:
    async with following() as rig:
        rig.put("demo", 3)
        rig.want("store", "demo")
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.apiserver.streams import Stream
from rollout_lab.model.history import Called, History
from rollout_lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import OUTCOME, Failure, FaultDecision, NoFaults, SentCall
from rollout_lab.network.link import Link
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.schemas.refusals import NoPage

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.kube.scales import References
from rollout_operator.model.names import GroupName
from rollout_operator.model.scaling import NoScale, Reading, Reference, Scale
from tests.virtual_time import EPOCH, VirtualClock, elapsed

ACTOR: Final = "operator-1"
NAMESPACE: Final = "default"
GROUP: Final = REPLICA_TEMPLATES.group
INTERVAL: Final = timedelta(seconds=5)


def reference(name: str, kind: str = "ReplicaTemplate", group: str = GROUP) -> Reference:
    """Return a reference to a ReplicaTemplate, if nothing else is said."""
    return Reference(group, kind, name)


def shown(replicas: int, status_replicas: int = 0) -> Scale:
    """Return the reading of these counts."""
    return Scale(replicas=replicas, status_replicas=status_replicas)


class Trouble(NoFaults):
    """Calls whose text ends like this fail like that: `get replicatemplates/demo/scale`."""

    def __init__(self) -> None:
        self.fails: dict[str, Failure] = {}
        self.answers_after = timedelta(0)
        """How long the answers to all calls are on their way."""
        self.requested: list[tuple[timedelta, str]] = []

    def on_call(self, sent: SentCall) -> FaultDecision:
        call = sent.text.partition(": ")[2].rstrip()
        self.requested.append((elapsed(), call))
        failure = self.fails.get(call) or self.fails.get(sent.verb)
        if failure is None and not self.answers_after:
            return OUTCOME
        return FaultDecision(fails=failure, after=self.answers_after)


class Server(SimulatedApi):
    """An API server on which the kind of ReplicaTemplates may not be installed."""

    is_bare = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.watches: list[Stream] = []

    def end_watches(self) -> None:
        """End all that were opened."""
        for one in self.watches:
            one.close()

    async def call(self, request: ApiRequest) -> ApiAnswer:
        if self.is_bare and request.resource.group == GROUP:
            return NoPage().answer()
        return await super().call(request)

    def open_watch(self, request: ApiRequest) -> Stream:
        if self.is_bare and request.resource.group == GROUP:
            raise NoPage
        self.watches.append(super().open_watch(request))
        return self.watches[-1]


@dataclass
class Rig:
    """One process's references, and the API server behind them."""

    api: Server
    link: Link
    trouble: Trouble
    references: References
    reported: list[tuple[timedelta, str]] = field(default_factory=list)

    def put(self, name: str, replicas: int, **spec: object) -> None:
        """Create a ReplicaTemplate, or change its count."""
        spec = {"replicas": replicas, **spec}
        if self.api.get(REPLICA_TEMPLATES, NAMESPACE, name) is not None:
            self.patch(name, {"spec": spec})
            return
        body: JsonObject = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ReplicaTemplate",
            "metadata": {"name": name},
            "spec": spec,
        }
        self._call(ApiRequest(
            verb="create", resource=REPLICA_TEMPLATES, namespace=NAMESPACE, body=body
        ))  # fmt: skip

    def patch(self, name: str, patch: JsonObject, subresource: str = "") -> None:
        self._call(
            ApiRequest(
                verb="patch",
                resource=REPLICA_TEMPLATES,
                namespace=NAMESPACE,
                name=name,
                subresource=subresource,
                body=patch,
                content_type=MERGE_PATCH,
            )
        )

    def delete(self, name: str) -> None:
        self._call(
            ApiRequest(verb="delete", resource=REPLICA_TEMPLATES, namespace=NAMESPACE, name=name)
        )

    def _call(self, request: ApiRequest) -> None:
        answer = self.api.call_now(request)
        assert answer.is_ok, answer.message

    def forbid(self, verb: str, plural: str = "replicatemplates") -> None:
        """Take a right away."""
        self.api.forbidden.add((ACTOR, verb, plural))

    def want(self, group: str, *names: str | Reference) -> None:
        """Have a group want these."""
        wanted = [reference(one) if isinstance(one, str) else one for one in names]
        self.references.want(GroupName(group), wanted)

    def reading(self, of: str | Reference = "demo") -> Reading | None:
        return self.references.readings.get(reference(of) if isinstance(of, str) else of)

    def refusal(self, of: str | Reference = "demo") -> NoScale:
        found = self.reading(of)
        assert isinstance(found, NoScale), found
        return found

    async def follow(self, replicas: int) -> None:
        """Have `demo` followed by the group `store`."""
        self.put("demo", replicas)
        self.want("store", "demo")
        await self.until_shown(replicas)

    async def settle(self) -> None:
        """Have `demo` followed, up to a moment at which nothing goes on."""
        await self.follow(3)
        await asyncio.sleep(3)

    async def until(self, holds: Callable[[], bool], within: float = 2.0) -> None:
        """Wait until it holds, at most for so many seconds."""
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110 (virtual time: it costs nothing)
                await asyncio.sleep(0.01)

    async def until_shown(self, replicas: int, of: str = "demo", within: float = 2.0) -> None:
        def is_shown() -> bool:
            found = self.reading(of)
            return isinstance(found, Scale) and found.replicas == replicas

        await self.until(is_shown, within)

    def requested(self, since: float = 0.0) -> Counter[str]:
        """Return how often what was read, from a moment on."""
        begin = timedelta(seconds=since)
        return Counter(call for at, call in self.trouble.requested if at >= begin)

    def statuses(self) -> Counter[int]:
        """Return the statuses of what was answered."""
        calls = self.api.history.list_all(Called)
        return Counter(one.status for one in calls if one.actor == ACTOR)


@asynccontextmanager
async def following(interval: timedelta = INTERVAL) -> AsyncIterator[Rig]:
    """Run references to the end of the block."""
    api = Server(History(), elapsed=elapsed, epoch=EPOCH, rng=random.Random(1))
    trouble = Trouble()
    link = Link(ACTOR, faults=trouble, rng=random.Random(2))
    clock = VirtualClock()
    client = SimulatedClient(api, link, name="mirroring", limits=RateLimiter(0, 0))
    references = References(
        client,
        NAMESPACE,
        reader=client,
        reconcile_interval=interval,
        clock=clock,
        rng=random.Random(3).random,
    )
    rig = Rig(api, link, trouble, references)
    references.on_change(lambda group: rig.reported.append((elapsed(), group)))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(references.run(), name="references")
        try:
            yield rig
        finally:
            task.cancel()
    await asyncio.sleep(60)  # what was on its way to the API server arrives


def listed(resource: Resource = REPLICA_TEMPLATES) -> str:
    """Return how a list of a kind is recorded."""
    return f"list {resource.plural}"
