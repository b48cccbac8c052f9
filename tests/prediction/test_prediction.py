"""How near a forecast came, and what is read from one: a text of commands beside this file."""

from datetime import timedelta

import pytest
from rollout_lab.simulate.changes import parse_change

from tests.prediction.comparison import Cause, Going, compare, describe, read_goings
from tests.prediction.plans import KINDS, make_plan
from tests.prediction.runs import in_time, list_crashes, render_rest
from tests.stories import Stage, check_stories
from tests.world.api import Json


class ForecastStage(Stage):
    """Forecasts and what happened; pods that go are as `a-0 e:a-1@4.5`: cause, name and second."""

    async def do_compare(self, foreseen: str, happened: str) -> str:
        """Show how near it came."""
        return compare(_read(foreseen), _read(happened)).value

    async def do_describe(self, foreseen: str, happened: str) -> str:
        """Show both side by side, from the first difference on."""
        lines = describe(_read(foreseen), _read(happened))
        return "\n".join(" ".join(line.split()) for line in lines)

    async def do_goings(self, *steps: str) -> str:
        """Show the pods that go by the steps of a simulation, `a-0:going down`."""
        found = [{"at": at, "text": one.partition(":")[2]} for at, one in enumerate(steps)]
        for one, step in zip(found, steps, strict=True):
            one["what"] = step.partition(":")[0]
        return ", ".join(f"{one.pod} {one.cause}" for one in read_goings({"steps": found}))

    async def do_rest(self, nodes: str, refused: str, *pods: str) -> str:
        """Show what a drain has still to do with pods on nodes, `a-0=n0`, or `a-0=n0!` not ready.

        It would read a-0 again in three seconds.
        """
        found = [_pod(name, node) for name, _, node in (one.partition("=") for one in pods)]
        rest = render_rest(nodes.split(), {"a-0": 3.0}, refused.split(), found)
        return ", ".join(rest) or "nothing"

    async def do_crashes(self, *pods: str) -> str:
        """Show which pods of a bad image are to crash: `a-0=bad`, `a-1=bad waiting`, `a-2=`."""
        found = [_crashed(*one.partition("=")[::2]) for one in pods if not one.endswith("=")]
        names = [one.partition("=")[0] for one in pods]
        return ", ".join(list_crashes(names, found, "bad", timedelta(seconds=2)))

    async def do_order(self, *changes: str) -> str:
        """Show changes in the order of their times."""
        return ", ".join(in_time(changes))


def _read(text: str) -> list[Going]:
    """Return pods that go; those without a second go one second after another."""
    found = []
    for place, word in enumerate(text.split()):
        name, _, at = word.removeprefix("e:").partition("@")
        cause = Cause.EVICTED if word.startswith("e:") else Cause.DELETED
        found.append(Going(name, cause, float(at or place)))
    return found


def _pod(name: str, node: str) -> Json:
    ready = {"type": "Ready", "status": str(not node.endswith("!"))}
    container = {"name": "app", "ready": not node.endswith("!"), "state": {"running": {}}}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node.removesuffix("!"), "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
    }


def _crashed(name: str, how: str) -> Json:
    image, _, state = how.partition(" ")
    head = {"deletionTimestamp": "2026-01-02T03:04:05Z"} if state == "going" else {}
    return {
        "metadata": {"name": name, **head},
        "spec": {"containers": [{"image": image}]},
        "status": {"containerStatuses": [{"state": {state or "running": {}}}]},
    }


test_forecast = check_stories(__file__, forecasts=ForecastStage)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_comes_from_its_seed_in_words_that_simulate_takes(kind: str) -> None:
    plan = make_plan(7, kind)

    assert plan == make_plan(7, kind)
    assert [parse_change(request.change).text for request in plan.requests] == [
        request.change for request in plan.requests
    ]
    assert list(plan.requests) == sorted(plan.requests, key=lambda request: request.at)
