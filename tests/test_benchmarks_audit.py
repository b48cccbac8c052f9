"""What benchmarks read out of audit logs (D-52, D-55, D-64)."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.evicting import summarize
from benchmarks.evictions_drain import Run as Drained
from benchmarks.evictions_drain import describe as describe_drain
from benchmarks.evictions_drain import read_drain
from benchmarks.evictions_storm import Run as Stormed
from benchmarks.evictions_storm import describe as describe_storm
from benchmarks.figures import Figure
from benchmarks.releases import Idle
from benchmarks.releases import describe as describe_releases
from benchmarks.scaling_delays import describe_delay, read_reactions
from benchmarks.scaling_idle import describe as describe_idle
from benchmarks.scaling_up import read_steps
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


# Evictions


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


def test_two_zones_drained_at_once_are_seen() -> None:
    log = Log()
    log.evict(0, "zone-a-0")
    log.evict(1, "zone-b-0")
    log.restart(1.5, "zone-a-0")

    assert log.drain().zones_short == 2


def test_a_drain_is_compared_with_its_floor() -> None:
    log = Log()
    log.evict(0, "zone-a-0")
    log.restart(0.5, "zone-a-0", after=2.9)
    run = Drained(
        rollout=log.drain(), began=BEGIN - 3, requested=4, unexpected=0, cpu=0.02, violations=0
    )

    figures = values(describe_drain(run))

    assert figures["wall_s"] == about(6.5)
    assert figures["floor_s"] == about(3.0)
    assert figures["ratio"] == about(6.5 / 3)
    assert figures["asked_per_pod"] == 4
    assert figures["cpu_ms_per_pod"] == about(20)


def test_evictions_are_summed_up_and_share_what_they_cost() -> None:
    answers = summarize([(0.1, 201), (0.2, 429), (0.3, 429), (0.4, 404), (0.5, 500)], wall=2.0)

    assert answers == {
        "count": 5,
        "per_s": 2.5,
        "p50_ms": about(300),
        "p99_ms": about(500),
        "max_ms": about(500),
        "allowed": 1,
        "refused": 2,
        "absent": 1,
        "others": 1,
    }
    figures = values(
        describe_storm(
            Stormed(answers=answers, operator=0.005, starved=0.0, server=0.015, violations=2)
        )
    )
    assert figures["cpu_us"] == about(1_000)
    assert figures["server_cpu_us"] == about(3_000)
    assert figures["share_of_server"] == about(0.75)
    assert (figures["allowed"], figures["refused"], figures["violations"]) == (1, 2, 2)


# Replicas


def test_each_step_of_the_leading_zone_is_followed() -> None:
    """SCALE-12: the delays are those of the followers as they were requested."""
    log = Log()
    for at, name, user in (
        (0, "zone-a", "alice"),
        (0.03, "zone-c", OPERATOR),
        (0.02, "zone-b", OPERATOR),
        (5, "zone-a", "alice"),
        (5.1, "zone-b", OPERATOR),
        (5.2, "zone-c", OPERATOR),
        (5.3, "zone-a/status", "controllers"),
    ):
        log.change(at, name, user)

    steps = read_steps(log.entries, OPERATOR, ("zone-b", "zone-c"))

    assert [step.delays for step in steps] == [about((0.02, 0.03)), about((0.1, 0.2))]


def twice(log: Log) -> None:
    log.change(1, "zone-b", OPERATOR)
    log.change(1, "zone-b", OPERATOR)


@pytest.mark.parametrize(
    ("follow", "what"),
    [
        pytest.param(lambda log: None, "0 writes", id="no zone followed"),
        pytest.param(twice, "2 writes", id="twice"),
        pytest.param(lambda log: log.change(1, "zone-b", OPERATOR, 409), "0 writes", id="refused"),
        pytest.param(lambda log: log.change(1, "zone-b", "bob"), "0 writes", id="by a person"),
    ],
)
def test_what_did_not_follow_exactly_once_is_no_figure(
    follow: Callable[[Log], None], what: str
) -> None:
    log = Log()
    log.change(0, "zone-a")
    follow(log)

    with pytest.raises(ValueError, match=what):
        read_steps(log.entries, OPERATOR, ("zone-b",))


def test_a_rollout_is_timed_from_its_template_to_its_delete() -> None:
    """W-06: of the other group only, and of the operator's deletes only."""
    log = Log()
    log.change(0, "other-zone-a")
    log.delete(0.01, "other-zone-a-0", "controllers")
    log.change(0.02, "store-zone-a")
    log.delete(0.05, "other-zone-a-0")
    log.change(9, "other-zone-a", OPERATOR)
    log.change(10, "other-zone-a")
    log.delete(10.2, "other-zone-a-0", code=409)
    log.delete(10.25, "other-zone-a-0")
    log.change(20, "other-zone-a")

    assert read_reactions(log.entries, OPERATOR) == about([0.05, 0.25])


@pytest.mark.parametrize(
    ("quiet", "busy", "delay", "is_met"),
    [
        pytest.param([0.02, 0.03], [0.06, 0.05], 30.0, True, id="a little later"),
        pytest.param([0.02], [0.3], 280.0, False, id="much later"),
        pytest.param([0.2], [0.1], 0.0, True, id="earlier is no gain"),
    ],
)
def test_a_delay_is_what_is_longer_than_without(
    quiet: list[float], busy: list[float], delay: float, is_met: bool
) -> None:
    figures = {figure.name: figure for figure in describe_delay(quiet, busy)}
    assert figures["rollout_delay_ms"].value == about(delay)
    assert figures["rollout_delay_ms"].is_met is is_met


def test_idle_requests_are_counted_by_the_minute() -> None:
    """LI-11: watches are shown beside, writes have a target of their own."""
    requested = Counter(
        {
            ("list", "pods"): 30,
            ("get", "replicatemplates"): 20,
            ("patch", "statefulsets"): 10,
            ("watch", "pods"): 100,
        }
    )
    figures = {figure.name: figure for figure in describe_idle("plain", requested, 10)}
    assert {name: figure.value for name, figure in figures.items()}.items() >= {
        "plain_requests_per_minute": 6,
        "plain_writes_per_minute": 1,
        "plain_watches_per_minute": 10,
        "plain_list_pods_per_minute": 3,
    }.items()
    assert figures["plain_requests_per_minute"].is_met
    assert not figures["plain_writes_per_minute"].is_met


def test_idle_releases_show_writes_look_ups_and_what_they_add() -> None:
    """A write of a status counts, a watch that is opened anew does not."""
    requested = Counter({"patch rollouts": 2, "list pods": 3, "watch pods": 9})
    without = Idle(rss_mib=60, cpu_s=0.5, requests=Counter(), look_ups=0, known=0)
    with_them = Idle(rss_mib=90, cpu_s=2.5, requests=requested, look_ups=4, known=1_000)

    figures = {one.name: one for one in describe_releases(1_000, 30, without, with_them)}

    assert {name: figure.value for name, figure in figures.items()} == {
        "known": 1_000,
        "writes": 2,
        "reads": 3,
        "look_ups": 4,
        "rss_off_mib": 60,
        "rss_on_mib": 90,
        "memory_ratio": 1.5,
        "bytes_per_rollout": about(30 * 2**20 / 1_000),
        "cpu_ms_per_rollout_and_minute": about(4),
        "cpu_share": about(2.5 / 30),
        "cpu_ratio": 5,
    }
    assert not figures["writes"].is_met
    assert not figures["look_ups"].is_met
