"""Prepare-downscale with the zone tracker: ZONE-01 to 10, W-15, SI-11, SI-15.

The rest of T-07 in that mode stands in `test_prepare_downscale`.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest

from rollout_operator.model.names import (
    LAST_DOWNSCALE,
    ApiError,
    Denied,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import format_entry
from tests.controllers.fake_client import Json
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import RETELL, SECOND, WAIT, World, part, pods_of, three_zones, zone

MAP: Final = "zones"
PREFIX: Final = "downscale of statefulsets/zone-a in test from 5 to 3 replicas is "
DENIED: Final = f"{PREFIX}not allowed because "
NOT_LOADED: Final = f"{DENIED}loading zones failed. "
NOT_RECORDED: Final = f"{DENIED}setting downscale timestamp in the zone ConfigMap failed. "
BAD_TIME: Final = (
    f"{DENIED}parsing parsing downscale timestamps from the zone ConfigMap failed. statefulset"
    " zone-b: "
)
OLD: Final = format_entry("2026-01-01T00:00:00Z")
ANSWERED: Final = format_entry("2026-01-02T03:04:07Z")
"""Pods need a tenth of a second, and the clock may be a second behind."""
A: Final = Uid("uid-zone-a")


def tracked(data: Mapping[str, str] | None = None, **changes: Mapping[str, str]) -> World:
    """Return three zones and the ConfigMap, empty where nothing else is said."""
    return fill(three_zones(5, tracker=MAP, **changes), data or {})


def fill(world: World, data: Mapping[str, str]) -> World:
    meta: Json = {"name": MAP, "uid": "u", "resourceVersion": "1", "labels": {"mine": "kept"}}
    world.client.objects["configmaps", MAP] = {"metadata": meta, "data": dict(data)}
    return world


def data_of(world: World) -> Json:
    return part(world.client.objects["configmaps", MAP], "data")


def map_calls(world: World) -> list[str]:
    return [call for call in world.client.calls if "configmaps" in call]


@pytest.mark.parametrize("whole", [True, False], ids=["of the set", "of its Scale"])
@in_virtual_time
async def test_t07_2_the_time_is_recorded_before_the_answer(whole: bool) -> None:
    """T-07 #2, ZONE-01, ZONE-09, W-16: in the ConfigMap and nowhere else; foreign things stay."""
    world = tracked({"zone-b": OLD, "other": "garbage"})
    verdict = await world.send_request("zone-a", 3, whole=whole)
    assert verdict.is_allowed
    assert verdict.annotations == {}
    assert data_of(world) == {"zone-a": ANSWERED, "zone-b": OLD, "other": "garbage"}
    assert part(world.client.objects["configmaps", MAP], "metadata")["labels"] == {"mine": "kept"}
    assert map_calls(world) == [f"get configmaps/{MAP}", f"patch configmaps/{MAP}"]
    assert not [call for call in world.client.calls if call.startswith("patch statefulsets")]


@in_virtual_time
async def test_t07_3_a_fresh_map_lets_zones_wait() -> None:
    """T-07 #3, ZONE-03, ZONE-07: no pod is called."""
    world = three_zones(tracker=MAP, c={"grafana.com/min-time-between-zones-downscale": "12h"})
    verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.reason.text) == (
        Code.ZONE_DOWNSCALED_LATELY,
        f"{DENIED}statefulset zone-b was downscaled at 2026-01-02 03:04:06 +0000 UTC and is"
        " labelled to wait 12h0m0s between zone downscales",
    )
    assert set(data_of(world)) == {"zone-a", "zone-b", "zone-c"}
    assert world.calls.calls == []


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("etcd is down"),
        UnknownOutcome("no answer"),
        Denied('cannot patch configmaps/zones: no; grant verb patch on "configmaps"', status=403),
    ],
    ids=lambda error: type(error).__name__,
)
@in_virtual_time
async def test_t07_5_what_cannot_be_recorded_is_refused(error: ApiError) -> None:
    """T-07 #5, ZONE-09, DEP-34: all pods are told that they stay; the missing rule is named."""
    world = tracked()
    world.fail(error, "patch configmaps", "put configmaps")
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.NOT_RECORDED
    assert verdict.reason.text == f"{NOT_RECORDED}{error}"
    assert verdict.code == 429
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]
    assert world.calls.names("DELETE") == ["zone-a-4", "zone-a-3"]
    assert data_of(world) == {}
    due = world.memory.downscales.backlog.map_due_cancels(A)
    assert {entry.due for entry in due.values()} == {world.clock.elapsed() + RETELL}


