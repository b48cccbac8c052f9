"""Policies, StatefulSets and snapshots of a policy for tables to bend, and the last batch."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.model.budget import ZoneSource
from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import Group, LabelSelector, Zone
from rollout_operator.model.policy import (
    Batch,
    BatchPod,
    Policy,
    PolicyHead,
    PolicyPlan,
    PolicySnapshot,
    ResolvedSet,
    ResolvedZone,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.model.units import IntOrPercent
from tests.builders import NOW
from tests.planning.tables import read_arguments, read_group

CREATED = datetime(2026, 1, 2, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def resolution(*zones: tuple[str, Sequence[str]]) -> ZoneResolution:
    """Return zones in this order, each with the letters of its StatefulSets."""
    resolved = tuple(
        ResolvedZone(
            name=name,
            sets=tuple(
                ResolvedSet(name=f"zone-{letter}", zone=name, source=ZoneSource.LABEL)
                for letter in letters
            ),
        )
        for name, letters in zones
    )
    sets = tuple(one for zone in resolved for one in zone.sets)
    return ZoneResolution(code=ZonesCode.ALL_RESOLVED, zones=resolved, sets=sets)


def snapshot(
    *zones: Zone,
    batch: Batch | None = None,
    now: datetime = NOW,
    shared: Mapping[str, str] | None = None,
    **fields: Any,
) -> PolicySnapshot:
    """Return a snapshot of zones in this order, each of one StatefulSet.

    `shared` has, by name, the letters of the StatefulSets of zones that have several; then it has
    all of them.
    """
    letters = [zone.sts.name.removeprefix("zone-") for zone in zones]
    named = shared or {letter: letter for letter in letters}
    return PolicySnapshot(
        policy=policy(**fields),
        resolution=resolution(*named.items()),
        group=Group(name=GroupName("db"), zones=zones, now=now, deletions={}),
        batch=batch,
    )


def read_policy(text: str) -> PolicySnapshot:
    """Return a snapshot such as `prev a ppl; zone b; batch a-2 completion=-20; spec interval=5`.

    Zones are as `read_group` has them, `spec` are fields of the policy, `shared one=ab two=c`
    are the StatefulSets of zones that have several, `initial c=2` is what the status has of them.
    """
    statements = text.split("; ")
    own = [one for one in statements if one.split()[0] in ("batch", "spec", "shared", "initial")]
    group = read_group("; ".join(one for one in statements if one not in own))
    given: dict[str, Any] = {}
    initial: dict[str, int] = {}
    for (word, *plain), named in map(read_arguments, own):
        if word == "batch":
            given["batch"] = batch(*plain, **named)  # type: ignore[arg-type]  # by the table
        elif word == "initial":
            initial = {f"zone-{letter}": int(str(many)) for letter, many in named.items()}
        elif word == "shared":
            given["shared"] = named
        else:
            given |= {key: _SPEC[key](str(value)) for key, value in named.items()}
    found = snapshot(*group.zones, **given)
    return replace(found, group=replace(group, name=GroupName("db")), initial=initial)


def _read_limit(text: str) -> IntOrPercent:
    return IntOrPercent(int(text.removesuffix("%")), is_percent=text.endswith("%"))


_SPEC: Final[Mapping[str, Callable[[str], object]]] = {
    "is_paused": bool,
    "interval": lambda text: seconds(float(text)),
    "max_unavailable": _read_limit,
}


def batch(
    *names: str,
    uids: str = "old",
    start: float = -60,
    completion: float | None = None,
    **fields: Any,
) -> Batch:
    """Return batch 4 of pods such as `a-1`, which began and ended so many seconds from now.

    `uids` is `old` where they were deleted since, `same` where they are the pods of today.
    """
    letter = names[0][0]
    pods = tuple(
        BatchPod(name=f"zone-{name}", uid=Uid(f"uid-{name}" if uids == "same" else f"old-{name}"))
        for name in names
    )
    plain = Batch(
        number=4,
        zone=letter,
        set_name=f"zone-{letter}",
        revision=Revision("last"),
        pods=pods,
        start=NOW + seconds(start),
        completion=None if completion is None else NOW + seconds(completion),
    )
    return replace(plain, **fields)


def outline(plan: PolicyPlan) -> str:
    """Return the pods that go, as `a-2 a-1`, then the code of the wait and what is recorded."""
    going = [one.pod.name.removeprefix("zone-") for one in plan.action.going] if plan.action else []
    waits = [one.code for one in plan.waits]
    records = [f"record {one.zone.name.removeprefix('zone-')}" for one in plan.records]
    return " ".join([*going, *waits, *records])


def policy(name: str = "db", *, age: int = 0, **fields: Any) -> Policy:
    """Return a policy over `app: db`, of which none is older than `age` hours."""
    head = PolicyHead(
        namespace="prod",
        name=name,
        uid=Uid(f"uid-{name}"),
        created=CREATED - timedelta(hours=age),
    )
    return Policy(**{"head": head, "selector": LabelSelector(labels={"app": "db"}), **fields})
