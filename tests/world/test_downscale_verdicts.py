"""Forged histories of downscales: each kind of wrong is found, and nothing in a right one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from tests.judge.objects import MIN_TIME, PREPARE, read_set, read_time
from tests.world.api import STATEFULSETS
from tests.world.downscales import (
    Request,
    find_too_early,
    find_unprepared,
    judge_downscales,
    list_downscales,
    read_requests,
)
from tests.world.scene import World
from tests.world.sets import Zone, label, set_replicas, statefulset, wait_ready
from tests.world.stories import Story, begin
from tests.world.webpods import PodCall, WebPods

HOUR = timedelta(hours=1)


@dataclass
class Tale:
    """Three zones of three prepared pods each, a minimum of an hour in zone b, told in order."""

    story: Story = field(default_factory=begin)
    requests: list[Request] = field(default_factory=list)
    calls: list[PodCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        for zone in "abc":
            min_time = HOUR if zone == "b" else timedelta(0)
            self.story.change_set(zone, must_prepare=True, min_time=min_time)

    def call(self, method: str, name: str, status: int = 200, takes: float = 0.01) -> None:
        at = self.story.at
        self.story.wait(takes)
        self.calls.append(
            PodCall(
                at=at,
                wall=datetime.now(UTC),
                pod=name,
                uid=self.story.pod(name).uid,
                address="127.1.1.1",
                method=method,
                path="/",
                headers={},
                status=status,
                done_at=at + takes,
            )
        )

    def scale(self, zone: str, replicas: int, *prepared: str) -> None:
        """Let a request come, prepare pods, and persist it."""
        received = self.story.at
        self.story.wait(0.01)
        for name in prepared:
            self.call("POST", name)
        self.persist(zone, replicas, received)

    def persist(self, zone: str, replicas: int, received: float) -> None:
        self.story.change_set(zone, replicas=replicas)
        self.story.wait(0.01)
        self.requests.append(Request(name=zone, received=received, answered=self.story.at))

    def remove(self, name: str) -> None:
        self.story.change_pod(name, is_terminating=True)
        self.story.wait(1)
        self.story.write(f"pod/{name}", None)

    def unprepared(self) -> list[str]:
        found = list_downscales(self.story.changes, self.requests)
        return [each.text for each in find_unprepared(self.story.changes, found, self.calls)]

    def too_early(self) -> list[str]:
        return [
            each.text for each in find_too_early(list_downscales(self.story.changes, self.requests))
        ]


def properly(tale: Tale) -> None:
    tale.scale("a", 1, "a-2", "a-1")
    for name in ("a-2", "a-1"):
        tale.remove(name)


def after_a_failed_round(tale: Tale) -> None:
    received = tale.story.at
    tale.call("POST", "a-2", status=500)
    tale.call("DELETE", "a-2", status=500)
    tale.call("POST", "a-2", status=204)
    tale.persist("a", 2, received)


def undone_once_wanted_again(tale: Tale) -> None:
    tale.scale("a", 2, "a-2")
    tale.scale("a", 3)
    tale.call("DELETE", "a-2")


def delete_reaches_a_pod_on_its_way_out(tale: Tale) -> None:
    tale.scale("a", 2, "a-2")
    tale.story.change_pod("a-2", is_terminating=True)
    tale.call("DELETE", "a-2")


def never_ready(tale: Tale) -> None:
    """D-26"""
    tale.story.write("pod/a-2", None)
    tale.story.come_back("a-2", is_ready=False)
    tale.scale("a", 2)


def no_preparation_asked_for(tale: Tale) -> None:
    tale.story.change_set("a", must_prepare=False)
    tale.scale("a", 0)


@pytest.mark.parametrize(
    "tell",
    [
        properly,
        after_a_failed_round,
        undone_once_wanted_again,
        delete_reaches_a_pod_on_its_way_out,
        never_ready,
        no_preparation_asked_for,
    ],
)
def test_si_10_a_right_downscale_is_clean(tell: Callable[[Tale], None]) -> None:
    tale = Tale()
    tell(tale)
    assert tale.unprepared() == []


def one_not_asked(tale: Tale) -> None:
    tale.scale("a", 1, "a-2")


def refused_by_the_pod(tale: Tale) -> None:
    received = tale.story.at
    tale.call("POST", "a-1")
    tale.call("POST", "a-2")
    tale.calls[0].status = 500
    tale.persist("a", 1, received)


def never_answered(tale: Tale) -> None:
    tale.scale("a", 1, "a-2", "a-1")
    tale.calls[1].done_at = None


def prepared_for_an_earlier_request(tale: Tale) -> None:
    tale.call("POST", "a-1")
    tale.story.wait(1)
    tale.scale("a", 1, "a-2")


def prepared_after_the_commit(tale: Tale) -> None:
    tale.scale("a", 1, "a-2")
    tale.call("POST", "a-1")


def replaced_between(tale: Tale) -> None:
    """FP-25: pod replaced between prepare and removal."""
    received = tale.story.at
    tale.call("POST", "a-2")
    tale.call("POST", "a-1")
    tale.story.change_pod("a-1", is_terminating=True)
    tale.story.come_back("a-1")
    tale.persist("a", 1, received)


def un_prepared_before_the_commit(tale: Tale) -> None:
    received = tale.story.at
    tale.call("POST", "a-2")
    tale.call("POST", "a-1")
    tale.call("DELETE", "a-1", status=500)
    tale.persist("a", 1, received)


def un_prepared_after_the_commit(tale: Tale) -> None:
    tale.scale("a", 1, "a-2", "a-1")
    tale.call("DELETE", "a-1")
    tale.remove("a-1")


def un_prepared_by_an_old_call(tale: Tale) -> None:
    tale.call("DELETE", "a-1", takes=5)
    tale.story.at -= 4
    tale.scale("a", 1, "a-2", "a-1")


@pytest.mark.parametrize(
    ("tell", "text"),
    [
        (one_not_asked, "not called"),
        (refused_by_the_pod, "POST -> 500"),
        (never_answered, "not prepared between"),
        (prepared_for_an_earlier_request, "not prepared between"),
        (prepared_after_the_commit, "not prepared between"),
        (replaced_between, "not called"),
        (un_prepared_before_the_commit, "un-prepared after"),
        (un_prepared_after_the_commit, "un-prepared after"),
        (un_prepared_by_an_old_call, "un-prepared after"),
    ],
)
def test_si_10_a_wrong_downscale_is_found(tell: Callable[[Tale], None], text: str) -> None:
    tale = Tale()
    tell(tale)

    (found,) = tale.unprepared()
    assert "downscale of a to 1: a-1" in found
    assert text in found


@pytest.mark.parametrize(
    ("zones", "apart", "count"),
    [
        pytest.param(("a", "c"), timedelta(minutes=59), 1, id="the third zone's time counts"),
        pytest.param(("b", "a"), timedelta(minutes=59), 1, id="the earlier one's time counts"),
        pytest.param(("a", "b"), timedelta(0), 1, id="at once"),
        pytest.param(("a", "b"), timedelta(minutes=61), 0, id="later"),
        pytest.param(("b", "b"), timedelta(0), 0, id="same zone"),
    ],
)
def test_si_11_zones_wait_for_one_another(
    zones: tuple[str, str], apart: timedelta, count: int
) -> None:
    tale = Tale()
    tale.scale(zones[0], 2)
    tale.story.wait(apart.total_seconds())
    tale.scale(zones[1], 1)

    assert len(tale.too_early()) == count


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"group": "other"}, id="other group"),
        pytest.param({"group": None}, id="no group"),
        pytest.param({"must_prepare": False}, id="not prepared"),
    ],
)
def test_si_11_is_about_prepared_zones_of_one_group(change: dict[str, object]) -> None:
    tale = Tale()
    tale.story.change_set("c", **change)
    if change == {"group": None}:
        tale.story.change_set("b", **change)
    tale.scale("b", 2)
    tale.scale("c", 2)

    assert tale.too_early() == []


def test_si_11_upscales_never_wait() -> None:
    tale = Tale()
    tale.scale("b", 2)
    tale.scale("a", 4)

    assert tale.too_early() == []


def test_requests_are_read_from_the_audit_log() -> None:
    entry = {
        "objectRef": {"resource": "statefulsets", "name": "a", "subresource": "scale"},
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": "1970-01-01T00:01:40.500000Z",
        "stageTimestamp": "1970-01-01T00:01:41.000000Z",
        "requestURI": "/scale",
        "responseStatus": {"code": 200},
    }
    others = [
        entry | {"responseStatus": {"code": 400}},
        entry | {"requestURI": "/scale?dryRun=All"},
        entry | {"objectRef": {"resource": "webhooks", "name": "a"}},
        entry | {"stage": "Panic"},
    ]

    assert read_requests([*others, entry], 90.0) == [Request(name="a", received=10.5, answered=11)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12h0m0s", 43200), ("1h30m", 5400), ("1.5s", 1.5), ("2d", 172800), ("", 0), ("soon", 0)],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert read_time(text) == timedelta(seconds=seconds)


def test_what_a_set_asks_for_is_read_and_its_annotation_wins() -> None:
    """D-22"""
    zone = Zone(name="a", labels={PREPARE: "true", MIN_TIME: "1h"})
    found = statefulset(zone)
    found["metadata"] |= {"uid": "1"}
    assert (read_set(found).must_prepare, read_set(found).min_time) == (True, HOUR)
    found["metadata"]["annotations"] = {MIN_TIME: "2h"}
    assert read_set(found).min_time == 2 * HOUR


async def prepare(pods: WebPods, name: str, method: str = "POST") -> None:
    url = f"http://{pods.address(name)}:{pods.port}/prepare"
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        await answer.read()


@pytest.mark.controlplane
async def test_real_downscales_are_judged(world: World) -> None:
    """SI-10, SI-11: on the real server nobody prepares, or somebody else than a webhook does."""
    pods = await world.serve_pods()
    names = await world.create(
        *(Zone(name=zone, replicas=3, labels={PREPARE: "true", MIN_TIME: "1h"}) for zone in "ab")
    )
    await label(world.api, world.namespace, "a", **{PREPARE: None})
    await set_replicas(world.api, world.namespace, "a", 2)
    assert await judge_downscales(world.judge, pods.calls) == []

    # Before the request came, which is what a webhook could not do.
    await prepare(pods, "b-2")
    await set_replicas(world.api, world.namespace, "b", 2)
    await wait_ready(world.api, world.namespace, names)
    (early,) = await judge_downscales(world.judge, pods.calls)
    assert early.invariant == "SI-10"
    assert "b-2 was not prepared between request and commit: ['POST -> 200']" in early.text

    await label(world.api, world.namespace, "a", **{PREPARE: "true"})
    await world.api.patch(
        STATEFULSETS, world.namespace, "a", {"spec": {"replicas": 1}}, subresource="scale"
    )
    found = await judge_downscales(world.judge, pods.calls)
    assert [each.invariant for each in found] == ["SI-10", "SI-10", "SI-11"]
