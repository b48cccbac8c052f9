"""Reading a namespace from outside (D-76): the same core, without an operator, by reads only."""

from datetime import timedelta

import msgspec
import pytest
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    SERVICES,
    ZONE_BUDGETS,
    JsonObject,
    Page,
    Resource,
)
from rollout_operator.model.description import Description, OperatorDescription, Phase, Waiting
from rollout_operator.model.names import ApiError, Denied, NotFound, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.operator.inspect import Inspector, is_settled, list_namespaces
from rollout_operator.planning.describe_groups import merge_descriptions
from tests.operator.diagnosis.inspected import ObservedCluster, observed_cluster
from tests.virtual_time import VirtualClock, in_virtual_time

ZONES = three_zones(replicas=2)
NAMES = [zone.name for zone in ZONES]
BUDGET: JsonObject = {
    "apiVersion": "rollout-operator.grafana.com/v1",
    "kind": "ZoneAwarePodDisruptionBudget",
    "metadata": {"name": "ingester"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "ingester"}}},
}


POLICY: JsonObject = {
    "apiVersion": "rollout.grafana.com/v1alpha1",
    "kind": "MultiAZRollout",
    "metadata": {"name": "db"},
    "spec": {"statefulSetSelector": {"matchLabels": {"app": "db"}}},
}


class Partial:
    """The client of an onlooker, where some reads fail or are answered by a test."""

    def __init__(self, world: ObservedCluster, **answers: bytes | ApiError) -> None:
        self._world = world
        self.answers = answers
        self.asked: list[str] = []
        self.services: list[JsonObject] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.client, name)

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        self.asked += [name] if resource is SERVICES else []
        answer = self.answers.get(resource.plural, NotFound(f"no {name}"))
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def fetch_page(self, resource: Resource, namespace: str, **query: object) -> object:
        answer = self.answers.get(resource.plural)
        if isinstance(answer, ApiError):
            raise answer
        if resource is SERVICES:
            items = [msgspec.Raw(msgspec.json.encode(made)) for made in self.services]
            return Page(items=items, resource_version="1")
        return await self._world.client.fetch_page(resource, namespace, **query)  # type: ignore[arg-type]  # passed on


def requesting(
    world: ObservedCluster, service: str | None = None, **answers: bytes | ApiError
) -> Inspector:
    """Return an inspector that calls the operator, too."""
    return inspecting(Partial(world, **answers), world, service)


def inspecting(client: Partial, world: ObservedCluster, service: str | None = None) -> Inspector:
    return Inspector(
        client,  # type: ignore[arg-type]  # all that is used of it
        world.sandbox.namespace,
        world.sandbox.clock(),
        service=service,
        lease="rollout-operator",
    )


@in_virtual_time
async def test_d_76_without_an_operator_the_same_core_decides_and_nothing_is_written() -> None:
    async with observed_cluster(*ZONES) as world:
        [group] = (await world.inspect()).description.groups
        assert (group.phase, group.ready, group.desired) == (Phase.ROLLED_OUT, 6, 6)

        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        seen = await world.inspect()

        [group] = seen.description.groups
        assert [step.pod for step in group.steps] == [f"{NAMES[0]}-0"]
        assert group.updated == 0
        assert world.collect_verbs() == {"list"}


@in_virtual_time
async def test_d_75_it_says_what_the_operator_says() -> None:
    async with observed_cluster(*ZONES) as world:
        process = world.sandbox.process()
        process.start()
        await process.wait_ready()
        await world.set_image(*NAMES)
        pairs = []
        for _ in range(60):
            # Never at the moment at which a pod changes: between the two reads something would.
            await VirtualClock().sleep(world.patience / 3.9)
            [mine] = (await world.inspect()).description.groups
            [theirs] = (await process.describe()).groups
            pairs.append(((mine.phase, mine.code), (theirs.phase, theirs.code)))

        assert len(set(pairs)) > 2
        assert [mine for mine, theirs in pairs] == [theirs for mine, theirs in pairs]
        assert mine.headline == theirs.headline


