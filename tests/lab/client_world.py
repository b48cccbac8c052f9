"""A simulated API server with some Secrets, and clients of it under planned faults.

@in_virtual_time
async def test_it() -> None:
    world = ClientWorld(fails(Failure.TIMEOUT))
    await world.client.fetch(SECRETS, NAMESPACE, "a")
"""

import asyncio
import random
from collections.abc import Awaitable
from typing import Final

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.model.history import Called, Commit, Fault, History
from rollout_lab.model.request import ApiRequest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import Failure, FaultDecision
from rollout_lab.network.link import Link

from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import SECRETS, JsonObject, Page, Precondition
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import Uid
from tests.simulation.planned_faults import CallPlan, Planned, ScriptedFaults
from tests.virtual_time import EPOCH, elapsed

ACTOR: Final = "operator-1"
NAMESPACE: Final = "default"


def fails(how: Failure, number: int = 1) -> CallPlan:
    """Return the plan that the n-th call fails so."""
    return CallPlan(actor=ACTOR, number=number, outcome=FaultDecision(fails=how))


def loop_time() -> float:
    """Return the seconds since the world began."""
    return asyncio.get_running_loop().time()


def secret(name: str, **data: str) -> JsonObject:
    """Return a Secret as one creates it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }


class ClientWorld:
    """The API server, one process's link to it, and a client for informers and one for the rest."""

    def __init__(self, *plan: Planned, seed: int = 1, limits: RateLimiter | None = None) -> None:
        self.history = History()
        self.api = SimulatedApi(
            self.history,
            elapsed=elapsed,
            epoch=EPOCH,
            rng=random.Random(seed),
        )
        self.limits = limits or RateLimiter(0, 0)
        self.reported: list[Fault] = []
        self.faults = ScriptedFaults(plan, self.reported.append)
        self.link = Link(ACTOR, faults=self.faults, rng=random.Random(seed))
        self.client = SimulatedClient(self.api, self.link, name="acting", limits=self.limits)
        self.following = SimulatedClient(self.api, self.link, name="following", limits=self.limits)

    def put(self, name: str, **data: str) -> int:
        """Create or change a Secret as another client; return the version."""
        verb = "update" if self.api.get(SECRETS, NAMESPACE, name) else "create"
        answer = self.api.call_now(
            ApiRequest(
                verb=verb,  # type: ignore[arg-type]  # one of two literals
                resource=SECRETS,
                namespace=NAMESPACE,
                name=name if verb == "update" else "",
                body=secret(name, **data),
            )
        )
        assert answer.is_ok, answer.message
        return self.api.revision

    def precondition(self, name: str) -> Precondition:
        """Return what holds for a Secret now."""
        obj = self.api.get(SECRETS, NAMESPACE, name)
        assert obj is not None
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        return Precondition(uid=Uid(metadata["uid"]), resource_version=metadata["resourceVersion"])

    def exists(self, name: str) -> bool:
        return self.api.get(SECRETS, NAMESPACE, name) is not None

    def commits(self) -> list[Commit]:
        """Return the writes of the process."""
        return [one for one in self.history.list_all(Commit) if one.actor == ACTOR]

    def calls(self) -> list[Called]:
        """Return the requests of the process that arrived."""
        return [one for one in self.history.list_all(Called) if one.actor == ACTOR]

    async def list(self, client: SimulatedClient | None = None) -> Page:
        return await (client or self.client).fetch_page(SECRETS, NAMESPACE)


async def never_returns(work: Awaitable[object]) -> bool:
    """Return whether `work` still waits after so long; it is cancelled then."""

    async def wait() -> None:
        await work

    return await race(work=wait(), limit=asyncio.sleep(3600.0)) == "limit"
