"""Hand-made histories of downscales in a guarded group."""

from collections.abc import Callable
from typing import Any

from rollout_operator.kube.api import STATEFULSETS
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import PATHS, PERSON, PREPARED, Chronicle

Story = Callable[[Chronicle], object]
SCALE_DOWN = {"spec": {"replicas": 2}}


def judge(story: Story, **zones: Any) -> list[str]:
    """Return the ids of what a story breaks, in a guarded group."""
    told = Chronicle()
    told.hooks(0, "prepare-downscale", "no-downscale")
    told.zones(**{"labels": PREPARED, "annotations": PATHS, **zones})
    story(told)
    return [one.invariant for one in find_violations(told.history).violations]


def ask(told: Chronicle, at: float, name: str = "zone-a", **parts: Any) -> int:
    """Have a person ask for two pods, answered at a time, begun two seconds before."""
    how: dict[str, Any] = {
        "begun": at - 2,
        "actor": PERSON,
        "body": SCALE_DOWN,
        "subresource": "scale",
        **parts,
    }
    return told.call(at, "patch", STATEFULSETS, name, **how)


def scale(told: Chronicle, at: float, name: str = "zone-a", **parts: Any) -> None:
    """Have a downscale to two pods persist, well guarded: prepared, reviewed, written."""
    told.look(at - 1.5)
    told.prepare(at - 1, f"{name}-2")
    told.review(at - 0.5, name, told.number + 1)
    told.zone(at, name, replicas=2, actor=PERSON, call=told.number + 1, **parts)
    ask(told, at, name)