@in_virtual_time
async def test_t07_5_a_record_that_hangs_is_given_up_in_time() -> None:
    """LI-06, SI-13: and pods are un-prepared before the answer is due."""
    world = tracked()

    async def pause(call: str) -> None:
        if call.startswith("patch configmaps"):
            await asyncio.sleep(1000)

    world.client.pause = pause
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.REVIEW_TIMED_OUT
    assert verdict.reason.text.startswith(f"{NOT_RECORDED}no answer within 7.")
    assert world.calls.names("DELETE") == ["zone-a-4", "zone-a-3"]
    assert world.clock.elapsed() < 9 * SECOND


@pytest.mark.parametrize(
    ("data", "changes", "code", "words"),
    [
        pytest.param(
            {"zone-b": "{"}, {}, Code.BAD_DOWNSCALE_TIME,
            f"{NOT_LOADED}ConfigMap zones: data.zone-b: ", id="ZONE-05 no JSON",
        ),
        pytest.param(
            {"zone-b": format_entry("soon")}, {}, Code.BAD_DOWNSCALE_TIME,
            f"{BAD_TIME}entry in ConfigMap zones: ", id="ZONE-06 no time",
        ),
        pytest.param(
            {}, {"b": {"grafana.com/min-time-between-zones-downscale": "soon"}},
            Code.BAD_DOWNSCALE_TIME,
            f"{BAD_TIME}annotation grafana.com/min-time-between-zones-downscale: ",
            id="ZONE-06 no span",
        ),
        pytest.param(
            {"zone-b": format_entry("2026-01-02T03:00:00Z")}, {"a": WAIT},
            Code.ZONE_DOWNSCALED_LATELY,
            f"{DENIED}statefulset zone-b was downscaled at 2026-01-02 03:00:00 +0000 UTC and is"
            " labelled to wait 1h0m0s between zone downscales",
            id="ZONE-07 T-08 another zone lately",
        ),
        pytest.param(
            {"zone-b": format_entry("2027-01-02T03:00:00Z")}, {"a": WAIT},
            Code.ZONE_DOWNSCALED_LATELY,
            f"{DENIED}statefulset zone-b was downscaled at 2027-01-02 03:00:00 +0000 UTC and is"
            " labelled to wait 1h0m0s between zone downscales; that time lies in the future: see"
            " its entry in the zone ConfigMap",
            id="W-50 in the future",
        ),
    ],
)  # fmt: skip
@in_virtual_time
async def test_what_the_map_forbids(
    data: Mapping[str, str], changes: Mapping[str, Mapping[str, str]], code: Code, words: str
) -> None:
    world = tracked(data, **changes)
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is code
    assert verdict.reason.text.startswith(words)
    assert world.calls.calls == []
    assert data_of(world) == data


@pytest.mark.parametrize("stamp", ["2026-01-02T03:04:05Z", "yesterday"])
@in_virtual_time
async def test_zone01_annotations_are_not_read(stamp: str) -> None:
    """ZONE-01: neither a time that would forbid nor one that cannot be read."""
    world = tracked({}, a=WAIT, b={**WAIT, LAST_DOWNSCALE: stamp})
    assert (await world.send_request("zone-a", 3)).is_allowed


