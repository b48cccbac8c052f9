"""A process under its own rate limits, on a simulated cluster: many groups due at once."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from rollout_lab.model.history import Called
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import PODS
from tests.operator.acting import change, create
from tests.virtual_time import VirtualClock, in_virtual_time


class Fleet:
    """Many groups of the same size, and the process that looks after them."""

    def __init__(self, sandbox: Sandbox, *, groups: int, zones: int, pods: int) -> None:
        self._sandbox = sandbox
        self._members = [
            ZoneSpec(name=f"g{number:03}-{chr(97 + zone)}", group=f"g{number:03}", replicas=pods)
            for number in range(groups)
            for zone in range(zones)
        ]
        self.pods = groups * zones * pods

    async def begin(self, *args: str) -> SimulatedProcess:
        """Create all, start a process when they run, and change all templates once it is ready."""
        await create(self._sandbox, *self._members)
        await VirtualClock().sleep(timedelta(minutes=2))
        process = self._sandbox.process(args=args)
        process.start()
        await process.wait_ready()
        await VirtualClock().sleep(timedelta(minutes=1))
        self.began = self._sandbox.elapsed()
        await change(self._sandbox, *(zone.name for zone in self._members))
        return process

    def list_calls(self, process: SimulatedProcess) -> Sequence[Called]:
        """Return what a process has requested since the templates changed, watches apart."""
        return [
            call
            for call in self._sandbox.history.list_all(Called)
            if call.actor == process.name and call.request.verb != "watch" and call.at >= self.began
        ]


def list_deletes(calls: Sequence[Called]) -> list[Called]:
    """Return the deletes of pods among some calls."""
    return [one for one in calls if (one.request.verb, one.request.resource) == ("delete", PODS)]


@in_virtual_time
async def test_flag_16_the_flags_bound_the_process_for_each_api_group() -> None:
    """D-65, RATE-02: sixteen clients had a bucket each, and sent 55 requests a second."""
    async with Sandbox() as sandbox:
        fleet = Fleet(sandbox, groups=12, zones=2, pods=1)
        process = await fleet.begin("-kubernetes.client-qps=2", "-kubernetes.client-burst=3")
        await VirtualClock().sleep(timedelta(minutes=1))
        calls = fleet.list_calls(process)
    for group in ("", "apps"):
        sent = [call.at.total_seconds() for call in calls if call.request.resource.group == group]
        assert len(sent) > 12
        for first, since in enumerate(sent):
            # One more for what was on its way.
            within = sum(at <= since + 5 for at in sent[first:])
            assert within <= 3 + 2 * 5 + 1


@pytest.mark.slow
@in_virtual_time
async def test_li_01_sixty_groups_due_at_once_take_little_longer_than_their_deletes() -> None:
    """LI-11: with the limits of grafana/rollout-operator they stood still for ever, at 600 lists a
    minute: each read was too old before it was sent.

    240 deletes at 5 a second, 10 of them at once, take 46 s.
    """
    async with Sandbox() as sandbox:
        fleet = Fleet(sandbox, groups=60, zones=2, pods=2)
        process = await fleet.begin("-kubernetes.client-qps=5", "-kubernetes.client-burst=10")
        await VirtualClock().sleep(timedelta(seconds=46 * 1.2))
        calls = fleet.list_calls(process)
        assert len(list_deletes(calls)) == fleet.pods
        await VirtualClock().sleep(timedelta(minutes=5))
        calls = fleet.list_calls(process)
    assert len(list_deletes(calls)) == fleet.pods
    lists = [call for call in calls if call.request.verb == "list"]
    assert len(lists) <= fleet.pods / 3, "one live read serves many groups"


@pytest.mark.slow
@in_virtual_time
async def test_li_01_groups_of_several_pages_go_on_at_a_steady_pace() -> None:
    """Groups of more pods than a page stood still: what a read of two pages shows was too old when
    its second page came. Each delete costs three tokens of one a second.
    """
    async with Sandbox() as sandbox:
        sandbox.api.largest_page = 50
        fleet = Fleet(sandbox, groups=2, zones=1, pods=51)
        process = await fleet.begin("-kubernetes.client-qps=1", "-kubernetes.client-burst=2")
        counts = [0]
        for _ in range(2):
            await VirtualClock().sleep(timedelta(minutes=1))
            counts.append(len(list_deletes(fleet.list_calls(process))))
    assert min(after - before for before, after in pairwise(counts)) >= 10
