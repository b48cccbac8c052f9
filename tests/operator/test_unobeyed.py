"""An operator without -multi-az-rollouts.enabled says so of the policies that it sees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.unobeyed import EVERY, MOST, NOTE, report_unobeyed
from rollout_operator.kube.api import ApiClient, Page, Resource
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.names import ApiError, Denied, NotFound, Unreachable
from tests.virtual_time import VirtualClock, in_virtual_time


class Policies:
    """A reader of policies, or of an error in their place."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error
        self.names: list[str] = []
        self.lists = 0
        self.events: list[EventRecord] = []

    async def fetch_page(self, resource: Resource, namespace: str, **query: Any) -> Page:
        self.lists += 1
        if self.error is not None:
            raise self.error
        # At version 0 the API server ignores the limit.
        names = self.names if query.get("resource_version") == "0" else self.names[: query["limit"]]
        bodies = [
            {"metadata": {"name": n, "namespace": namespace, "uid": n, "resourceVersion": "1"}}
            for n in names
        ]
        items = [msgspec.Raw(msgspec.json.encode(body)) for body in bodies]
        return Page(items=items, resource_version="1")

    @asynccontextmanager
    async def looked_at(self) -> AsyncIterator[VirtualClock]:
        async with TaskStack() as tasks:
            clock, reader = VirtualClock(), cast(ApiClient, self)
            tasks.start("x", report_unobeyed(reader, "prod", self.events.append, clock))
            yield clock


@in_virtual_time
async def test_each_policy_is_reported_once_in_log_and_events(lines: list[str]) -> None:
    """Of very many only the first: each of a tenant's thousand policies had an Event."""
    policies = Policies()
    policies.names = ["early"]
    async with policies.looked_at() as clock:
        await clock.sleep(timedelta(seconds=30))
        policies.names.append("late")
        await clock.sleep(3 * EVERY)
        policies.names = [f"{number:02}" for number in range(MOST + 5)]
        await clock.sleep(3 * EVERY)

    found = [(one.regarding.name, one.reason, one.note) for one in policies.events]
    assert found == [
        (name, "PolicyNotObeyed", NOTE) for name in ("early", "late", *policies.names[:MOST])
    ]
    assert ["early" in line for line in lines] == [True, False, False]
    assert all("level=warn" in line and "reason=policy_not_obeyed" in line for line in lines)


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
    policies = Policies(answer)
    async with policies.looked_at() as clock:
        await clock.sleep(timedelta(minutes=62))
    assert policies.lists == lists
    assert ["level=debug" in line for line in lines] == [True] * told


@in_virtual_time
async def test_a_role_is_granted_and_taken_away_while_it_runs(lines: list[str]) -> None:
    """Each refusal after an answer is a change that is told."""
    policies = Policies(Denied("forbidden"))
    async with policies.looked_at() as clock:
        for answer, minutes in ((NotFound("no kind"), 1), (Denied("forbidden"), 60)):
            await clock.sleep(timedelta(minutes=minutes))
            policies.error = answer
        await clock.sleep(timedelta(minutes=200))
    assert ["May not list" in line for line in lines] == [True, False, True]