@in_virtual_time
async def test_d_75_of_a_budget_it_says_the_same_as_well() -> None:
    labels = {"rollout-group": "ingester"}
    zones = [ZoneSpec(name=name, replicas=2, pod_labels=labels) for name in NAMES]
    async with observed_cluster(*zones) as world:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        await world.create(ZONE_BUDGETS, {**BUDGET, "spec": spec})
        process = world.sandbox.process()
        process.start()
        await VirtualClock().sleep(world.patience)

        [mine] = (await world.inspect()).description.budgets
        [theirs] = (await process.describe()).budgets

        assert mine == theirs
        assert (mine.zones, mine.pods, mine.unavailable, mine.allowed) == (3, 6, 0, 1)


@in_virtual_time
async def test_a_status_that_lags_its_spec_settles_nothing() -> None:
    async with observed_cluster(*ZONES) as world:
        assert all(map(is_settled, (await world.inspect()).groups.values()))

        world.sandbox.cluster.lag_controller(world.patience)
        await world.set_image(NAMES[0])
        seen = await world.inspect()

        assert not all(map(is_settled, seen.groups.values()))
        assert seen.description.groups[0].code is Code.STATUS_BEHIND


@in_virtual_time
async def test_a_budget_that_selects_pods_alone_holds_the_group_here_as_well() -> None:
    zones = [ZoneSpec(name=name, replicas=2, pod_labels={"app": "ingester"}) for name in NAMES]
    async with observed_cluster(*zones) as world:
        await world.create(ZONE_BUDGETS, BUDGET)
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)

        [group] = (await world.inspect()).description.groups

        assert (group.phase, group.code) == (Phase.HELD, Code.TOO_FEW_ZONES)
        [budget] = (await world.inspect()).description.budgets
        assert (budget.name, budget.maximum, budget.allowed) == ("ingester", "1", 0)
        assert not [step for step in group.steps if not step.is_waiting]


@in_virtual_time
async def test_replicas_that_are_due_are_reported_where_no_operator_writes_them() -> None:
    leading = ZoneSpec(name="zone-a", replicas=3)
    following = ZoneSpec(
        name="zone-b",
        replicas=2,
        annotations={"grafana.com/rollout-downscale-leader": "zone-a"},
    )
    async with observed_cluster(leading, following) as world:
        [group] = (await world.inspect()).description.groups

        assert group.phase is not Phase.ROLLED_OUT
        assert Code.SCALE_UP in [wait.code for wait in group.waits]


@in_virtual_time
async def test_what_may_not_be_read_is_said_and_the_rest_is_shown() -> None:
    budgets = Denied("cannot list budgets")
    async with observed_cluster(*ZONES) as world:
        inspector = requesting(world, zoneawarepoddisruptionbudgets=budgets, services=Denied("no"))
        seen = await inspector.inspect()

        assert seen.own is None
        assert seen.remarks == (
            "operator not reached: it takes the right to get services/proxy of"
            " rollout-operator:8001",
            "budgets are left out: cannot list budgets",
        )
        assert seen.best.groups[0].phase is Phase.ROLLED_OUT


@in_virtual_time
async def test_the_operators_own_description_is_shown_where_it_acts() -> None:
    async with observed_cluster(*ZONES) as world:
        now = world.sandbox.clock().now()
        operator = OperatorDescription(version="9", is_ready=True, is_acting=True)
        own = Description(namespace="default", now=now, operator=operator)

        refused = Denied("no budgets")
        seen = await requesting(
            world, services=msgspec.json.encode(own), zoneawarepoddisruptionbudgets=refused
        ).inspect()
        assert (seen.best, seen.remarks) == (own, ())
        assert seen.description.operator == operator

        idle = msgspec.structs.replace(operator, is_acting=False)
        own = msgspec.structs.replace(own, operator=idle)
        seen = await requesting(world, services=msgspec.json.encode(own)).inspect()
        assert seen.best is seen.description
        assert seen.best.operator == idle


