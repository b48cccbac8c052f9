"""What benchmarks read out of audit logs (D-52, D-55, D-64)."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.evictions_drain import read_drain
from benchmarks.figures import Figure
from benchmarks.timeline import Rollout, count_requests, read_rollout

OPERATOR = "operator"
ZONES = ("zone-a", "zone-b", "zone-c")
BEGIN = 1_700_000_000
Json = dict[str, Any]
about = pytest.approx


class Log:
    """Writes an audit log of a group with two pods a zone; each request takes 10 ms."""

    def __init__(self) -> None:
        self.entries: list[Json] = []

    def add(
        self, at: float, verb: str, target: str, user: str = OPERATOR, code: int = 200, **more: Any
    ) -> None:
        """Add an entry; a target is such as `pods NAME/status`."""
        resource, _, rest = target.partition(" ")
        name, _, subresource = rest.partition("/")
        took = more.pop("took", 0.01)
        entry = {
            "verb": verb,
            "user": {"username": user},
            "stage": "ResponseComplete",
            "objectRef": {"resource": resource, "name": name}
            | ({"subresource": subresource} if subresource else {}),
            "requestReceivedTimestamp": _stamp(at),
            "stageTimestamp": _stamp(at + took),
            "responseStatus": {"code": code},
        }
        self.entries.append(entry | more)

    def change(self, at: float, zone: str, user: str = "admin", code: int = 200) -> None:
        self.add(at, "patch", f"statefulsets {zone}", user, code)

    def delete(self, at: float, pod: str, user: str = OPERATOR, code: int = 200) -> None:
        self.add(at, "delete", f"pods {pod}", user, code)

    def evict(self, at: float, pod: str, code: int = 201) -> None:
        """Add an eviction that is answered half a second later."""
        self.add(at, "create", f"pods {pod}/eviction", "person", code, took=0.5)

    def ready(self, at: float, pod: str, status: str = "True") -> None:
        body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        self.add(at, "patch", f"pods {pod}/status", "kubelet", requestObject=body)

    def count(self, at: float, zone: str, ready: int) -> None:
        body = {"spec": {"replicas": 2}, "status": {"readyReplicas": ready}}
        self.add(at, "update", f"statefulsets {zone}/status", "controllers", requestObject=body)

    def restart(self, at: float, pod: str, after: float = 0.8) -> None:
        """Have a pod that goes be ready again after a while, and counted 0.1 s later."""
        zone = pod.rpartition("-")[0]
        self.count(at + 0.1, zone, 1)
        self.ready(at + after - 0.1, pod, "False")
        self.ready(at + after, pod)
        self.count(at + after + 0.1, zone, 2)

    def replace(self, at: float, pod: str) -> None:
        self.delete(at, pod)
        self.restart(at, pod)

    def rollout(self, limit: int = 1) -> Rollout:
        # The log is in the order of answers, not of requests.
        random.Random(1).shuffle(self.entries)
        return read_rollout(self.entries, OPERATOR, ZONES, limit)

    def drain(self) -> Rollout:
        return read_drain(self.entries, ZONES, limit=1)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(BEGIN + at, UTC).isoformat(timespec="microseconds")


def values(figures: Sequence[Figure]) -> dict[str, float]:
    return {figure.name: figure.value for figure in figures}


# Rollouts


def one_zone_after_the_other() -> Log:
    log, at = Log(), 0.0
    log.change(at, "zone-a")
    for zone in ZONES:
        for ordinal in (1, 0):
            at += 0.1
            log.replace(at, f"{zone}-{ordinal}")
            at += 0.9
    return log


def test_a_rollout_is_its_restarts_and_the_reactions_between_them() -> None:
    """D-52: wall time, floor, and each delete with what allowed it; the first has only a template.

    A pod whose status says ready is not back before its set counts it. A delete that is refused
    replaces nothing.
    """
    log = one_zone_after_the_other()
    log.delete(0.05, "zone-c-1", code=409)
    rollout = log.rollout()

    assert len(rollout.restarts) == 6
    assert [each.whole for each in rollout.reactions] == about([0.1] * 5, abs=1e-3)
    assert rollout.wall == about(6.0, abs=1e-5)
    assert rollout.floor == about(5.4, abs=1e-5)
    assert (rollout.zones_short, rollout.pods_down) == (1, 1)


def test_a_reaction_has_the_part_of_the_server() -> None:
    """The write that allowed the delete, 10 ms, and one list of 10 ms, half of it at that time.

    No delete waits for an Event.
    """
    log = one_zone_after_the_other()
    log.add(1.005, "list", "pods ")
    log.add(2.005, "create", "events ", took=0.05)

    reactions = log.rollout().reactions

    assert [each.server for each in reactions] == about([0.015, *[0.01] * 4], abs=1e-5)


def test_two_at_a_time_need_half_of_the_time() -> None:
    """Limit 2: the next zone waits for both, and the floor has room for both at a time."""
    log = Log()
    log.change(0.0, "zone-a")
    log.delete(0.1, "zone-a-1")
    log.delete(0.2, "zone-a-0")
    log.count(0.3, "zone-a", 0)
    log.ready(0.9, "zone-a-1")
    log.count(0.95, "zone-a", 1)
    log.ready(1.0, "zone-a-0")
    log.count(1.1, "zone-a", 2)
    log.replace(1.3, "zone-b-1")

    rollout = log.rollout(limit=2)

    assert [each.whole for each in rollout.reactions] == about([0.2], abs=1e-3)
    assert rollout.floor == about(0.9 + 0.9, abs=1e-5)
    assert (rollout.zones_short, rollout.pods_down) == (1, 2)


def test_two_zones_short_at_a_time_are_seen() -> None:
    """SI-01: the figures would look better, and must not go unnoticed."""
    log = Log()
    log.change(0.0, "zone-a")
    log.replace(0.1, "zone-a-1")
    log.replace(0.2, "zone-b-1")

    assert log.rollout().zones_short == 2


def test_requests_are_counted_by_what_they_are() -> None:
    """A watch is in the log at its begin and at its end: it is one; others' requests are none."""
    log = Log()
    log.replace(0.1, "zone-a-1")
    log.add(0.2, "list", "statefulsets ")
    log.add(0.3, "watch", "pods ", stage="ResponseStarted")
    log.add(9.3, "watch", "pods ")

    assert count_requests(log.entries, OPERATOR) == {
        "delete pods": 1,
        "list statefulsets": 1,
        "watch pods": 1,
    }


def test_restarts_begin_with_the_answer_to_an_eviction() -> None:
    """What was refused is no restart; the time until an answer is the operator's."""
    log = Log()
    log.evict(0, "zone-a-0")
    log.evict(0.1, "zone-b-0", code=429)
    log.restart(0.5, "zone-a-0", after=2.9)
    log.evict(4, "zone-b-0")
    log.restart(4.5, "zone-b-0", after=1.9)

    drain = log.drain()

    assert [each.span for each in drain.restarts] == about([3.0, 2.0])
    assert drain.floor == about(5.0)
    assert (drain.zones_short, drain.pods_down) == (1, 1)
