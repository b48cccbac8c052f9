"""What is read for a HealthCheck, and which errors say nothing of it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rollout_operator.aio.tasks import gather_all
from rollout_operator.controllers.health_checks import CheckReader, CheckRequest
from rollout_operator.kube.api import Page, Resource, Served
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.model.names import (
    ApiError,
    Denied,
    NotElected,
    NotFound,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.release_plan import CheckClass, FluxReference, HealthStatus
from rollout_operator.model.releases import KUBERIK, OURS, ReleaseCompat
from tests.planning.releases.builders import at, check
from tests.virtual_time import VirtualClock, in_virtual_time

PLACE = FluxReference(kind="Kustomization", namespace="prod", name="app")
READY = {"type": "Ready", "status": "True", "reason": "Ok", "message": "applied"}
FAILING = {
    "type": "Ready",
    "status": "False",
    "reason": "BuildFailed",
    "message": "no such file",
    "lastTransitionTime": "2020-01-01T00:00:00Z",
}


class OneKustomization:
    """Stands in for the API server: a Kustomization of one Deployment, and perhaps an error."""

    def __init__(
        self,
        *,
        own: ApiError | None = None,
        of_objects: ApiError | None = None,
        names: Sequence[str] = ("web",),
        ready: Mapping[str, str] = READY,
    ) -> None:
        self._ready = ready
        self._own = own
        self._of_objects = of_objects
        self._names = names
        self.more: Sequence[str] = ()
        """Ids of other objects of the inventory."""
        self.odd_entries: object = None
        """In place of the entries of the inventory."""
        self.text = ""
        """What was found last."""
        self._underway = 0
        self.most = 0
        """So many objects were read at a time."""
        self.reads: list[str] = []

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        self.reads.append(f"{resource.kind} {namespace}/{name}")
        self._underway += 1
        self.most = max(self.most, self._underway)
        await asyncio.sleep(1)
        self._underway -= 1
        error = self._own if resource.kind == "Kustomization" else self._of_objects
        if error is not None:
            raise error
        deployments = [{"id": f"prod_{one}_apps_Deployment"} for one in self._names]
        entries = [*deployments, *({"id": one} for one in self.more), {"id": "prod_s__Secret"}]
        status: Mapping[str, object] = {
            "conditions": [self._ready],
            "inventory": {"entries": entries if self.odd_entries is None else self.odd_entries},
        }
        is_own = resource.kind == "Kustomization"
        version = "kustomize.toolkit.fluxcd.io/v1" if is_own else "v1"
        body = {"apiVersion": version, "kind": resource.kind, "status": status if is_own else {}}
        return json.dumps(body).encode()

    async def fetch_page(self, *args: Any, **how: Any) -> Page:
        raise AssertionError("nothing is listed for a Kustomization")

    async def fetch_group(self, group: str) -> tuple[str, ...]:
        if f"_{group}_" in UNSERVED:
            raise NotFound("no such group")
        return ("v1",)

    async def fetch_resources(self, group: str, version: str) -> tuple[Served, ...]:
        kind = {"apps": "Deployment", "": "Namespace"}.get(group, "Role")
        resource = Resource(group, version, f"{kind.lower()}s", kind)
        return (Served(resource=resource, subresources=frozenset()),)


async def evaluate(
    api: OneKustomization, unread: int = 0, compat: ReleaseCompat = OURS
) -> tuple[HealthStatus, bool]:
    reader = CheckReader(api, KindCatalog(api, VirtualClock()), compat=compat)
    request = CheckRequest(check=check(), place=PLACE, now=at(0), unread=unread)
    found = await reader.evaluate(CheckClass.KUSTOMIZATION, request)
    api.text = found.finding.text
    return found.finding.status, found.has_unread


@in_virtual_time
async def test_what_is_read() -> None:
    """RELB-28: the Kustomization, and of its inventory what may fail."""
    api = OneKustomization()
    await evaluate(api)
    assert api.reads == ["Kustomization prod/app", "Deployment prod/web"]


@pytest.mark.parametrize("entries", [5, {}, "x", [5], [None], [{"id": 5}], [{}]])
@in_virtual_time
async def test_an_inventory_that_cannot_be_read_is_unhealthy(entries: object) -> None:
    """RELB-28: what it holds may fail."""
    api = OneKustomization()
    api.odd_entries = entries
    assert await evaluate(api) == (HealthStatus.UNHEALTHY, False)


@in_virtual_time
async def test_large_inventories_are_read_a_few_objects_at_a_time() -> None:
    """REL-30: of all checks together, so that nothing else waits long for its turn."""
    api = OneKustomization(names=[f"web-{number}" for number in range(40)])
    reader = CheckReader(api, KindCatalog(api, VirtualClock()))
    request = CheckRequest(check=check(), place=PLACE, now=at(0))
    await gather_all(reader.evaluate(CheckClass.KUSTOMIZATION, request) for _ in range(5))
    assert len(api.reads) == 5 * 41
    assert api.most == 8


UNSERVED = "prod_x_foo.example_Bar"


@pytest.mark.parametrize("unread", [0, 1, 2])
@pytest.mark.parametrize(
    "api",
    [
        pytest.param(OneKustomization(own=Unreachable("no answer")), id="the Kustomization"),
        pytest.param(OneKustomization(of_objects=Unreachable("no answer")), id="an object"),
        pytest.param(UNSERVED, id="a kind that the cluster does not have"),
        pytest.param("prod_x_apps_Bar", id="a kind that its group does not have"),
    ],
)
@in_virtual_time
async def test_what_cannot_be_read_counts_by_the_number_of_evaluations(
    api: OneKustomization | str, unread: int
) -> None:
    """RELB-37, REL-109."""
    if isinstance(api, str):
        more, api = (api,), OneKustomization()
        api.more = more
    expected = HealthStatus.UNHEALTHY if unread == 2 else HealthStatus.PENDING
    assert await evaluate(api, unread) == (expected, True)


DENIED = Denied("grant verb get on deployments")
ROLE = "prod_r_rbac.authorization.k8s.io_Role"
NAMESPACE = "_prod__Namespace"


@pytest.mark.parametrize(
    ("api", "more", "status", "text"),
    [
        pytest.param(
            OneKustomization(own=DENIED), (), HealthStatus.PENDING, f"unknown: {DENIED}",
            id="the Kustomization",
        ),
        pytest.param(
            OneKustomization(of_objects=DENIED), (), HealthStatus.PENDING,
            f"Deployment prod/web: unknown: {DENIED}", id="a Deployment, which may fail",
        ),
        pytest.param(
            OneKustomization(names=(), of_objects=DENIED), (ROLE, NAMESPACE), HealthStatus.HEALTHY,
            "applied; may not be read, and does not count: Role prod/r and Namespace prod",
            id="kinds without a health of their own",
        ),
        pytest.param(
            OneKustomization(names=(), of_objects=DENIED), ("x_y_other.example_Role",),
            HealthStatus.HEALTHY, "applied; may not be read, and does not count: Role x/y",
            id="a kind of others, in another namespace",
        ),
        pytest.param(
            OneKustomization(of_objects=DENIED), (ROLE,), HealthStatus.PENDING,
            f"Deployment prod/web: unknown: {DENIED}", id="both",
        ),
    ],
)  # fmt: skip
@in_virtual_time
async def test_what_may_not_be_read_is_unknown_and_no_failure(
    api: OneKustomization, more: Sequence[str], status: HealthStatus, text: str
) -> None:
    """RELB-28: however often it is looked at. It says what is not known."""
    api.more = more
    for unread in range(5):
        assert await evaluate(api, unread) == (status, False)
    assert api.text == text


class NoRights(OneKustomization):
    """Stands in for an API server that lets nothing be read."""

    async def fetch_page(self, *args: Any, **how: Any) -> Page:
        raise DENIED


@pytest.mark.parametrize("own", CheckClass)
@in_virtual_time
async def test_a_check_of_any_class_waits_for_a_right(own: CheckClass) -> None:
    """RELB-28, RELB-36."""
    api = NoRights(own=DENIED, of_objects=DENIED)
    reader = CheckReader(api, KindCatalog(api, VirtualClock()))
    request = CheckRequest(check=check(), place=PLACE, now=at(0), unread=9)
    found = await reader.evaluate(own, request)
    assert (found.finding.status, found.finding.text) == (
        HealthStatus.PENDING,
        f"unknown: {DENIED}",
    )
    assert not found.has_unread


@pytest.mark.parametrize(
    ("compat", "expected"), [(OURS, HealthStatus.UNHEALTHY), (KUBERIK, HealthStatus.PENDING)]
)
@in_virtual_time
async def test_a_failure_of_flux_counts_unless_kuberiks_outcome_is_wanted(
    compat: ReleaseCompat, expected: HealthStatus
) -> None:
    """RELB-37: one that has lasted for longer than the grace."""
    assert await evaluate(OneKustomization(ready=FAILING), compat=compat) == (expected, False)


@pytest.mark.parametrize("error", [Throttled("x"), TooManyRequests("x"), NotElected("x")])
@in_virtual_time
async def test_what_was_not_sent_says_nothing_of_health(error: ApiError) -> None:
    """RELB-37: our own limits, and a server under load, make nothing unhealthy."""
    for api in (OneKustomization(own=error), OneKustomization(of_objects=error)):
        with pytest.raises(type(error)):
            await evaluate(api, 5)
