"""An operator without -multi-az-rollouts.enabled says so of the policies that it sees."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from rollout_lab.zones import three_zones

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, JsonObject, Page, Resource
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.names import ApiError, NotFound, Unreachable
from rollout_operator.operator.fleet import EVERY, MOST, NOTE, UnobeyedPolicies, report_unobeyed
from tests.operator.diagnosis.inspected import ObservedCluster, observed_cluster
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
        tasks.start("x", report_unobeyed(Allowed(world), namespace, events.append, clock))  # type: ignore[arg-type]  # all that is used of it
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
        tasks.start("x", report_unobeyed(Allowed(world), namespace, events.append, clock))  # type: ignore[arg-type]  # all that is used of it
        await clock.sleep(3 * EVERY)

    assert [one.regarding.name for one in events] == [f"policy-{n:02}" for n in range(MOST)]


class Allowed:
    """A client that may list policies, or may not, or gets no answer to that question."""

    def __init__(self, world: ObservedCluster | None, answer: bool | ApiError = True) -> None:
        self._world, self._answer = world, answer
        self.questions: list[JsonObject] = []
        self.lists = 0

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        if isinstance(self._answer, ApiError):
            raise self._answer
        self.questions.append(msgspec.to_builtins(body["spec"])["resourceAttributes"])
        return msgspec.json.encode({**body, "status": {"allowed": self._answer}})

    async def fetch_page(self, resource: Resource, namespace: str, **query: Any) -> Page:
        self.lists += 1
        if self._world is None:
            raise NotFound("no kind")
        return await self._world.client.fetch_page(resource, namespace, **query)


@pytest.mark.parametrize(
    ("answer", "questions", "lists"),
    [
        pytest.param(True, 13, 13, id="the kind is not installed"),
        pytest.param(False, 2, 0, id="no right to list it"),
        pytest.param(Unreachable("down"), 0, 0, id="no answer"),
    ],
)
@in_virtual_time
async def test_sec_17_no_request_is_sent_that_would_be_denied(
    answer: bool | ApiError, questions: int, lists: int, lines: list[str]
) -> None:
    client = Allowed(None, answer)
    async with TaskStack() as tasks:
        clock = VirtualClock()
        tasks.start("x", report_unobeyed(client, "prod", lambda event: None, clock))  # type: ignore[arg-type]  # all that is used of it
        await clock.sleep(timedelta(minutes=62))
    assert (len(client.questions), client.lists) == (questions, lists)
    right = {"verb": "list", "group": "rollout.grafana.com", "resource": "multiazrollouts"}
    assert all(question == {**right, "namespace": "prod"} for question in client.questions)
    assert not [line for line in lines if "level=debug" not in line]


@in_virtual_time
async def test_it_looks_for_them_once_the_operator_acts(lines: list[str]) -> None:
    async with observed_cluster(*three_zones(replicas=1)) as world:
        process = world.sandbox.process()
        process.start()
        process.add_feature(UnobeyedPolicies)
        await process.wait_ready()
        await VirtualClock().sleep(timedelta(seconds=30))
    # The simulated API server knows no access reviews.
    assert any("Found no MultiAZRollouts" in line for line in lines)
