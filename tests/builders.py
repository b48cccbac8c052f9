"""Short builders of views for tables of planner cases.

The pods of a zone are one letter each, by ordinal: `p`, `l`, `o` for a ready pod at revision prev,
last, old; the capital for one that crashes again and again; `t`, `T` for a terminating one at prev,
last; `n`, `N` for one that was never ready, `w`, `W` for one that was; `-` for no pod. So
`zone("a", "pL-")` has three replicas: zone-a-0 is ready at prev, zone-a-1 crashes at last, zone-a-2
does not exist.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Final, TypeVar

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import (
    GROUP_LABEL,
    MAX_UNAVAILABLE,
    PAUSED,
    ZONE_SOAK,
    GroupName,
    Revision,
    Uid,
)
from rollout_operator.model.objects import Deletion, Group, Pod, StatefulSet, Unreadable, Zone

NOW: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
REVISIONS: Final = {
    "p": Revision("prev"),
    "t": Revision("prev"),
    "n": Revision("prev"),
    "w": Revision("prev"),
    "l": Revision("last"),
    "o": Revision("old"),
}

_Decoded = TypeVar("_Decoded", StatefulSet, Pod)


def sts_uid(letter: str) -> Uid:
    return Uid(f"uid-{letter}")


def pod(letter: str, ordinal: int, state: str = "p", **changes: object) -> Pod:
    """Return pod `zone-<letter>-<ordinal>` in a state as the module's docstring has it."""
    terminating = state in "tT"
    ready = state in "plo"
    is_crashing = state in "PLO"
    why_not_ready = "" if ready else "terminating" if terminating else "container app not ready"
    plain = Pod(
        namespace="test",
        name=f"zone-{letter}-{ordinal}",
        uid=Uid(f"uid-{letter}-{ordinal}"),
        resource_version="1",
        owner_uid=sts_uid(letter),
        revision=Revision("last") if state in "TNW" else REVISIONS[state.lower()],
        phase="Running",
        is_terminating=terminating,
        is_ready=ready,
        was_ready=state in "wW",
        never_ready=state in "nN",
        is_crash_looping=is_crashing,
        why_not_ready="CrashLoopBackOff" if is_crashing else why_not_ready,
    )
    return _change(plain, changes)


def sts(letter: str, replicas: int = 3, **changes: object) -> StatefulSet:
    """Return StatefulSet `zone-<letter>`, rolled out and whole as far as its status goes."""
    plain = StatefulSet(
        namespace="test",
        name=f"zone-{letter}",
        uid=sts_uid(letter),
        resource_version="1",
        generation=1,
        observed_generation=1,
        labels={GROUP_LABEL: "ingester"},
        annotations={MAX_UNAVAILABLE: "2"},
        selector={"name": f"zone-{letter}"},
        strategy="OnDelete",
        replicas=replicas,
        status_replicas=replicas,
        updated_replicas=replicas,
        ready_replicas=replicas,
        available_replicas=replicas,
        current_revision=Revision("last"),
        update_revision=Revision("last"),
    )
    return _change(plain, changes)


def zone(
    letter: str,
    pods: str = "lll",
    *,
    ready: int | None = None,
    current: str = "last",
    limit: str | None = "2",
    paused: str | None = None,
    soak: str | None = None,
    **changes: object,
) -> Zone:
    """Return a zone; `ready` is what its status counts, all where it is not given."""
    annotations = {MAX_UNAVAILABLE: limit, PAUSED: paused, ZONE_SOAK: soak}
    counted = len(pods) if ready is None else ready
    base = sts(
        letter,
        len(pods),
        current_revision=current,
        ready_replicas=counted,
        available_replicas=counted,
        annotations={key: text for key, text in annotations.items() if text is not None},
    )
    states = [(ordinal, state) for ordinal, state in enumerate(pods) if state != "-"]
    return Zone(
        sts=_change(base, changes),
        pods=tuple(pod(letter, ordinal, state) for ordinal, state in states),
    )


def with_pods(base: Zone, **changes: object) -> Zone:
    pods = tuple(_change(one, changes) for one in base.pods)
    return structs.replace(base, pods=pods)


def prev(
    letter: str,
    pods: str = "ppp",
    *,
    limit: str = "1",
    ready: int | None = None,
    paused: str | None = None,
    soak: str | None = None,
    **changes: object,
) -> Zone:
    """Return a zone that rolls from prev to last, with a status that agrees with its pods."""
    counted = sum(state in "plo" for state in pods) if ready is None else ready
    base = zone(letter, pods, ready=counted, current="prev", limit=limit, paused=paused, soak=soak)
    return structs.replace(base, sts=_change(base.sts, changes))


def group(*zones: Zone, deletions: Mapping[str, Deletion] | None = None) -> Group:
    """Return group `ingester`; `deletions` are by name of the pod."""
    known = {
        Uid(name.replace("zone", "uid", 1)): state for name, state in (deletions or {}).items()
    }
    return Group(name=GroupName("ingester"), zones=zones, now=NOW, deletions=known)


def shuffled(zones: Sequence[Zone], rng: Random) -> tuple[Zone, ...]:
    """Return zones, and the pods of each, in another order."""
    return tuple(
        structs.replace(
            one,
            pods=tuple(rng.sample(one.pods, len(one.pods))),
            unreadable_pods=tuple(rng.sample(one.unreadable_pods, len(one.unreadable_pods))),
        )
        for one in rng.sample(zones, len(zones))
    )


def unreadable(kind: str, name: str, *, owner: str | None = None) -> Unreadable:
    """Return an object that could not be decoded; `owner` is the letter of its zone."""
    return Unreadable(
        kind=kind,
        namespace="test",
        name=name,
        uid=Uid(f"uid-of-{name}"),
        resource_version="1",
        owner_uid=None if owner is None else sts_uid(owner),
        error='spec.replicas: expected int, got str: "x"',
    )


def _change(obj: _Decoded, changes: Mapping[str, object]) -> _Decoded:
    return replace(obj, **changes)
