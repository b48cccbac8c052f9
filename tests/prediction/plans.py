"""What is played on the control plane, and given to `simulate`: both in the words of `-change`.

Pure: a seed in, a plan out. Times are short, so that a run takes half a minute.
"""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice, pairwise
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
WAIT: Final = "5s"


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
        """Return what it is called in a report."""
        return f"{self.kind}/{self.seed}"


class _Draw(msgspec.Struct, frozen=True):
    """What is chosen by chance for one plan."""

    seed: int
    rng: random.Random = msgspec.field(default_factory=random.Random)

    def zones(self, least: int = 2) -> tuple[ZoneSpec, ...]:
        """Return three zones whose pods carry the label of their group."""
        limit = self.rng.choice((1, 1, 2, 3))
        replicas = self.rng.randint(least, 4)
        return tuple(
            ZoneSpec(
                name=f"{NAME}-zone-{letter}",
                replicas=replicas,
                max_unavailable=limit,
                pod_labels={GROUP: NAME},
            )
            for letter in LETTERS
        )

    def plan(self, kind: str, zones: tuple[ZoneSpec, ...], *requests: tuple[float, str]) -> Plan:
        """Return a plan whose requests come at these seconds."""
        return Plan(
            kind=kind,
            seed=self.seed,
            zones=zones,
            requests=tuple(
                PlannedRequest(at=timedelta(seconds=at), change=text) for at, text in requests
            ),
            ready_after=timedelta(seconds=self.rng.uniform(1, 3)),
            terminates_after=timedelta(seconds=self.rng.uniform(0.3, 1)),
        )

    def zone(self) -> str:
        """Return the name of some zone."""
        return f"{NAME}-zone-{self.rng.choice(LETTERS)}"

    def later(self, least: float, most: float) -> float:
        """Return some time, in seconds."""
        return round(self.rng.uniform(least, most), 2)


def _roll(draw: _Draw) -> Plan:
    return draw.plan("rollout", draw.zones(), (draw.later(1, 3), "image v2"))


def _roll_within_budget(draw: _Draw) -> Plan:
    found = draw.plan("budget", draw.zones(3), (draw.later(1, 3), "image v2"))
    return _held(found, draw.rng.randint(1, 2))


def _roll_twice(draw: _Draw) -> Plan:
    requests = (draw.later(1, 2), "image v2"), (draw.later(6, 12), "image v3")
    return draw.plan("second-image", draw.zones(), *requests)


def _pause(draw: _Draw) -> Plan:
    zone = draw.zone()
    requests = [(0.5, f"pause {zone}"), (1.5, "image v2"), (draw.later(6, 15), f"resume {zone}")]
    return draw.plan("paused-zone", draw.zones(), *requests)


def _roll_bad(draw: _Draw) -> Plan:
    requests = (draw.later(1, 2), "bad template"), (draw.later(10, 15), "image v3")
    return draw.plan("bad-image", draw.zones(), *requests)


def _lose_pod(draw: _Draw) -> Plan:
    pod, begin = f"{draw.zone()}-0", draw.later(0.5, 3)
    requests = (begin, f"pod {pod} fails"), (begin + 0.5, "image v2")
    return draw.plan("broken-pod", draw.zones(), *requests)


def _drain(draw: _Draw) -> Plan:
    found = draw.plan("drain", draw.zones(), (draw.later(1, 3), f"drain zone {draw.zone()}"))
    return _held(found, 1)


def _drain_and_roll(draw: _Draw) -> Plan:
    requests = (draw.later(1, 2), "image v2"), (draw.later(3, 20), f"drain zone {draw.zone()}")
    zones = tuple(replace(zone, replicas=2) for zone in draw.zones())
    found = draw.plan("drain-rollout", zones, *requests)
    # Drains try again every 5 s, however long pods take. Where these took less, as they never do in
    # a cluster, chance alone would say which of the two takes a pod.
    ready = timedelta(seconds=draw.rng.uniform(7, 9))
    return _held(replace(found, ready_after=ready), draw.rng.randint(1, 2))


def _scale_down(draw: _Draw) -> Plan:
    zones = draw.zones(3)
    requests = [(draw.later(1, 3), f"scale {draw.zone()} to {(zones[0].replicas or 0) - 2}")]
    requests += [(requests[0][0] + draw.later(1, 4), "image v2")]
    return replace(draw.plan("downscale-rollout", zones, *requests), is_prepared=True)


def _follow(draw: _Draw) -> Plan:
    first, *others = draw.zones(3)
    chain = [first]
    for leading, zone in pairwise((first, *others)):
        chain.append(replace(zone, annotations={LEADING: leading.name}))
    fewer = (first.replicas or 0) - draw.rng.randint(1, 2)
    found = draw.plan(
        "following", tuple(chain), (draw.later(1, 3), f"scale {first.name} to {fewer}")
    )
    return replace(found, is_prepared=True, wait=WAIT)


def _held(plan: Plan, maximum: int) -> Plan:
    budget = zone_budget(NAME, {GROUP: NAME}, maxUnavailable=maximum)
    return replace(plan, budgets=(budget,))


KINDS: Final[Mapping[str, Callable[[_Draw], Plan]]] = {
    "rollout": _roll,
    "drain-rollout": _drain_and_roll,
    "budget": _roll_within_budget,
    "following": _follow,
    "second-image": _roll_twice,
    "drain": _drain,
    "paused-zone": _pause,
    "downscale-rollout": _scale_down,
    "bad-image": _roll_bad,
    "broken-pod": _lose_pod,
}


def make_plan(seed: int, kind: str = "") -> Plan:
    """Return the plan of a seed, of one kind or of each in turn."""
    chosen = kind or next(islice(KINDS, seed % len(KINDS), None))
    return KINDS[chosen](_Draw(seed, random.Random(seed)))
