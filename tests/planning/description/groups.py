"""Groups in the states that a description must distinguish, one for each name."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.objects import Deletion, Group, Newcomers, OtherRollout, Underway, Zone
from tests.builders import NOW, group, pod, prev, unreadable, with_pods, zone

OLD: Final = NOW - timedelta(days=3)


def aged(base: Zone, **ages: timedelta) -> Zone:
    """Return the zone with pods made long ago; `p0` says how long ago pod 0 was made."""
    pods = tuple(
        replace(one, created=NOW - ages.get(f"p{number}", NOW - OLD))
        for number, one in enumerate(base.pods)
    )
    return structs.replace(base, pods=pods)


def starting(base: Zone, ordinal: int) -> Zone:
    """Return the zone with a pod that is on its way up."""
    name = f"{base.sts.name}-{ordinal}"
    pods = tuple(
        replace(one, is_ready=False, is_starting=True, why_not_ready="ContainerCreating")
        if one.name == name
        else one
        for one in base.pods
    )
    return structs.replace(base, pods=pods)


def _with(base: Group, **changes: object) -> Group:
    return structs.replace(base, **changes)


_TWO_DONE: Final = (zone("b"), zone("c"))

STATES: Final[Mapping[str, Group]] = {
    "rolled out": group(zone("a"), *_TWO_DONE),
    "about to begin": group(prev("a"), prev("b")),
    "rolling": group(
        aged(prev("a", "llp", limit="1"), p0=timedelta(minutes=4), p1=timedelta(minutes=1)),
        aged(prev("b")),
    ),
    "starting": group(
        starting(aged(prev("a", "Lpp"), p0=timedelta(minutes=1)), 0), aged(prev("b"))
    ),
    "starting for long": group(
        starting(aged(prev("a", "Lpp"), p0=timedelta(minutes=15)), 0), aged(prev("b"))
    ),
    "the last pod starts": group(starting(zone("a", "lll", ready=2, current="prev"), 2), zone("b")),
    "a step that is done already": group(prev("a", "tpp"), prev("b")),
    "going": group(prev("a"), prev("b"), deletions={"zone-a-0": Deletion.ACCEPTED}),
    "no room": group(prev("a", "Lpp"), prev("b")),
    "several zones down": group(prev("a", "wpp"), prev("b", "wpp"), zone("c")),
    "several zones down by a bad revision": group(prev("a", "Ppp"), prev("b", "npp"), zone("c")),
    "paused": group(prev("a", paused="true"), *_TWO_DONE),
    "paused after its rollout": group(zone("a", current="prev", paused="true"), zone("b")),
    "paused and another one": group(prev("a", paused="true"), prev("b")),
    "paused and down": group(prev("a", "Ppp", paused="true"), prev("b")),
    "wrong strategy": group(prev("a", strategy="RollingUpdate"), zone("b")),
    "downscale underway": _with(
        group(zone("a"), zone("b")),
        downscale=Underway(zone="zone-b", replicas_from=3, replicas_to=2),
    ),
    "an upscale without room": group(
        structs.replace(zone("a", "lll-", ready=3), newcomers=Newcomers(used=3, generation=1)),
        zone("b"),
    ),
    "pods that are wanted no more": group(
        structs.replace(zone("a"), pods=tuple(pod("a", number, "l") for number in range(4))),
    ),
    "an unreadable set": _with(group(zone("a")), unreadable=(unreadable("StatefulSet", "zone-b"),)),
    "no readable set": _with(group(), unreadable=(unreadable("StatefulSet", "zone-b"),)),
    "an unreadable pod": group(
        structs.replace(
            zone("a", "ll-"), unreadable_pods=(unreadable("Pod", "zone-a-2", owner="a"),)
        ),
        zone("b"),
    ),
    "no pods": group(zone("a", "---", ready=0), zone("b")),
    "no replicas": group(zone("a", ""), zone("b", "")),
    "another operator": _with(
        group(prev("a"), prev("b")),
        other_rollout=OtherRollout(pods=("zone-a-0", "zone-a-1"), left=timedelta(seconds=30)),
    ),
    "an old view": _with(group(zone("a")), snapshot_age=timedelta(minutes=2)),
    "not ready for long enough": group(
        with_pods(
            zone("a", "lll", ready=0, min_ready_seconds=30),
            ready_since=NOW - timedelta(seconds=10),
        ),
        zone("b"),
    ),
    "a crash after the rollout": group(zone("a", "lLl", ready=2), zone("b")),
    "a bad number": group(zone("a", limit="many"), zone("b", paused="yes")),
    "only to be recorded": group(zone("a", current="prev"), zone("b")),
}
