"""What tables of planner cases have in common: how a group is written, and short sentences."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.names import LAST_DOWNSCALE, MIN_TIME_BETWEEN_DOWNSCALES, Uid
from rollout_operator.model.objects import (
    Deletion,
    GateState,
    Group,
    HealthGate,
    Newcomers,
    OtherRollout,
    Underway,
    Zone,
)
from rollout_operator.model.units import format_rfc3339
from tests.builders import NOW, group, prev, unreadable, zone

# How long a zone that has `left` counts still.
LEFT_FOR: Final = timedelta(minutes=7, seconds=20)

_PLAIN = {"true": True, "false": False, "none": None}
# Text, whatever it looks like.
_MAPS = {"selector", "labels", "annotations"}
_TEXTS = {"limit", "paused", "soak", "current", "update_revision"}


def shorten(lines: Iterable[str], sentences: Mapping[str, str]) -> list[str]:
    """Return lines with whole sentences, by their patterns, in the short form of a table."""
    short = list(lines)
    for pattern, form in sentences.items():
        short = [re.sub(pattern, form, line) for line in short]
    return short


_LEFT: Final = r"(\w+): zone-(\w): (\d+) pods? left to update"
_NUMBERS: Final = r"\((\d+) unavailable of (\d+) allowed\)"
BUDGET_SENTENCES: Final = {
    r"(zone-\w) is waiting for (.*)\. (\d+ pods? left to update \(.*? allowed\))": r"\1: \3 (\2)",
    r"(zone-\w-\d+) \(([^()]*)\)": r"\1: \2",
    r"its status \(([^()]*)\)": r"status counts \1",
    f"^{_LEFT} {_NUMBERS}": r"\1 \2: \3 wait, \4 of \5 down",
    f"^{_LEFT} after this one {_NUMBERS}": r"\1 \2: \3 wait, \4 of \5 down, 1 going",
    rf"^{_LEFT} after these (\d+) {_NUMBERS}": r"\1 \2: \3 wait, \5 of \6 down, \4 going",
}
"""Why the pods of a zone wait, as the tables of rollouts have it."""


def read_arguments(text: str) -> tuple[list[str], dict[str, object]]:
    """Return the plain words of a statement, and those of the form `name=value`."""
    plain: list[str] = []
    named: dict[str, object] = {}
    for word in text.split():
        name, is_named, value = word.partition("=")
        if is_named:
            named[name] = value if name in _TEXTS else _read_value(value)
            if name in _MAPS:
                named[name] = dict(pair.split(":", 1) for pair in value.split(",") if pair)
        else:
            plain.append("" if word == '""' else word)
    return plain, named


def _read_value(text: str) -> object:
    if text in _PLAIN:
        return _PLAIN[text]
    return int(text) if text.lstrip("-").isdigit() else text


def read_group(text: str, *given: Zone) -> Group:
    """Return a group: `prev a pPp limit=2; zone b; pod zone-a-0 was_ready=true; unknown zone-b-1`.

    It has the zones `given`, too.

    `lately` is a zone that was scaled down an hour ago and waits for twelve, `left` one that left
    while it was short. `pod` changes pods, all of a zone where it ends in `*`; `ready_for` (or not
    ready) and `age` are seconds. `twin` adds a second pod of a name, `lost` one that cannot be
    read, `stale` is the age of the view, `other` another operator's last pods and for how many
    seconds it is left alone; other words are kinds of deletions. Names of pods may be short, such
    as `a-0`. `pending a-3 a-4 status=4` are pods without a node, `starting a-0` ones on their way
    up, and `newcomers a 3 3 4 settles=9` is what was seen of a zone: from which count on, and
    which, nothing has been used. `gate b waits room=1` is what a health check says of a zone.
    """
    zones: list[Zone] = [*given]
    departed: list[Zone] = []
    deletions: dict[str, Deletion] = {}
    changes: dict[str, object] = {}
    for statement in filter(None, _spell(text).split("; ")):
        (word, *plain), named = read_arguments(statement)
        match word:
            case "prev" | "zone":
                make = prev if word == "prev" else zone
                zones.append(make(*plain, **named))  # type: ignore[arg-type]  # by the table
            case "left":
                departed.append(zone(*plain, **named))  # type: ignore[arg-type]  # by the table
            case "pod":
                zones = [change_pods(one, plain, named) for one in zones]
            case "twin":
                zones = [_add_twins(one, plain, named) for one in zones]
            case "lost":
                zones = [_lose_pods(one, plain, **named) for one in zones]  # type: ignore[arg-type]  # by the table
            case "pending":
                zones = [_unschedule(one, plain, named) for one in zones]
            case "starting":
                up = {"is_ready": False, "is_starting": True, "why_not_ready": "ContainerCreating"}
                zones = [change_pods(one, plain, up) for one in zones]
            case "newcomers":
                zones = [_see_newcomers(one, *plain, **named) for one in zones]  # type: ignore[arg-type]  # by the table
            case "none":
                pass
            case "gate":
                letter, state, *_ = plain
                gate = HealthGate(
                    state=GateState(state),
                    text=f"is held: {state}",
                    room=int(str(named.get("room", 0))),
                )
                changes["gates"] = {**_get_gates(changes), Uid(f"uid-{letter}"): gate}
            case "driver":
                changes["driver"] = plain[0]
            case "stale":
                changes["snapshot_age"] = timedelta(seconds=int(plain[0]))
            case "other":
                *pods, left = plain
                changes["other_rollout"] = OtherRollout(
                    pods=tuple(pods), left=timedelta(seconds=int(left))
                )
            case "unreadable":
                changes["unreadable"] = tuple(unreadable("StatefulSet", name) for name in plain)
            case "downscale":
                name, before, after, *late = plain
                kept = Underway(zone=name, replicas_from=int(before), replicas_to=int(after))
                changes["downscale"] = replace(kept, is_unrecorded=late == ["unrecorded"])
            case "lately":
                zones = [_scale_down(one) if one.sts.name in plain else one for one in zones]
            case _:
                assert word in [*Deletion], f"neither read_group nor deletions have: {word}"
                deletions.update(dict.fromkeys(plain, Deletion(word)))
    changes["departed"] = tuple(replace(one, counts_for=LEFT_FOR) for one in departed)
    return replace(group(*zones, deletions=deletions), **changes)


def _get_gates(changes: Mapping[str, object]) -> Mapping[Uid, HealthGate]:
    gates = changes.get("gates", {})
    assert isinstance(gates, dict), "made here"
    return gates


def _spell(text: str) -> str:
    """Write out names of pods such as `a-0`."""
    return re.sub(r"(?<= )([a-e]-[\d*])", r"zone-\1", text)


def change_pods(base: Zone, names: Collection[str], changes: Mapping[str, object]) -> Zone:
    """Return the zone with some of its pods changed, as `read_group` says."""
    given = {key: value for key, value in changes.items() if key != "status"}
    for key, field in (("age", "created"), ("ready_for", "ready_since")):
        if key in given:
            given[field] = NOW - timedelta(seconds=float(str(given.pop(key))))
            given["unready_since"] = given[field]
    pods = [
        msgspec.structs.replace(pod, **given)
        if pod.name in names or f"{base.sts.name}-*" in names
        else pod
        for pod in base.pods
    ]
    return replace(base, pods=tuple(pods))


def _unschedule(base: Zone, names: list[str], given: Mapping[str, object]) -> Zone:
    """Return the zone with pods that find no node, as far as they are its own, and its status."""
    if not any(pod.name in names for pod in base.pods):
        return base
    pending = {"phase": "Pending", "is_ready": False, "ip": "", "why_not_ready": "Unschedulable"}
    whole = change_pods(base, names, {**pending, **given})
    ready = given.get("status", sum(pod.is_ready for pod in whole.pods))
    counted = {"ready_replicas": ready, "available_replicas": ready}
    return replace(whole, sts=msgspec.structs.replace(base.sts, **counted))


def _see_newcomers(
    base: Zone, letter: str, used: str, *ordinals: str, generation: int = 1, settles: int = 0
) -> Zone:
    if base.sts.name != f"zone-{letter}":
        return base
    seen = Newcomers(
        used=int(used),
        generation=generation,
        pods=frozenset(Uid(f"uid-{letter}-{ordinal}") for ordinal in ordinals),
        settles_in=timedelta(seconds=settles),
    )
    return replace(base, newcomers=seen)


def _add_twins(base: Zone, names: Collection[str], changes: Mapping[str, object]) -> Zone:
    """Return the zone with a second pod of some names, as a cache that missed an event holds it."""
    twins = [
        msgspec.structs.replace(pod, uid=Uid(f"{pod.uid}-twin"), **changes)
        for pod in base.pods
        if pod.name in names
    ]
    return replace(base, pods=(*base.pods, *twins))


def _scale_down(base: Zone) -> Zone:
    last = format_rfc3339(NOW - timedelta(hours=1))
    annotations = {LAST_DOWNSCALE: last, MIN_TIME_BETWEEN_DOWNSCALES: "12h"}
    return replace(base, sts=msgspec.structs.replace(base.sts, annotations=annotations))


def _lose_pods(base: Zone, names: list[str], owner: str | None = "") -> Zone:
    """Return the zone with pods that cannot be read, which have no `owner` where that is none."""
    own = base.sts.name[-1] if owner == "" else owner
    lost = [unreadable("Pod", name, owner=own) for name in names if name.startswith(base.sts.name)]
    return replace(base, unreadable_pods=(*base.unreadable_pods, *lost))