@in_virtual_time
async def test_maz60_of_an_operator_of_several_namespaces_the_one_is_shown() -> None:
    async with observed_cluster(*ZONES) as world:
        operator = OperatorDescription(version="9", is_ready=True, is_acting=True)
        now = world.sandbox.clock().now()
        whole = Description(namespace="ops", now=now, operator=operator)
        mine = msgspec.structs.replace(whole, namespace=world.sandbox.namespace)
        other = msgspec.structs.replace(mine, namespace="other")
        for watched, own in ((mine, mine), (other, None)):
            merged = merge_descriptions(whole, [watched])
            seen = await requesting(world, services=msgspec.json.encode(merged)).inspect()
            assert seen.own == own
        why = f"it does not look after namespace {world.sandbox.namespace}"
        assert seen.remarks[0].startswith(f"operator not reached: {why}; -service=[NAMESPACE/]")


def service(name: str, *, port: int = 8001, port_name: str = "", **labels: str) -> JsonObject:
    keys = {"app": "app.kubernetes.io/name", "chart": "helm.sh/chart"}
    metadata = {"name": name, "labels": {keys[key]: value for key, value in labels.items()}}
    port_spec = {"port": port, **({"name": port_name} if port_name else {})}
    spec = {"ports": [port_spec], "selector": {"app": "x"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("made", "found"),
    [
        pytest.param(
            service("mimir-rollout-operator"), "mimir-rollout-operator:8001", id="release"
        ),
        pytest.param(service("ops", app="rollout-operator"), "ops:8001", id="fullnameOverride"),
        pytest.param(
            service("x-ro", chart="rollout-operator-1.2.3"), "x-ro:8001", id="nameOverride"
        ),
        pytest.param(
            service("rollout-operator-x", port=9000, port_name="http-metrics"),
            "rollout-operator-x:9000",
            id="another port",
        ),
        pytest.param(service("rollout-operator-webhooks", port=443), "", id="webhooks only"),
        pytest.param(service("db"), "", id="of no label"),
        pytest.param(service("mimir-gateway", app="mimir"), "", id="another program"),
    ],
)
@in_virtual_time
async def test_d_76_the_service_is_found_by_any_name_that_charts_give_it(
    made: JsonObject, found: str
) -> None:
    async with observed_cluster(*ZONES) as world:
        client = Partial(world)
        client.services.append(made)
        inspector = inspecting(client, world)
        (first, *_), (again, *_) = [(await inspector.inspect()).remarks for _ in range(2)]

    default = "rollout-operator:8001"
    assert list(dict.fromkeys(client.asked)) == list(filter(None, [default, found]))
    assert first == again, "what does not change is the same each time"
    assert first == (
        f"operator not reached: there is no Service {found or default}, or no status.json behind"
        " it; -service=[NAMESPACE/]NAME:PORT names one of another name or namespace"
    )


@in_virtual_time
async def test_a_service_that_was_named_is_the_only_one_and_needs_no_advice() -> None:
    async with observed_cluster(*ZONES) as world:
        client = Partial(world)
        client.services.append(service("mimir-rollout-operator"))
        seen = await inspecting(client, world, "ops/ro:1").inspect()
        silent = await requesting(world, "").inspect()

    assert seen.remarks == (
        "operator not reached: there is no Service ro:1, or no status.json behind it",
    )
    assert silent.remarks == ()


@in_virtual_time
async def test_an_operator_of_another_version_is_not_misread() -> None:
    async with observed_cluster(*ZONES) as world:
        own = Description(schema_version=2, namespace="default", now=world.sandbox.clock().now())
        seen = await requesting(world, services=msgspec.json.encode(own)).inspect()

        assert seen.own is None
        assert seen.remarks == (
            "operator not reached: it writes version 2 of its description, this command reads 1",
        )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(
            b'{"namespace":"default","now":"2026-01-01T00:00:00"}',
            "Expected `datetime` with a timezone component",
            id="a time that compares with no other",
        ),
        pytest.param(b'{"x":' + b"[" * 100_000, "recursion", id="deeper than Python goes"),
        pytest.param(b'{"namespace":"\xff"}', "can't decode byte 0xff", id="no UTF-8"),
        pytest.param(
            b'{"namespace":"default","now":"2026-01-01T00:00:00Z","operator":{"version":"\xff"}}',
            "can't decode byte 0xff",
            id="no UTF-8 further down",
        ),
    ],
)
@in_virtual_time
async def test_what_another_program_answers_is_no_end_of_the_command(body: bytes, why: str) -> None:
    """A tenant who may run a pod behind the Service answers for the operator."""
    async with observed_cluster(*ZONES) as world:
        seen = await requesting(world, services=body).inspect()

    assert seen.own is None
    assert seen.remarks[0].startswith("operator not reached: ")
    assert why in seen.remarks[0]


