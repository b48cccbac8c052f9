"""The benchmarks run, count what they say they count, and never fail for being slow (D-64).

Sizes are tiny here: whether a figure is good is told by `python -m benchmarks`, not by a test.
"""

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.figures import Figure, Result, percentile, render_explanation, render_line
from benchmarks.objects import Place, encode_pod, encode_set, list_places
from benchmarks.plans import make_group
from benchmarks.server import Feed, Spec, World
from benchmarks.timeline import Rollout, count_requests, read_rollout
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.objects import decides
from rollout_operator.model.outcome import ReplacePods
from rollout_operator.planning.rollout.plan import plan_group

OPERATOR = "operator"
ZONES = ("zone-a", "zone-b", "zone-c")
Json = dict[str, Any]

SYNTHETIC = [
    pytest.param(
        "memory",
        {
            "rss_6_pods_idle_mib": 100,
            "rss_6_pods_webhooks_idle_mib": 100,
            "rss_60_pods_idle_mib": 120,
            "cache_bytes_per_pod": 4096,
        },
        id="D-51: memory of the process and of the cache",
    ),
    pytest.param(
        "sync",
        {"uvloop_list_stall_work_ms": 25, "asyncio_relist_stall_work_ms": 25},
        id="D-51: stalls while the cache is filled",
    ),
    pytest.param("events", {}, id="D-64: cost of an event against its floor"),
    pytest.param("plans", {}, id="D-64: cost of a decision"),
    pytest.param(
        "crowd", {"limited_to_deletes": 1.2}, id="D-65: many groups due at once, default limits"
    ),
    pytest.param(
        "held",
        {"zone_growth": 1.5, "partition_growth": 1.5},
        id="D-51: cost of a rollout that a budget holds back",
    ),
]


# Running them


@pytest.mark.parametrize(("name", "targets"), SYNTHETIC)
def test_a_benchmark_prints_one_line_of_json(name: str, targets: Mapping[str, float]) -> None:
    lines: list[str] = []

    assert main([name, "--small"], lines.append) == 0

    (line,) = lines
    assert line.endswith("}\n")
    printed = msgspec.json.decode(line)
    assert printed["benchmark"] == name
    assert printed["figures"]
    assert all(value >= 0 for value in printed["figures"].values())
    assert targets == {key: printed["targets"][key]["at_most"] for key in targets}
    assert printed["machine"]["cpus"] >= 1


@pytest.mark.controlplane
def test_a_rollout_is_measured_from_the_audit_log() -> None:
    """D-52: every replaced pod is found, with what allowed the next."""
    lines: list[str] = []

    assert main(["rollout", "--small"], lines.append) == 0

    figures = msgspec.json.decode(lines[0])["figures"]
    assert figures["limit_1_replaced"] == 3
    assert figures["limit_1_reactions"] == 2
    assert figures["limit_1_violations"] == 0
    assert figures["limit_1_delete_pods_per_pod"] == 1
    assert figures["limit_1_ratio"] >= 1


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sync", "speed"])

    assert ended.value.code == 2
    assert "no benchmark is called speed" in capsys.readouterr().err


def test_every_benchmark_is_tried() -> None:
    """Others are tried in `test_benchmarks_webhooks`, `_scaling` and `_evictions`."""
    elsewhere = {"rollout", "reviews", "connections", "hostile", "prepare"}
    elsewhere |= {"evictions", "evictions_storm", "evictions_drain"}
    elsewhere |= {"scaling_up", "scaling_delays", "scaling_idle"}

    assert elsewhere | {param.values[0] for param in SYNTHETIC} == {*BENCHMARKS}


# What is printed


def a_result() -> Result:
    figures = [
        Figure(name="wait_ms", value=12.34567, means="how long", at_most=10),
        Figure(name="ratio", value=1.0001, means="how much", at_most=1.15),
        Figure(name="events", value=123456.7, means="how many"),
    ]
    return Result(benchmark="sample", setting={"pods": 5}, figures=figures, machine={"cpus": 2})


def test_a_missed_target_is_a_field_and_no_failure() -> None:
    assert msgspec.json.decode(render_line(a_result())) == {
        "benchmark": "sample",
        "setting": {"pods": 5},
        "figures": {"wait_ms": 12.35, "ratio": 1.0, "events": 123457.0},
        "targets": {
            "wait_ms": {"at_most": 10, "met": False},
            "ratio": {"at_most": 1.15, "met": True},
        },
        "machine": {"cpus": 2},
    }


