"""What a scenario is: zones at the start, what people do, how pods behave, what rest looks like.

The scenarios stand in the modules beside this one by what they are about; `scenarios_book` knows
all by name. Nothing here knows of faults.
"""

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, cast

import msgspec
from rollout_lab.nodes.behaviour import Behaviour, Choose, Response, StartKind, image_of
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import REVISION_LABEL
from tests.judge.promises import QUIET
from tests.simulation.runtime import BACK_AFTER
from tests.simulation.scenarios_people import People

Script = Callable[[People], Coroutine[Any, Any, None]]
Missing = str
"""What rest still lacks, in words; empty where the world is at rest."""
GROUP: Final = "ingester"


class Size(msgspec.Struct, frozen=True):
    """How large the world of a scenario is."""

    zones: int
    pods: int

    @property
    def text(self) -> str:
        return f"{self.zones}x{self.pods}"


FULL = Size(3, 3)
SMALL = Size(2, 2)


class Scenario(msgspec.Struct, frozen=True):
    """One story, without the faults that will befall it."""

    name: str
    size: Size
    zones: Sequence[ZoneSpec]
    script: Script
    """Returns when people are content, or have given up."""
    find_missing: Callable[[Sandbox], Missing] = lambda sandbox: name_unrolled(sandbox)
    """Judged only after the script has ended and all faults are over."""
    make_choice: Callable[[random.Random], Choose] = lambda rng: usual(rng)
    """How the pods behave, by a chance of their own."""
    has_webhooks: bool = False
    prepare: Script | None = None
    """What people set up before anything else: nodes and budgets."""
    has_budgets: bool = False
    """Whether the operator reviews evictions, too."""
    replicas: int = 1
    """Processes of the operator that live at a time."""
    elects: bool = False
    """Whether they elect one that acts; else each acts as if it were alone."""
    quiet: timedelta = QUIET
    """For how long nothing more may happen in the end."""
    templates: Mapping[str, int] = {}
    """ReplicaTemplates by name, and how many replicas they want."""
    watched_for: timedelta = timedelta(0)
    """How long the operator watches in peace before anything happens."""
    spoils: float | None = None
    """The chance of an event that cannot be decoded, where it is another one than usual."""
    patches_take: tuple[float, float] | None = None
    """Seconds that each PATCH of a StatefulSet takes: one schedule, one span, between these.

    No fault, and nothing heals it: such an API server is slow for as long as the run lasts.
    """
    args: Sequence[str] = ()
    """Flags of the operator, beside those that every sandbox gives."""
    back_after: timedelta = BACK_AFTER
    """For how long a process that ended is away."""


def list_zones(size: Size, group: str = GROUP) -> list[ZoneSpec]:
    return [
        ZoneSpec(name=f"{group}-zone-{letter}", group=group, replicas=size.pods)
        for letter in "abcdefgh"[: size.zones]
    ]


def usual(rng: random.Random) -> Choose:
    """Return pods as they mostly are: some start fast, some take half a minute."""

    def choose(pod: JsonObject) -> Behaviour:
        answer = Response(after=timedelta(seconds=rng.choice((0.005, 0.05, 0.7, 1.5))))
        return Behaviour(
            starts_after=timedelta(seconds=rng.uniform(0.05, 1.5)),
            ready_after=timedelta(seconds=rng.choice((0.2, 1, 3, 8, 20, 30))),
            terminates_after=timedelta(seconds=rng.choice((0.05, 0.5, 2, 10, 25))),
            prepare=answer,
            cancel=answer,
        )

    return choose


def crashing_at(bad: str) -> Callable[[random.Random], Choose]:
    """Return a choice where pods of one image crash as soon as they run."""

    def make(rng: random.Random) -> Choose:
        choose = usual(rng)
        crashing = Behaviour(kind=StartKind.CRASH_LOOP)
        return lambda pod: crashing if image_of(pod) == bad else choose(pod)

    return make


def name_unrolled(sandbox: Sandbox) -> Missing:
    """Return what any set lacks to be whole, at its update revision, and seen to be so."""
    return _name_first(sandbox, lambda one: _lacks_pods(sandbox, one) or _lag(sandbox, one))


def name_unready(sandbox: Sandbox) -> Missing:
    """Return what any set lacks to be whole, whatever revision its pods have."""
    return _name_first(sandbox, lambda one: _lacks_pods(sandbox, one))


def _name_first(sandbox: Sandbox, name: Callable[[JsonObject], Missing]) -> Missing:
    for found in sandbox.api.list(STATEFULSETS, sandbox.namespace):
        if text := name(found):
            return f"{_at(found, 'metadata', 'name')}: {text}"
    return ""


def list_pods(sandbox: Sandbox, found: JsonObject) -> list[JsonObject]:
    """Return the pods that a set owns, by name."""
    uid = _at(found, "metadata", "uid")
    return [
        pod
        for pod in sandbox.api.list(PODS, sandbox.namespace)
        if any(
            owner.get("uid") == uid
            for owner in cast(list[JsonObject], _at(pod, "metadata", "ownerReferences") or [])
        )
    ]


def _lacks_pods(sandbox: Sandbox, found: JsonObject) -> Missing:
    wanted = _at(found, "spec", "replicas")
    if _at(found, "metadata", "deletionTimestamp"):
        return "is going"
    # The controller may write the status of a set that is gone over that of its successor, as the
    # real one does after a conflict: then it has seen a later generation than there is.
    observed = cast(int, _at(found, "status", "observedGeneration") or 0)
    if observed < cast(int, _at(found, "metadata", "generation")):
        return "its status is behind"
    there = _at(found, "status", "replicas") or 0
    able = _at(found, "status", "availableReplicas") or 0
    if (there, able) != (wanted, wanted) or len(list_pods(sandbox, found)) != wanted:
        return f"{there} pods, {able} available, wants {wanted}"
    return ""


def _lag(sandbox: Sandbox, found: JsonObject) -> Missing:
    pods = list_pods(sandbox, found)
    if not pods:
        # Nothing runs, nothing is rolled: the controller moves the revision with the next pod.
        return ""
    update, current = (_at(found, "status", f"{one}Revision") for one in ("update", "current"))
    old = [pod for pod in pods if _at(pod, "metadata", "labels", REVISION_LABEL) != update]
    if old:
        return f"outdated: {', '.join(str(_at(pod, 'metadata', 'name')) for pod in old)}"
    return "" if current == update else f"current revision {current}, update revision {update}"


def _at(found: object, *path: str) -> object:
    """Return what stands at a path, None where a step of it is missing."""
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
