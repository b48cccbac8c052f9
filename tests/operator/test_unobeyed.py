"""An operator without -multi-az-rollouts.enabled says so of the policies that it sees."""

from datetime import timedelta

import pytest

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, Page
from rollout_operator.lab.zones import three_zones
from rollout_operator.model.errors import ApiError, Denied, NotFound, Unreachable
from rollout_operator.model.event import EventRecord
from rollout_operator.operator.unobeyed import EVERY, NOTE, report_unobeyed
from tests.operator.diagnosis.inspected import observed_cluster
from tests.virtual_time import VirtualClock, in_virtual_time


def policy(name: str) -> dict[str, object]:
    return {
        "apiVersion": "rollout.grafana.com/v1alpha1",
        "kind": "MultiAZRollout",
        "metadata": {"name": name},
        "spec": {"statefulSetSelector": {"matchLabels": {"app": name}}},
    }


@in_virtual_time
async def test_each_policy_is_reported_once_in_log_and_events(lines: list[str]) -> None:
    events: list[EventRecord] = []
    async with observed_cluster() as world, TaskStack() as tasks:
        await world.create(MULTI_AZ_ROLLOUTS, policy("early"))
        clock, namespace = VirtualClock(), world.sandbox.namespace
        tasks.start("x", report_unobeyed(world.client, namespace, events.append, clock))
        await clock.sleep(timedelta(seconds=30))
        await world.create(MULTI_AZ_ROLLOUTS, policy("late"))
        await clock.sleep(3 * EVERY)

    assert [(one.regarding.name, one.reason, one.note) for one in events] == [
        ("early", "PolicyNotObeyed", NOTE),
        ("late", "PolicyNotObeyed", NOTE),
    ]
    said = [line for line in lines if "Obeying no MultiAZRollouts" in line]
    assert [("early" in line, "late" in line) for line in said] == [(True, False), (False, True)]
    assert all("level=warn" in line and "reason=policy_not_obeyed" in line for line in said)


class Refusing:
    """A client that is refused, until it is not."""

    def __init__(self, error: ApiError) -> None:
        self.error, self.calls = error, 0

    async def fetch_page(self, *_: object, **__: object) -> Page:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        pytest.param(NotFound("no kind"), 13, id="the kind is not installed"),
        pytest.param(Denied("no right"), 2, id="no right to list it"),
        pytest.param(Unreachable("down"), 13, id="no answer"),
    ],
)
@in_virtual_time
async def test_what_cannot_be_listed_is_no_matter(
    error: ApiError, calls: int, lines: list[str]
) -> None:
    client = Refusing(error)
    async with TaskStack() as tasks:
        clock = VirtualClock()
        tasks.start("x", report_unobeyed(client, "prod", lambda event: None, clock))  # type: ignore[arg-type]  # all that is used of it
        await clock.sleep(timedelta(minutes=62))
    assert client.calls == calls
    assert not [line for line in lines if "level=debug" not in line]


@pytest.mark.parametrize(
    ("flags", "is_looking"),
    [((), True), (("-multi-az-rollouts.enabled",), False), (("-mode=shadow",), False)],
)
@in_virtual_time
async def test_only_an_operator_without_the_flag_looks_for_them(
    flags: tuple[str, ...], is_looking: bool, lines: list[str]
) -> None:
    async with observed_cluster(*three_zones(replicas=1)) as world:
        await world.create(MULTI_AZ_ROLLOUTS, policy("db"))
        process = world.sandbox.process(args=flags)
        process.start()
        await process.wait_ready()
        await VirtualClock().sleep(timedelta(seconds=30))
    assert any("Obeying no MultiAZRollouts" in line for line in lines) is is_looking
