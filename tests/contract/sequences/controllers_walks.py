"""Sets to which one thing happens after another, as chance has it: what nobody thought of.

Each walk is the same every time: its acts are drawn from what is there at rest, by a number.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from tests.contract.controllers_scene import Scene, staged
from tests.contract.controllers_seen import is_going, is_ready
from tests.contract.controllers_sets import ORDERED, PARALLEL, ROLLING
from tests.contract.plays import Needs, Play, add_each

WALKS: Final = 16
STEPS: Final = 10

Act = Callable[[], Awaitable[None]]


def _acts(scene: Scene, rng: random.Random) -> Mapping[str, tuple[int, Act]]:
    """Return what can happen next by its words, with its weight."""
    pods = sorted(scene.seen.pods.items())
    going = [name for name, pod in pods if is_going(pod)]
    staying = [name for name, pod in pods if not is_going(pod)]
    waiting = [name for name in staying if not is_ready(scene.seen.pods[name])]
    ready = [name for name in staying if name not in waiting]
    replicas, start, version = rng.randrange(5), rng.randrange(3), rng.randrange(1, 4)
    seconds, strategy = rng.choice((0, 3600)), rng.choice(("OnDelete", ROLLING))
    rules = {"partition": rng.randrange(3)} if strategy == ROLLING else None
    found: dict[str, tuple[int, Act]] = {
        f"version {version}": (3, partial(scene.version, str(version))),
        f"replicas {replicas}": (3, partial(scene.change, replicas=replicas)),
        f"from ordinal {start} on": (1, partial(scene.change, ordinals={"start": start})),
        f"ready for {seconds} s": (1, partial(scene.change, minReadySeconds=seconds)),
        f"{strategy} {rules}": (2, partial(_follow, scene, strategy, rules)),
    }
    for names, word, weight, act in (
        (going, "gone", 9, scene.end),
        (waiting, "ready", 9, partial(scene.write, is_ready=True)),
        (ready, "unready", 1, scene.write),
        (staying, "told to go", 3, scene.remove),
        (staying, "failed", 1, partial(scene.write, phase="Failed")),
    ):
        if names:
            name = rng.choice(names)
            found[f"{name} {word}"] = (weight, partial(act, name))
    return found


async def _follow(scene: Scene, strategy: str, rules: object) -> None:
    await scene.change(updateStrategy={"type": strategy, "rollingUpdate": rules})


def _walk(number: int) -> Play:
    async def play(scene: Scene) -> None:
        rng = random.Random(number)
        spec: dict[str, Any] = {
            "pods": (ORDERED, PARALLEL)[number % 2],
            "strategy": ("OnDelete", ROLLING)[number // 2 % 2],
        }
        await scene.whole(**spec)
        for _ in range(STEPS):
            acts = _acts(scene, rng)
            (words,) = rng.choices(list(acts), [weight for weight, _ in acts.values()])
            await acts[words][1]()
            await scene.rest(words, has_steps=False)

    return staged(play)


add_each(
    ((f"walk_{number}", _walk(number)) for number in range(WALKS)),
    "controllers_walks",
    Needs.CONTROLLERS,
)
