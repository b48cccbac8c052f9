"""What a budget allows, once more and naively: pod by pod and name by name, slow and plain.

It knows only the rules of counting (ZPDB-73..95), none of the obstacles before them. Partitions are
the last number of a name.
"""

from datetime import timedelta

from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.objects import Pod, Zone
from rollout_operator.planning.budgets import BudgetSnapshot


def expect_disruption(snapshot: BudgetSnapshot) -> str:
    """Return `allow`, or the numbers and the place of the refusal."""
    if (
        snapshot.engine is DisruptionSource.ROLLOUT
        and not snapshot.pod.is_ready
        and not snapshot.pod.is_terminating
    ):
        return "allow"
    if snapshot.budget.pattern:
        return _expect_in_partition(snapshot, _number(snapshot.pod.name))
    for zone in sorted(snapshot.zones, key=lambda zone: zone.sts.name):
        own = zone.sts.uid == snapshot.owner
        not_ready, unknown = _count(snapshot, zone)
        if not_ready + unknown >= (_maximum(snapshot) if own else 1):
            return _text(not_ready, unknown, zone.sts.name)
    return "allow"


def _expect_in_partition(snapshot: BudgetSnapshot, partition: str) -> str:
    not_ready = unknown = 0
    for zone in snapshot.zones:
        if zone.sts.uid != snapshot.owner:
            one, other = _count_partition(snapshot, zone, partition)
            not_ready, unknown = not_ready + one, unknown + other
    if not_ready + unknown >= _maximum(snapshot):
        return _text(not_ready, unknown, f"partition {partition}")
    return "allow"


def _maximum(snapshot: BudgetSnapshot) -> int:
    share = snapshot.budget.percentage
    if share is None:
        return snapshot.budget.max_unavailable or snapshot.override
    (sts,) = [zone.sts for zone in snapshot.zones if zone.sts.uid == snapshot.owner]
    pods = min(sts.replicas, sts.status_replicas)
    if share == 0 or pods == 0:
        return snapshot.override
    return max(1, int(share * pods / 100 + 1e-9))


def _count(snapshot: BudgetSnapshot, zone: Zone) -> tuple[int, int]:
    pods = _owned(zone)
    lost = [one.name for one in zone.unreadable_pods]
    not_ready = len(lost) + sum(_is_down(snapshot, zone, pod) for pod in pods)
    short = _expected(zone) - len(pods) - len(lost)
    return not_ready, max(short, len(_absent(zone)), 0)


def _count_partition(snapshot: BudgetSnapshot, zone: Zone, partition: str) -> tuple[int, int]:
    pods, lost = _owned(zone), [one.name for one in zone.unreadable_pods]
    mine = [pod for pod in pods if _number(pod.name) == partition]
    lost_here = [name for name in lost if _number(name) == partition]
    not_ready = len(lost_here) + sum(_is_down(snapshot, zone, pod) for pod in mine)
    absent = _absent(zone)
    nameless = max(_expected(zone) - len(pods) - len(lost) - len(absent), 0)
    unknown = nameless + sum(_number(name) == partition for name in absent)
    if not mine and not lost_here and not unknown and not snapshot.budget.forgives_absent_peers:
        unknown = 1
    return not_ready, unknown


def _owned(zone: Zone) -> list[Pod]:
    return [pod for pod in zone.pods if pod.owner_uid == zone.sts.uid]


def _expected(zone: Zone) -> int:
    return max(zone.sts.replicas, zone.sts.status_replicas)


def _absent(zone: Zone) -> list[str]:
    first = zone.sts.first_ordinal
    names = [f"{zone.sts.name}-{first + at}" for at in range(zone.sts.replicas)]
    there = [pod.name for pod in _owned(zone)] + [one.name for one in zone.unreadable_pods]
    return [name for name in names if name not in there]


def _is_down(snapshot: BudgetSnapshot, zone: Zone, pod: Pod) -> bool:
    if pod.uid == snapshot.pod.uid:
        return False
    if pod.is_terminating or not pod.is_ready or pod.uid in snapshot.deletions:
        return True
    age = None if pod.ready_since is None else snapshot.now - pod.ready_since
    patience = timedelta(seconds=zone.sts.min_ready_seconds)
    if patience and (age is None or age < patience):
        return True
    delay = snapshot.budget.delay if snapshot.budget.pattern else timedelta(0)
    return bool(delay) and (age is None or age <= delay)


def _number(name: str) -> str:
    return name.rsplit("-", 1)[1]


def _text(not_ready: int, unknown: int, place: str) -> str:
    parts = []
    if not_ready:
        parts.append(f"{not_ready} pod{'s' if not_ready > 1 else ''} not ready")
    if unknown:
        parts.append(f"{unknown} pod{'s' if unknown > 1 else ''} unknown")
    return f"{', '.join(parts)} in {place}"
