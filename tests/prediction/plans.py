"""What is played on the control plane, and given to `simulate`: both in the words of `-change`.

Pure: a seed in, a plan out. Times are short, so that a run takes half a minute.
"""

import random
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests.world.api import Json
from tests.world.budgets import GROUP, zone_budget

LETTERS: Final = "abc"
NAME: Final = "ingester"
# Of the annotation and the label by which a zone's replicas follow another zone's.
LEADING: Final = "grafana.com/rollout-downscale-leader"


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One change, some time after the run began."""

    at: timedelta
    change: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    kind: str
    seed: int
    zones: tuple[ZoneSpec, ...]
    requests: tuple[PlannedRequest, ...]
    ready_after: timedelta
    """Of a pod, give or take a tenth."""
    terminates_after: timedelta
    budgets: tuple[Json, ...] = ()
    is_prepared: bool = False
    """Whether pods are called before they are scaled away."""
    wait: str = ""
    """Between downscales of two zones."""

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.seed}"


class Kind(msgspec.Struct, frozen=True):
    """What plans of a kind have in common; what is left open is drawn."""

    requests: str
    """`1..3 image v2; +1..2 pause ZONE`: when, or how long after the one before; ZONE is any."""
    replicas: tuple[int, int] = (2, 4)
    budget: tuple[int, int] | None = None
    """How many pods may be away."""
    ready: tuple[float, float] = (1, 3)
    """Seconds until a pod is ready."""
    is_prepared: bool = False
    wait: str = ""
    """If there is one, each zone follows the one before it."""


KINDS: Final[Mapping[str, Kind]] = {
    "rollout": Kind("1..3 image v2"),
    # Drains try again every 5 s, however long pods take. Where these took less, as they never do in
    # a cluster, chance alone would say which of the two takes a pod.
    "drain-rollout": Kind(
        "1..2 image v2; 3..20 drain zone ZONE", replicas=(2, 2), budget=(1, 2), ready=(7, 9)
    ),
    "budget": Kind("1..3 image v2", replicas=(3, 4), budget=(1, 2)),
    "following": Kind("1..3 scale FIRST to FEWER", (3, 4), is_prepared=True, wait="5s"),
    "second-image": Kind("1..2 image v2; 6..12 image v3"),
    "drain": Kind("1..3 drain zone ZONE", budget=(1, 1)),
    "paused-zone": Kind("0.5 pause ZONE; 1.5 image v2; 6..15 resume ZONE"),
    "downscale-rollout": Kind("1..3 scale ZONE to FEWER; +1..4 image v2", (3, 4), is_prepared=True),
    "bad-image": Kind("1..2 bad template; 10..15 image v3"),
    "broken-pod": Kind("0.5..3 pod ZONE-0 fails; +0.5 image v2"),
}


def make_plan(seed: int, kind: str = "") -> Plan:
    """Return the plan of a seed, of one kind or of each in turn."""
    name = kind or next(islice(KINDS, seed % len(KINDS), None))
    one, rng = KINDS[name], random.Random(seed)
    limit, replicas = rng.choice((1, 1, 2, 3)), rng.randint(*one.replicas)
    zones = [
        ZoneSpec(
            name=f"{NAME}-zone-{letter}",
            replicas=replicas,
            max_unavailable=limit,
            pod_labels={GROUP: NAME},
        )
        for letter in LETTERS
    ]
    if one.wait:
        for place, leading in enumerate(zones[:-1], 1):
            zones[place] = replace(zones[place], annotations={LEADING: leading.name})
    words = {
        "ZONE": rng.choice(zones).name,
        "FIRST": zones[0].name,
        "FEWER": f"{replicas - rng.randint(1, 2)}",
    }
    budgets: tuple[Json, ...] = ()
    if one.budget is not None:
        budgets = (zone_budget(NAME, {GROUP: NAME}, maxUnavailable=rng.randint(*one.budget)),)
    return Plan(
        kind=name,
        seed=seed,
        zones=tuple(zones),
        requests=tuple(_list_requests(one.requests, words, rng)),
        ready_after=timedelta(seconds=rng.uniform(*one.ready)),
        terminates_after=timedelta(seconds=rng.uniform(0.3, 1)),
        budgets=budgets,
        is_prepared=one.is_prepared,
        wait=one.wait,
    )


def _list_requests(
    text: str, words: Mapping[str, str], rng: random.Random
) -> Iterator[PlannedRequest]:
    last = 0.0
    for request in text.split("; "):
        when, _, change = request.partition(" ")
        least, _, most = when.removeprefix("+").partition("..")
        after = round(rng.uniform(float(least), float(most or least)), 2)
        last = after + (last if when.startswith("+") else 0)
        for word, meant in words.items():
            change = change.replace(word, meant)
        yield PlannedRequest(at=timedelta(seconds=last), change=change)
