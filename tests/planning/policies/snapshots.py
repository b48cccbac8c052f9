"""Policies, StatefulSets and snapshots of a policy for tables to bend, and the last batch."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import ZoneSource
from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import Group, LabelSelector, Newcomers, Zone
from rollout_operator.model.policy import (
    Batch,
    BatchPod,
    Policy,
    PolicyHead,
    PolicyPlan,
    PolicySnapshot,
    ResolvedSet,
    ResolvedZone,
    ZoneFinding,
    ZoneFindingCode,
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
    `at 9` is so many seconds later, `clock 1` how much later it may be. `spans TEXT` is said of a
    StatefulSet, `nowhere b` is in no zone, `newcomers a-2` came by an upscale.
    """
    statements = text.split("; ")
    own = [one for one in statements if one.split()[0] in _OWN]
    group = read_group("; ".join(one for one in statements if one not in own) or "none")
    given: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    for (word, *plain), named in map(read_arguments, own):
        match word:
            case "batch":
                times = {key: float(str(named[key])) for key in named if key in _TIMES}
                given["batch"] = batch(*plain, **(named | times))  # type: ignore[arg-type]
            case "initial":
                counts = {f"zone-{letter}": int(str(many)) for letter, many in named.items()}
                changes["initial"] = counts
            case "shared":
                given["shared"] = named
            case "at":
                group = replace(group, now=NOW + seconds(float(plain[0])))
            case "clock":
                changes["clock_error"] = seconds(float(plain[0]))
            case "spans":
                changes["resolution"] = _spanning(" ".join(plain))
            case "nowhere":
                kept = [one.sts.name[-1] for one in group.zones if one.sts.name[-1] not in plain]
                given["shared"] = {letter: letter for letter in kept}
            case "newcomers":
                group = replace(group, zones=tuple(_greet(one, plain) for one in group.zones))
            case _:
                given |= read_spec({key: str(value) for key, value in named.items()})
    found = snapshot(*group.zones, **given)
    return replace(found, group=replace(group, name=GroupName("db")), **changes)


def _spanning(text: str) -> ZoneResolution:
    finding = ZoneFinding(code=ZoneFindingCode.SPANS_ZONES, text=text)
    return ZoneResolution(code=ZonesCode.SPANS_ZONES, findings=(finding,))


def _greet(base: Zone, names: Sequence[str]) -> Zone:
    """Return the zone with some of its pods as newcomers."""
    uids = frozenset(Uid(f"uid-{name}") for name in names)
    known = uids & {one.uid for one in base.pods}
    used = base.sts.replicas - len(known)
    seen = Newcomers(used=used, generation=1, pods=known) if known else base.newcomers
    return replace(base, newcomers=seen)


def read_spec(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return fields of a policy."""
    kinds = {one.name: one.type for one in structs.fields(Policy)}
    return {key: _READ.get(kinds[key], kinds[key])(text) for key, text in texts.items()}


_TIMES: Final = ("start", "completion")
_OWN: Final = {
    "at", "batch", "clock", "initial", "newcomers", "nowhere", "shared", "spans", "spec",
}  # fmt: skip
_READ: Final[Mapping[type, Callable[[str], object]]] = {
    timedelta: lambda text: seconds(float(text)),
    IntOrPercent: lambda text: IntOrPercent(int(text.rstrip("%")), is_percent="%" in text),
}


def batch(
    *names: str,
    uids: str = "old",
    start: float = -60,
    completion: float | None = None,
    **fields: Any,
) -> Batch:
    """Return batch 4 of pods such as `a-1`, which began and ended so many seconds from now.

    `uids` is `old` where they were deleted since, `same` where they are the pods of today, and
    `nobody` where none is named.
    """
    letter = names[0][0]
    pods = tuple(
        BatchPod(name=f"zone-{name}", uid=Uid(f"uid-{name}" if uids == "same" else f"old-{name}"))
        for name in names
        if uids != "nobody"
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
        namespace="prod", name=name, uid=Uid(f"uid-{name}"), created=CREATED - timedelta(hours=age)
    )
    return Policy(**{"head": head, "selector": LabelSelector(labels={"app": "db"}), **fields})
