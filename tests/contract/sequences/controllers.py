"""What the StatefulSet controller does, where a sequence reads what it saw; and random walks."""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from tests.contract import controllers_pods as pods
from tests.contract.bodies import tree
from tests.contract.controllers_rig import ControllerRig, controlled, staged
from tests.contract.controllers_seen import is_going, is_ready
from tests.contract.controllers_sets import ORDERED, PARALLEL, ROLLING, web
from tests.contract.plays import Needs, Play, add_each
from tests.contract.sides import REVISIONS

REVISION: Final = "controller-revision-hash"


@controlled("controllers_creation")
async def all_that_a_revision_keeps(rig: ControllerRig) -> None:
    body = web(replicas=0)
    body["metadata"] = {"name": "a", "annotations": {"x.org/note": "kept"}, "labels": {"x": "y"}}
    await rig.create(body)
    await rig.rest("nothing but its revision")
    (name,) = rig.seen.revisions
    with rig.world.quietly():
        found = tree(await rig.world.get(REVISIONS, name))
    metadata = found["metadata"]
    (reference,) = metadata["ownerReferences"]
    rig.world.record(
        "the revision",
        annotations=metadata["annotations"],
        labels=sorted(metadata["labels"]),
        has_hash_in_name=name == f"a-{metadata['labels']['controller.kubernetes.io/hash']}",
        owner={key: value for key, value in reference.items() if key != "uid"},
        number=found["revision"],
        directive=found["data"]["spec"]["template"]["$patch"],
        kept=sorted(found["data"]["spec"]),
        template=found["data"]["spec"]["template"]["metadata"],
    )


@controlled("controllers_health")
async def failing_again_and_again_until_mended(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1, image=pods.FAILING))
    seen: list[str] = []
    for _ in range(3):  # how many there are in the end is chance
        await rig.until("another one", lambda: _uid(rig) not in ("", *seen))
        seen.append(_uid(rig))
    await rig.change(template={"spec": {"containers": [{"name": "app", "image": pods.QUICK}]}})
    await rig.until_rolled()
    await rig.settle()
    rig.world.record("whole", sets=rig.seen.describe_sets())


def _uid(rig: ControllerRig) -> str:
    found = rig.seen.pods.get("a-0")
    return "" if found is None else str(found["metadata"]["uid"])


@controlled("controllers_ownership")
async def a_set_deleted_in_the_foreground(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.drop(policy="Foreground")
    await rig.until("all going", lambda: all(map(is_going, rig.seen.pods.values())))
    finalizers = rig.seen.sets["a"]["metadata"]["finalizers"]
    rig.world.record("it waits for its pods", finalizers=finalizers, pods=sorted(rig.seen.pods))
    await rig.end("a-1")
    rig.world.record("none comes again", sets=sorted(rig.seen.sets), pods=sorted(rig.seen.pods))
    await rig.end("a-0", "a-2")
    await rig.until_gone("a")
    # Whether the controller has made a revision once more meanwhile is chance.
    rig.world.record("nothing is left", pods=sorted(rig.seen.pods))


@controlled("controllers_ownership")
async def a_revision_s_name_that_is_taken(rig: ControllerRig) -> None:
    """The name is a hash of the template: here it was one of the set's own before."""
    await rig.create(web(replicas=0))
    await rig.settle()
    for version in ("2", "3"):
        await rig.version(version)
        await rig.settle()
    second = next(name for name, one in rig.seen.revisions.items() if one["revision"] == 2)
    await rig.delete(REVISIONS, second)
    await rig.until("it is gone", lambda: second not in rig.seen.revisions)
    taken = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": second}}
    await rig.make(REVISIONS, {**taken, "data": {"other": "data"}, "revision": 1})
    await rig.version("2")
    await rig.rest("another name, and a collision is counted", has_steps=False)


@controlled("controllers_templates")
async def on_delete_two_templates_in_a_row(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.version("3")
    await rig.settle()
    # Whether the controller has seen the one between is chance.
    sts = rig.seen.sets["a"]["status"]
    rig.world.record("revisions", are_equal=sts["currentRevision"] == sts["updateRevision"])


@controlled("controllers_templates")
async def on_delete_labels_of_the_template(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(template={"metadata": {"labels": {"tier": "db"}}})
    await rig.settle()
    await rig.replace("a-2")
    await rig.rest("one replaced")
    labels = {name: pod["metadata"]["labels"].get("tier") for name, pod in rig.seen.pods.items()}
    rig.world.record("labels", tier=dict(sorted(labels.items())))


# Sets to which one thing happens after another, at random: what no person thought of. Each walk is
# the same every time: its acts are drawn from what is there at rest, by a number.

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