def test_an_explanation_says_what_each_figure_is() -> None:
    assert render_explanation(a_result()).splitlines() == [
        "sample",
        "  wait_ms = 12.35  (target: at most 10; MISSED)",
        "      how long",
        "  ratio = 1  (target: at most 1.15; met)",
        "      how much",
        "  events = 123457",
        "      how many",
    ]


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(1, 0.99, 1), (100, 0.99, 99), (200, 0.99, 198), (10, 0, 1)]
)
def test_a_percentile_is_one_of_the_values(count: int, share: float, expected: float) -> None:
    values = [float(number) for number in range(1, count + 1)]
    random.Random(1).shuffle(values)

    assert percentile(values, share) == expected


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


# What is served


@pytest.mark.parametrize("pods", [1, 6, 50, 200, 5_000])
def test_pods_are_spread_over_whole_groups(pods: int) -> None:
    sets = list_places(pods)
    sizes = [len(places) for places in sets]

    assert sum(sizes) == pods
    assert len(sets) % 3 == 0
    assert max(sizes) - min(sizes) <= 1
    assert len({place.pod_uid for places in sets for place in places}) == pods


def test_a_pod_is_as_large_as_pods_are() -> None:
    """D-51: the budget is about pods of 10 kB; whoever shrinks them makes the figures better."""
    place = Place(group=1, zone="b", ordinal=2)
    encoded = encode_pod(place)
    pod = decode_pod(encoded)

    assert 9_500 <= len(encoded) <= 10_500
    assert pod.is_ready
    assert (pod.name, pod.owner_uid) == ("store-1-zone-b-2", place.set_uid)
    assert b"managedFields" in encoded


def test_the_served_world_is_at_rest() -> None:
    """Memory and CPU of an idle operator are measured: nothing may be due."""
    group = make_group(3, outdated=0)

    assert plan_group(group).actions == ()
    assert decode_statefulset(encode_set(Place(group=0, zone="a"), 3)).group == group.name


def test_a_rolling_group_has_a_pod_to_replace() -> None:
    (action,) = plan_group(make_group(100, outdated=51)).actions

    assert isinstance(action, ReplacePods)
    assert len(action.listed) == 51


def a_world(feed: Feed = Feed.NONE, events: int = 0, pods: int = 7) -> World:
    return World(Spec(port=0, cert="", key="", pods=pods, feed=feed, events=events))


def test_pages_hold_all_pods_once() -> None:
    world, token, names = a_world(), "0", []
    while token:
        page = msgspec.json.decode(world.page("pods", int(token), 3))
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")

    assert len(names) == len({*names}) == 7
    assert len(msgspec.json.decode(world.page("pods", 0, 500))["items"]) == 7


@pytest.mark.parametrize(("feed", "expected"), [(Feed.DECIDING, True), (Feed.OTHER, False)])
async def test_events_decide_or_do_not(feed: Feed, expected: bool) -> None:
    """Each event is news to a cache that has seen those before it; then one pod goes."""
    world = a_world(feed, events=20)
    known = {
        pod.name: pod
        for item in msgspec.json.decode(world.page("pods", 0, 500))["items"]
        for pod in [decode_pod(msgspec.json.encode(item))]
    }
    lines = [msgspec.json.decode(line) async for line in world.feed()]
    *changes, end = lines
    versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in lines]

    assert versions == sorted({*versions})
    for line in changes:
        pod = decode_pod(msgspec.json.encode(line["object"]))
        assert line["type"] == "MODIFIED"
        assert decides(known[pod.name], pod) is expected
        known[pod.name] = pod
    assert len(changes) == 20
    assert end["type"] == "DELETED"
    assert (
        replace(known["store-0-zone-a-0"], resource_version="")
        == replace(decode_pod(msgspec.json.encode(end["object"])), resource_version="")
        or feed is Feed.DECIDING
    )


# What an audit log tells


