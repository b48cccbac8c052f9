"""How much of the input a simulation takes: how many pods its objects may want.

Pure. What is beyond would not end in an hour, or take all memory before it begins.
"""

from collections.abc import Iterable
from typing import Final

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.lab.model.fields import name_of, number
from rollout_operator.lab.simulate.input import BadDump

# Of all StatefulSets together, and of each other object whose count they may follow.
MOST_REPLICAS: Final = 10_000


def check_replicas(objects: Iterable[JsonObject]) -> None:
    """Raise BadDump where objects that have been decoded want more pods than may be simulated."""
    total = 0
    for one in objects:
        replicas = number(one, "spec", "replicas")
        before = total if one.get("kind") == STATEFULSETS.kind else 0
        if before + replicas > MOST_REPLICAS:
            beside = f" beside {before} of other StatefulSets" if before else ""
            raise BadDump(
                f"{one.get('kind')} {name_of(one)}: spec.replicas: {replicas}{beside} is more than"
                f" the {MOST_REPLICAS} that a simulation takes in all"
            )
        total = before + replicas
