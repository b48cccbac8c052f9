"""Releases over zones: gates, requests by name, drift, and people who change their minds.

A Rollout named app takes what an image policy announces. Flux fetches and applies it to the zones
of a rollout group; once all of these are through, it bakes.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace
from rollout_lab.flux import label_owner
from rollout_lab.model.fields import child, children, name_of, text
from rollout_lab.nodes.behaviour import image_of
from rollout_lab.releases import ReleaseObject, gate, group_check, list_release, schedule
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import (
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    STATEFULSETS,
    JsonObject,
)
from tests.simulation.scenarios import (
    Missing,
    People,
    Scenario,
    Script,
    Size,
    list_zones,
    name_unrolled,
)

RELEASING: Final = ("-releases.enabled", "-releases.metadata=none")
APP: Final = "app"
GROUP: Final = "web"
GATE: Final = "freeze"
NIGHTS: Final = "nights"
OF_WEB: Final[JsonObject] = {"matchLabels": {"tier": "web"}}
FIRST: Final = "1.0.0"
BAKE: Final[Mapping[str, object]] = {"bakeTime": "20s"}
MOST_EDITS: Final = 7
# Watches of a dozen kinds end and begin in this time: an hour of it is long.
QUIET: Final = timedelta(minutes=5)
SOURCE: Final = OCI_REPOSITORIES[0]


def released(size: Size) -> Scenario:
    """R1: a first release, one by name past a closed gate, and one when that opens."""
    return _release("r1", size, _release_thrice, "1.2.0")


def reconsidered(size: Size) -> Scenario:
    """R2: gates, pins, requests and tags change at any time; the last version goes by name."""
    return _release("r2", size, _reconsider, "2.0.0")


def frozen(size: Size) -> Scenario:
    """R3: schedules and labels change as versions are announced, under a role without gates."""
    return _release("r3", size, _freeze, "2.0.0")


def _release(name: str, size: Size, script: Script, last: str) -> Scenario:
    return Scenario(
        name,
        size,
        list_applied_zones(size, f"app:{FIRST}"),
        script,
        partial(name_unreleased, last=last),
        prepare=partial(create_release, bake=BAKE, interval="10s"),
        args=RELEASING,
        quiet=QUIET,
    )


def list_applied_zones(size: Size, image: str) -> list[ZoneSpec]:
    labels = label_owner(APP, "default")
    zones = list_zones(size, GROUP)
    return [
        replace(zone, name=f"{GROUP}-{zone.name[-1]}", image=image, labels=labels) for zone in zones
    ]


async def create_release(
    people: People, bake: Mapping[str, object], *others: ReleaseObject, interval: str = "5s"
) -> None:
    """Create all that a release stands on, and have Flux work."""
    people.sandbox.start_flux()
    check = group_check("zones", APP, GROUP, interval)
    await create(people, *list_release(APP, bake), check, *others)


async def create(people: People, *objects: ReleaseObject) -> None:
    for one in objects:
        people.say(f"creates the {one.resource.kind} {text(one.body, 'metadata', 'name')}")
        await people.send(one.create(people.sandbox.namespace, people.name))


async def announce(people: People, tag: str) -> None:
    """Have the image policy select a tag."""
    people.sandbox.say("registry", f"has {tag}")
    await people.sandbox.flux.announce(people.sandbox.namespace, APP, tag)


async def open_gate(people: People, name: str, *, is_open: bool) -> None:
    people.say(f"{'opens' if is_open else 'closes'} the gate {name}")
    await people.patch(ROLLOUT_GATES, name, {"spec": {"passing": is_open}})


async def request(people: People, what: str, **wanted: str | None) -> None:
    """Change the Rollout by annotations: `force_deploy="1.0.0"`."""
    people.say(what)
    keys = {f"rollout.kuberik.com/{key.replace('_', '-')}": one for key, one in wanted.items()}
    await people.patch(ROLLOUTS, APP, {"metadata": {"annotations": keys}})


async def pin(people: People, tag: str | None) -> None:
    """Want a version, or none in particular."""
    people.say(f"wants {tag}" if tag else "wants no version in particular any more")
    await people.patch(ROLLOUTS, APP, {"spec": {"wantedVersion": tag}})


async def set_tag(people: People, tag: str) -> None:
    """Write a tag over that of the Rollout."""
    people.say(f"sets the tag of the OCIRepository to {tag}")
    await people.patch(SOURCE, APP, {"spec": {"ref": {"tag": tag}}})


async def _release_thrice(people: People) -> None:
    await people.wait(0, 10)
    await announce(people, FIRST)
    await people.wait(5, 60)
    await people.insist(lambda: create(people, gate(GATE, APP, is_passing=False)))
    await people.wait(6, 30)
    await announce(people, "1.1.0")
    await _until_known(people, "1.1.0")
    await people.wait(0, 40)
    forced = partial(request, people, "forces 1.1.0", force_deploy="1.1.0", deploy_user="amy")
    await people.insist(forced)
    await people.wait(0, 60)
    await announce(people, "1.2.0")
    await people.wait(0, 60)
    await people.insist(lambda: open_gate(people, GATE, is_open=True))


async def _reconsider(people: People) -> None:
    await announce(people, FIRST)
    await create(people, gate(GATE, APP, is_passing=True))
    for number in range(1, people.rng.randint(3, MOST_EDITS)):
        await people.wait(0, 60)
        await people.attempt(people.rng.choice(_list_edits(people, number)))
    await people.wait(0, 30)
    await people.insist(lambda: pin(people, None))
    await people.insist(lambda: open_gate(people, GATE, is_open=True))
    await announce(people, "2.0.0")
    await _until_known(people, "2.0.0")
    forced = partial(request, people, "forces 2.0.0", force_deploy="2.0.0", deploy_user="last")
    await people.insist(forced)


async def _freeze(people: People) -> None:
    await announce(people, FIRST)
    await create(people, schedule(NIGHTS, [{"name": "always"}], rolloutSelector=OF_WEB))
    for number in range(1, people.rng.randint(3, MOST_EDITS)):
        await _until_baked(people)
        forbid_gates(people, is_forbidden=people.rng.random() < 0.5)
        await people.attempt(people.rng.choice(FREEZES), people)
        await people.wait(0, 3)
        await announce(people, f"1.{number}.0")
        await people.wait(5, 30)
    forbid_gates(people, is_forbidden=False)
    await people.insist(lambda: set_action(people, "Allow"))
    await announce(people, "2.0.0")


def forbid_gates(people: People, *, is_forbidden: bool) -> None:
    """Take the right to write gates from all processes, or restore it."""
    people.say(f"{'takes' if is_forbidden else 'gives'} the right to write gates")
    forbidden = people.sandbox.api.forbidden
    gates = {
        (f"operator-{number}", verb, ROLLOUT_GATES.plural)
        for number in (1, 2)
        for verb in ("create", "patch")
    }
    forbidden.difference_update(gates)
    forbidden.update(gates if is_forbidden else ())


async def set_action(people: People, action: str) -> None:
    """Open or close the schedule, which is active at all times."""
    people.say(f"has the schedule say {action}")
    await people.patch(ROLLOUT_SCHEDULES, NIGHTS, {"spec": {"action": action}})


async def set_tier(people: People, tier: str | None) -> None:
    """Label the Rollout, so that the schedule selects it or does not."""
    people.say(f"gives the Rollout the tier {tier}" if tier else "takes the tier from the Rollout")
    await people.patch(ROLLOUTS, APP, {"metadata": {"labels": {"tier": tier}}})


FREEZES: Final[tuple[Callable[[People], Awaitable[None]], ...]] = (
    partial(set_action, action="Deny"),
    partial(set_action, action="Allow"),
    *2 * (partial(set_tier, tier="web"),),
    partial(set_tier, tier=None),
)


async def _until_known(people: People, tag: str) -> None:
    """Wait until a release is on record: what was announced in between may never be."""
    releases = ("status", "availableReleases")
    while tag not in [text(one, "tag") for one in children(_find(people.sandbox), *releases)]:
        await people.wait(1, 1)


async def _until_baked(people: People) -> None:
    """Wait until a version may come next."""
    while text(get_newest(people.sandbox), "bakeStatus") not in ("Succeeded", "Failed"):
        await people.wait(1, 1)


def _list_edits(people: People, number: int) -> list[Callable[[], Awaitable[None]]]:
    rng, newest = people.rng, f"1.{number}.0"
    older = f"1.{rng.randint(0, number)}.0"
    user = f"amy-{number}"
    return [
        partial(announce, people, newest),
        partial(announce, people, newest),
        partial(open_gate, people, GATE, is_open=rng.random() < 0.5),
        partial(pin, people, rng.choice((None, older))),
        partial(request, people, f"forces {older}", force_deploy=older, deploy_user=user),
        partial(request, people, f"lets {newest} pass gates", bypass_gates=newest),
        partial(request, people, "tries again", retry=user),
        partial(set_tag, people, older),
    ]


def name_unreleased(sandbox: Sandbox, last: str) -> Missing:
    """Return what the last version lacks to be deployed everywhere, and to have proven itself.

    One that failed since pods did is over as well: people would have to decide.
    """
    if unrolled := name_unrolled(sandbox):
        return unrolled
    entry = get_newest(sandbox)
    tag, status = text(entry, "version", "tag"), text(entry, "bakeStatus")
    if (tag, status) != (last, "Succeeded") and status != "Failed":
        return f"{APP}: {tag} {status}, wants {last}"
    source = sandbox.api.get(SOURCE, sandbox.namespace, APP) or {}
    if text(source, "spec", "ref", "tag") != tag:
        return f"the source has {text(source, 'spec', 'ref', 'tag')}, not {tag}"
    for sts in sandbox.api.list(STATEFULSETS, sandbox.namespace):
        if image_of(child(sts, "spec", "template")) != f"app:{tag}":
            return f"{name_of(sts)} is not at {tag}"
    left = child(_find(sandbox), "metadata", "annotations")
    return f"{APP}: {', '.join(left)}" if left and status != "Failed" else ""


def get_newest(sandbox: Sandbox) -> JsonObject:
    """Return the newest entry of the Rollout's history, empty where it has none."""
    return next(iter(children(_find(sandbox), "status", "history")), {})


def _find(sandbox: Sandbox) -> JsonObject:
    return sandbox.api.get(ROLLOUTS, sandbox.namespace, APP) or {}
