"""An operator without -multi-az-rollouts.enabled says so of the policies that it sees."""

from datetime import timedelta
from typing import Any

import pytest
from rollout_lab.zones import three_zones

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, Page, Resource
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.names import ApiError, Denied, NotFound, Unreachable
from rollout_operator.operator.features import EVERY, MOST, NOTE, UnobeyedPolicies, report_unobeyed
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


@in_virtual_time
async def test_of_very_many_policies_only_the_first_are_read_and_reported() -> None:
    """A limit has no effect at version 0: each of a tenant's thousand policies had an Event."""
    events: list[EventRecord] = []
    async with observed_cluster() as world, TaskStack() as tasks:
        for number in range(MOST + 5):
            await world.create(MULTI_AZ_ROLLOUTS, policy(f"policy-{number:02}"))
        clock, namespace = VirtualClock(), world.sandbox.namespace
        tasks.start("x", report_unobeyed(world.client, namespace, events.append, clock))
        await clock.sleep(3 * EVERY)

    assert [one.regarding.name for one in events] == [f"policy-{n:02}" for n in range(MOST)]


class Refusing:
    """A reader that gives one answer to each list until it is told another."""

    def __init__(self, answer: ApiError) -> None:
        self.answer = answer
        self.lists = 0

    async def fetch_page(self, resource: Resource, namespace: str, **query: Any) -> Page:
        self.lists += 1
        raise self.answer


@pytest.mark.parametrize(
    ("answer", "lists", "told"),
    [
        pytest.param(NotFound("no kind"), 13, 13, id="the kind is not installed"),
        pytest.param(Unreachable("down"), 13, 13, id="no answer"),
        pytest.param(Denied("forbidden"), 2, 1, id="a Role of grafana/rollout-operator"),
    ],
)
@in_virtual_time
async def test_sec_17_it_is_silent_where_policies_may_not_be_listed(
    answer: ApiError, lists: int, told: int, lines: list[str]
) -> None:
    reader = Refusing(answer)
    async with TaskStack() as tasks:
        clock = VirtualClock()
        tasks.start("x", report_unobeyed(reader, "prod", lambda event: None, clock))  # type: ignore[arg-type]  # all that is used of it
        await clock.sleep(timedelta(minutes=62))
    assert reader.lists == lists
    assert ["level=debug" in line for line in lines] == [True] * told


@in_virtual_time
async def test_a_role_is_granted_and_taken_away_while_it_runs(lines: list[str]) -> None:
    """Each refusal after an answer is a change that is told."""
    reader = Refusing(Denied("forbidden"))
    async with TaskStack() as tasks:
        clock = VirtualClock()
        tasks.start("x", report_unobeyed(reader, "prod", lambda event: None, clock))  # type: ignore[arg-type]  # all that is used of it
        await clock.sleep(timedelta(minutes=1))
        reader.answer = NotFound("no kind")
        await clock.sleep(timedelta(minutes=60))
        reader.answer = Denied("forbidden")
        await clock.sleep(timedelta(minutes=200))
    assert ["May not list" in line for line in lines] == [True, False, True]


@in_virtual_time
async def test_it_looks_for_them_once_the_operator_acts(lines: list[str]) -> None:
    async with observed_cluster(*three_zones(replicas=1)) as world:
        process = world.sandbox.process()
        process.start()
        process.add_feature(UnobeyedPolicies)
        await world.create(MULTI_AZ_ROLLOUTS, policy("early"))
        await process.wait_ready()
        await VirtualClock().sleep(timedelta(seconds=30))
    assert any("Obeying no MultiAZRollouts" in line for line in lines)