@pytest.mark.parametrize("verb", ["get", "post"])
@in_virtual_time
async def test_zone05_a_map_that_cannot_be_read_or_made(verb: str) -> None:
    """ZONE-05, DEP-34, SI-13: refused, with the rule that is missing."""
    world = three_zones(tracker=MAP)
    denied = Denied(f'grant verb {verb} on "configmaps"', status=403)
    world.fail(denied, f"{verb} configmaps/{MAP}")
    verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.GROUP_NOT_READ, 429)
    assert verdict.reason.text == f"{NOT_LOADED}{denied}"
    assert world.calls.calls == []


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 5, 8], ids=lambda turns: f"after {turns} turns")
@pytest.mark.parametrize("tracker", ["", MAP], ids=["annotations", "tracker"])
@in_virtual_time
async def test_w15_two_zones_at_once(tracker: str, delay: int) -> None:
    """T-08, ZONE-08, W-15, D-25, PREP-27, SEED-111, FP-19: exactly one passes, in any order.

    Another group passes.
    """
    world = tracked({}, a=WAIT, b=WAIT) if tracker else three_zones(a=WAIT, b=WAIT)
    part(world.client.objects["statefulsets", "zone-c"], "metadata")["labels"] = {
        "rollout-group": "store", "grafana.com/prepare-downscale": "true"
    }  # fmt: skip
    world.sync()
    world.client.pause = lambda call: asyncio.sleep(0)

    async def request_later(name: str) -> Verdict:
        for _ in range(delay):
            await asyncio.sleep(0)
        return await world.send_request(name, 3)

    requested = (world.send_request("zone-a", 3), request_later("zone-b"), request_later("zone-c"))
    verdicts = await asyncio.gather(*requested)
    assert [verdict.is_allowed for verdict in verdicts] == [True, False, True]
    assert verdicts[1].reason.code is Code.OTHER_DOWNSCALE_UNDERWAY
    assert verdicts[1].reason.text.endswith("zone-a is already in process of updating replicas")
    assert {name[:6] for name in world.calls.names("POST")} == {"zone-a", "zone-c"}
    assert not tracker or set(data_of(world)) == {"zone-a", "zone-c"}


@in_virtual_time
async def test_w15_two_processes_at_once() -> None:
    """W-15, SI-11: neither knows of the other; pods of the second are told that they stay."""
    world = tracked({}, a=WAIT, b=WAIT)
    first = world.memory
    second = world.restart()
    requested = (
        memory.hook.review(world.review(name, 3), world.clock.elapsed() + 9 * SECOND)
        for memory, name in ((first, "zone-a"), (second, "zone-b"))
    )
    verdicts = await asyncio.gather(*requested)
    assert sorted(verdict.is_allowed for verdict in verdicts) == [False, True]
    (lost,) = [verdict for verdict in verdicts if not verdict.is_allowed]
    assert lost.reason.code is Code.ZONE_DOWNSCALED_LATELY
    assert len(data_of(world)) == 1
    assert len(world.calls.names("DELETE")) == 2


@in_virtual_time
async def test_d24_a_repeated_review_records_once() -> None:
    """SI-16, D-24: and is not refused where the ConfigMap cannot be read by now."""
    world = tracked()
    first = await world.send_request("zone-a", 3)
    world.fail(Unreachable("down"), f"get configmaps/{MAP}")
    await world.clock.sleep(6 * SECOND)
    assert await world.send_request("zone-a", 3) == first
    assert map_calls(world) == [f"get configmaps/{MAP}", f"patch configmaps/{MAP}"]


@in_virtual_time
async def test_zone10_a_set_without_a_group() -> None:
    """ZONE-10, W-16: no other entry decides or is lost."""
    alone = zone("zone-a", group=None)
    world = fill(World([alone], pods_of("zone-a"), tracker=MAP), {"zone-b": "garbage"})
    assert (await world.send_request("zone-a", 3)).is_allowed
    assert data_of(world) == {"zone-a": ANSWERED, "zone-b": "garbage"}
