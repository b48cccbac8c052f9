"""Sets to which one thing happens after another, at random: what no person thought of.

Each walk is the same every time: its acts are drawn from what is there at rest, by a number.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from tests.contract.controllers_rig import ControllerRig, staged
from tests.contract.controllers_seen import is_going, is_ready
from tests.contract.controllers_sets import ORDERED, PARALLEL, ROLLING
from tests.contract.plays import Needs, Play, add_each

WALKS: Final = 16
STEPS: Final = 10

Act = Callable[[], Awaitable[None]]


def _acts(rig: ControllerRig, rng: random.Random) -> Mapping[str, tuple[int, Act]]:
    """Return what can happen next by its words, with its weight."""
    pods = sorted(rig.seen.pods.items())
    going = [name for name, pod in pods if is_going(pod)]
    staying = [name for name, pod in pods if not is_going(pod)]
    waiting = [name for name in staying if not is_ready(rig.seen.pods[name])]
    ready = [name for name in staying if name not in waiting]
    replicas, start, version = rng.randrange(5), rng.randrange(3), rng.randrange(1, 4)
    seconds, strategy = rng.choice((0, 3600)), rng.choice(("OnDelete", ROLLING))
    rules = {"partition": rng.randrange(3)} if strategy == ROLLING else None
    found: dict[str, tuple[int, Act]] = {
        f"version {version}": (3, partial(rig.version, str(version))),
        f"replicas {replicas}": (3, partial(rig.change, replicas=replicas)),
        f"from ordinal {start} on": (1, partial(rig.change, ordinals={"start": start})),
        f"ready for {seconds} s": (1, partial(rig.change, minReadySeconds=seconds)),
        f"{strategy} {rules}": (2, partial(_follow, rig, strategy, rules)),
    }
    for names, word, weight, act in (
        (going, "gone", 9, rig.end),
        (waiting, "ready", 9, partial(rig.write, is_ready=True)),
        (ready, "unready", 1, rig.write),
        (staying, "terminating", 3, rig.remove),
        (staying, "failed", 1, partial(rig.write, phase="Failed")),
    ):
        if names:
            name = rng.choice(names)
            found[f"{name} {word}"] = (weight, partial(act, name))
    return found


async def _follow(rig: ControllerRig, strategy: str, rules: object) -> None:
    await rig.change(updateStrategy={"type": strategy, "rollingUpdate": rules})


def _walk(number: int) -> Play:
    async def play(rig: ControllerRig) -> None:
        rng = random.Random(number)
        spec: dict[str, Any] = {
            "pods": (ORDERED, PARALLEL)[number % 2],
            "strategy": ("OnDelete", ROLLING)[number // 2 % 2],
        }
        await rig.whole(**spec)
        for _ in range(STEPS):
            acts = _acts(rig, rng)
            (words,) = rng.choices(list(acts), [weight for weight, _ in acts.values()])
            await acts[words][1]()
            await rig.rest(words, has_steps=False)

    return staged(play)


add_each(
    ((f"walk_{number}", _walk(number)) for number in range(WALKS)),
    "controllers_walks",
    Needs.CONTROLLERS,
)
