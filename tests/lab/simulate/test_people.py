"""What people do in a simulated world. How the operator answers is tested with the world itself."""

import asyncio

import pytest

from rollout_operator.lab.model.history import Called, Said
from rollout_operator.lab.simulate.changes import parse_change
from rollout_operator.lab.simulate.dump import choose_objects
from rollout_operator.lab.simulate.people import PERSON, People
from rollout_operator.lab.virtual_loop.loop import VirtualTimeLoop
from rollout_operator.lab.world import Sandbox
from tests.lab.simulate.dumps import NAMESPACE, grow


def _do(*changes: str) -> Sandbox:
    """Let a person change a world that holds a whole group, and no operator."""
    dump = choose_objects(grow(), "")

    async def live() -> Sandbox:
        async with Sandbox(namespace=NAMESPACE) as sandbox:
            for obj in (*(one.obj for one in dump.sets), *(one.obj for one in dump.pods)):
                sandbox.api.put(obj, actor="test")
            people = People(sandbox, dump.names())
            for change in changes:
                await people.apply(parse_change(change))
            return sandbox

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(live())


def _calls(sandbox: Sandbox) -> list[tuple[str, str, str, int]]:
    calls = [one for one in sandbox.history.list_all(Called) if one.actor == PERSON]
    return [
        (one.request.verb, one.request.name, one.request.subresource, one.status) for one in calls
    ]


def _said(sandbox: Sandbox) -> list[str]:
    return [one.text for one in sandbox.history.list_all(Said) if one.actor == PERSON]


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        ("new template", [("patch", f"zone-{letter}", "", 200) for letter in "abc"]),
        ("image zone-b=v2", [("patch", "zone-b", "", 200)]),
        ("scale zone-c to 5", [("patch", "zone-c", "scale", 200)]),
        ("pause zone-a", [("patch", "zone-a", "", 200)]),
        ("delete pod zone-a-1", [("delete", "zone-a-1", "", 200)]),
        ("pod zone-a-1 fails", []),
    ],
)
def test_each_change_is_what_a_person_would_call(
    change: str, calls: list[tuple[str, str, str, int]]
) -> None:
    sandbox = _do(change)

    assert _calls(sandbox) == calls
    assert _said(sandbox) == [change]


def test_what_is_refused_is_only_told() -> None:
    assert _calls(_do("delete pod zone-a-7")) == [("delete", "zone-a-7", "", 404)]


def test_a_pod_that_is_not_there_cannot_fail() -> None:
    said = _said(_do("pod zone-a-7 fails"))

    assert said[-1] == "zone-a-7 is not there at that time: nothing is done"