class Log:
    """Writes an audit log of a group with two pods a zone; each request takes 10 ms."""

    def __init__(self) -> None:
        self.entries: list[Json] = []

    def add(self, at: float, verb: str, target: str, user: str = OPERATOR, **more: Any) -> None:
        resource, _, rest = target.partition(" ")
        name, _, subresource = rest.partition("/")
        entry = {
            "verb": verb,
            "user": {"username": user},
            "stage": "ResponseComplete",
            "objectRef": {"resource": resource, "name": name, "subresource": subresource},
            "requestReceivedTimestamp": _stamp(at),
            "stageTimestamp": _stamp(at + 0.01),
            "responseStatus": {"code": 200},
        }
        self.entries.append(entry | more)

    def change(self, at: float, zone: str) -> None:
        self.add(at, "patch", f"statefulsets {zone}", "admin")

    def delete(self, at: float, pod: str, code: int = 200) -> None:
        self.add(at, "delete", f"pods {pod}", responseStatus={"code": code})

    def ready(self, at: float, pod: str, status: str = "True") -> None:
        body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        self.add(at, "patch", f"pods {pod}/status", "kubelet", requestObject=body)

    def count(self, at: float, zone: str, ready: int) -> None:
        body = {"spec": {"replicas": 2}, "status": {"readyReplicas": ready}}
        self.add(at, "update", f"statefulsets {zone}/status", "controllers", requestObject=body)

    def restart(self, at: float, pod: str) -> None:
        """Delete a pod; it is ready again after 0.8 s, and counted after 0.9 s."""
        zone = pod.rpartition("-")[0]
        self.delete(at, pod)
        self.count(at + 0.1, zone, 1)
        self.ready(at + 0.7, pod, "False")
        self.ready(at + 0.8, pod)
        self.count(at + 0.9, zone, 2)

    def rollout(self, limit: int = 1) -> Rollout:
        # The log is in the order of answers, not of requests.
        random.Random(1).shuffle(self.entries)
        return read_rollout(self.entries, OPERATOR, ZONES, limit)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(1_700_000_000 + at, UTC).isoformat(timespec="microseconds")


def one_zone_after_the_other() -> Log:
    log, at = Log(), 0.0
    log.change(at, "zone-a")
    for zone in ZONES:
        for ordinal in (1, 0):
            at += 0.1
            log.restart(at, f"{zone}-{ordinal}")
            at += 0.9
    return log


def test_a_rollout_is_its_restarts_and_the_reactions_between_them() -> None:
    """D-52: wall time, floor, and each delete with what allowed it; the first has only a template.

    A pod whose status says ready is not back before its set counts it.
    """
    rollout = one_zone_after_the_other().rollout()

    assert len(rollout.restarts) == 6
    assert [round(each.whole, 3) for each in rollout.reactions] == [0.1] * 5
    assert math.isclose(rollout.wall, 6.0, abs_tol=1e-5)
    assert math.isclose(rollout.floor, 5.4, abs_tol=1e-5)
    assert (rollout.zones_short, rollout.pods_down) == (1, 1)


def test_the_servers_part_of_a_reaction_is_told() -> None:
    """The write that allowed the delete, 10 ms, and one list of 10 ms, half of it at that time."""
    log = one_zone_after_the_other()
    log.add(1.005, "list", "pods ")

    first, *others = log.rollout().reactions

    assert math.isclose(first.server, 0.015, abs_tol=1e-5)
    assert [round(each.server, 3) for each in others] == [0.01] * 4


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
    log.restart(1.3, "zone-b-1")

    rollout = log.rollout(limit=2)

    assert [round(each.whole, 3) for each in rollout.reactions] == [0.2]
    assert math.isclose(rollout.floor, 0.9 + 0.9, abs_tol=1e-5)
    assert (rollout.zones_short, rollout.pods_down) == (1, 2)


def test_two_zones_short_at_a_time_are_seen() -> None:
    """SI-01: the figures would look better, and must not go unnoticed."""
    log = Log()
    log.change(0.0, "zone-a")
    log.restart(0.1, "zone-a-1")
    log.restart(0.2, "zone-b-1")

    assert log.rollout().zones_short == 2


def test_a_refused_delete_replaces_nothing() -> None:
    log = one_zone_after_the_other()
    log.delete(0.05, "zone-c-1", code=409)

    rollout = log.rollout()

    assert len(rollout.restarts) == 6
    assert rollout.zones_short == 1


def test_requests_are_counted_by_what_they_are() -> None:
    """A watch is told of at its begin and at its end: it is one; requests of others are none."""
    log = Log()
    log.restart(0.1, "zone-a-1")
    log.add(0.2, "list", "statefulsets ")
    log.add(0.3, "watch", "pods ", stage="ResponseStarted")
    log.add(9.3, "watch", "pods ")

    assert count_requests(log.entries, OPERATOR) == {
        "delete pods": 1,
        "list statefulsets": 1,
        "watch pods": 1,
    }