@pytest.mark.parametrize("lost", [Unreachable("503"), Denied("403"), b"nonsense", b'"\xff"'])
@in_virtual_time
async def test_si26_a_hold_outlasts_an_operator_that_does_not_answer(
    lost: bytes | ApiError,
) -> None:
    """SI-26, D-76: `wait` ends with 0 only where the operator no longer holds the group."""
    async with observed_cluster(*ZONES) as world:
        [group] = (await world.inspect()).description.groups
        wait = Waiting(code=Code.ZONE_LEFT_SHORT, text="it left")
        now = world.sandbox.clock().now()
        free = Description(namespace=world.sandbox.namespace, now=now, groups=(group,))
        held = msgspec.structs.replace(
            free, groups=(msgspec.structs.replace(group, waits=(wait,)),)
        )
        client = Partial(world)
        inspector = inspecting(client, world)
        seen = list[Phase]()
        for answer in (held, lost, free, lost):
            is_there = isinstance(answer, Description)
            client.answers["services"] = msgspec.json.encode(answer) if is_there else lost
            [group] = (await inspector.inspect()).description.groups
            seen.append(group.phase)
        assert seen == [Phase.WAITING, Phase.WAITING, Phase.ROLLED_OUT, Phase.ROLLED_OUT]


@pytest.mark.parametrize(
    ("age", "tail"),
    [
        pytest.param(20, "", id="renewed of late"),
        pytest.param(
            95,
            " and was renewed last at {renewed}: no operator seems to act",
            id="not for long",
        ),
    ],
)
@in_virtual_time
async def test_the_holder_of_the_lease_is_named_of_an_operator_that_does_not_answer(
    age: float, tail: str
) -> None:
    async with observed_cluster(*ZONES) as world:
        renewed = (world.sandbox.clock().now() - timedelta(seconds=age)).isoformat()
        lease = msgspec.json.encode(
            {
                "kind": "Lease",
                "metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"},
                "spec": {"holderIdentity": "pod-a_1", "renewTime": renewed},
            }
        )
        down = Unreachable("no endpoints available")
        seen = await requesting(world, services=down, leases=lease).inspect()

        assert seen.remarks == (
            "operator not reached: no endpoints available",
            f"the Lease rollout-operator is held by pod-a_1{tail.format(renewed=renewed)}",
        )


@in_virtual_time
async def test_namespaces_with_groups_are_found() -> None:
    async with observed_cluster(*ZONES, ZoneSpec(name="alone", group=None)) as world:
        assert await list_namespaces(world.client) == ["default"]


@in_virtual_time
async def test_policies_of_an_operator_that_obeys_none_are_shown_as_such() -> None:
    """Its own description has none: the flag is off."""
    async with observed_cluster(*ZONES) as world:
        await world.create(MULTI_AZ_ROLLOUTS, POLICY)
        operator = OperatorDescription(version="9", is_ready=True, is_acting=True)
        own = Description(namespace="default", now=world.sandbox.clock().now(), operator=operator)
        seen = await requesting(world, services=msgspec.json.encode(own)).inspect()

    [policy] = seen.best.list_policies()
    assert policy.code is Code.POLICY_NOT_OBEYED
    assert policy.headline == "the operator of the namespace obeys no MultiAZRollouts"
