"""S15: a zone leaves and comes back while others are rolled out, drained or scaled down (SI-26).

A person deletes a StatefulSet, with its pods, before them or without them, and makes it anew as it
was; takes away the label by which it is counted, and puts it back; or has a policy or a budget not
select it for a while. Mostly right after the operator has let a pod go, so that the zone is short.
Beside it all happens what the scenario has by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec.structs import replace
from rollout_lab.model.fields import child
from rollout_lab.model.history import Called, Record

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import GROUP_LABEL
from tests.simulation.scenarios import Act, People, Propagation, Scenario, Size
from tests.simulation.scenarios_drains import NAME, change_budget
from tests.simulation.scenarios_policies import SAMPLE, change_policy

Maker = Callable[[Size], Scenario]
Leave = Callable[[People, str], Awaitable[None]]

# The first templates have changed by then.
BEGIN: Final = 12.0  # seconds
MOST_DEPARTURES: Final = 3
# How often a person waits for the operator to let a pod go, and how often the zone is that of it.
AFTER_DELETE: Final = 0.8
OF_THAT_ZONE: Final = 0.8
# No pod goes for so long: then it is done all the same.
PATIENCE: Final = 60.0  # seconds
# How long zones are away, the longest for longer than they count.
AWAY: Final = ((0.0, 2.0), (2.0, 40.0), (2.0, 40.0), (60.0, 240.0), (590.0, 700.0))


def leave(make: Maker, *ways: Leave) -> Maker:
    """Return the same scenario with a person by whom zones leave and come back."""

    def make_left(size: Size) -> Scenario:
        scenario = make(size)
        names = [zone.name for zone in scenario.zones]

        async def script(people: People) -> None:
            mover = people.split("mallory")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scenario.script(people))
                tasks.create_task(_move(mover, names, (*WAYS, *ways)))

        return replace(scenario, name=f"{scenario.name}-left", script=script)

    return make_left


async def _move(people: People, names: Sequence[str], ways: Sequence[Leave]) -> None:
    await people.wait(BEGIN, 2 * BEGIN)
    for _ in range(people.rng.randint(1, MOST_DEPARTURES)):
        name = people.rng.choice(names)
        if people.rng.random() < AFTER_DELETE:
            begun = await _wait_delete(people)
            if begun in names and people.rng.random() < OF_THAT_ZONE:
                name = begun
        await people.wait(*people.rng.choice(((0, 0.1), (0, 3), (3, 20))))
        await people.rng.choice(ways)(people, name)
        await people.wait(0, 30)


async def _wait_delete(people: People) -> str:
    """Wait until the operator has deleted a pod, or let it be evicted; return its zone."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def listen(record: Record) -> None:
        if isinstance(record, Called) and record.request.resource == PODS and record.status < 300:
            is_end = record.request.verb == "delete" or record.request.subresource == "eviction"
            if is_end and not record.request.is_dry_run and not ended.done():
                ended.set_result(record.request.name.rpartition("-")[0])

    people.sandbox.history.listeners.append(listen)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await ended
    people.sandbox.history.listeners.remove(listen)
    return ended.result() if ended.done() and not ended.cancelled() else ""


async def _leave_for_a_while(
    people: People, go: tuple[Act, *tuple[object, ...]], back: tuple[Act, *tuple[object, ...]]
) -> None:
    await people.insist(*go)
    await people.wait(*people.rng.choice(AWAY))
    await people.insist(*back)


async def _recreate(people: People, name: str, propagation: Propagation) -> None:
    """Delete the set, and make it anew as it was."""
    if (found := people.find(name)) is not None:
        delete = people.delete, name, propagation
        await _leave_for_a_while(people, delete, (_create_again, people, found))


async def _create_again(people: People, found: JsonObject) -> None:
    metadata = child(found, "metadata")
    keys = ("name", "labels", "annotations")
    kept: JsonObject = {key: metadata[key] for key in keys if key in metadata}
    people.say(f"creates {kept['name']} anew")
    body: JsonObject = {
        **{key: found[key] for key in ("apiVersion", "kind", "spec")},
        "metadata": {**kept, "namespace": people.sandbox.namespace},
    }
    await people.post(STATEFULSETS, body)


async def relabel(people: People, name: str, key: str = GROUP_LABEL) -> None:
    """Take away the label by which a set is counted, or give it another value, and put it back."""
    value = child(people.find(name) or {}, "metadata", "labels").get(key)
    if isinstance(value, str):
        other = people.rng.choice((None, "elsewhere"))
        label = partial(people.label, name, key)
        await _leave_for_a_while(people, (label, other), (label, value))


def _deselect(change: Act, changed: str, selector: str) -> Leave:
    """Return a person that has a budget or a policy not select a zone for a while."""

    async def deselect(people: People, name: str) -> None:
        but: JsonObject = {"key": "name", "operator": "NotIn", "values": [name]}
        select = partial(change, people, changed)
        without: JsonObject = {selector: {"matchExpressions": [but]}}
        whole: JsonObject = {selector: {"matchExpressions": None}}
        await _leave_for_a_while(people, (select, without), (select, whole))

    return deselect


deselect_by_budget: Final = _deselect(change_budget, NAME, "selector")
deselect_by_policy: Final = _deselect(change_policy, SAMPLE, "statefulSetSelector")
WAYS: Final[Sequence[Leave]] = (
    partial(_recreate, propagation="Orphan"),
    partial(_recreate, propagation="Background"),
    partial(_recreate, propagation="Foreground"),
    relabel,
)
