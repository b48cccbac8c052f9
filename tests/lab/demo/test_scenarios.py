"""Each story shows what it promises: the operator's own code on the sandbox, in virtual time."""

import io
import re
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.demo.command import play
from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.objects import pause
from rollout_lab.demo.opening import open_stage
from rollout_lab.demo.scenarios import SCENARIOS, until_done
from rollout_lab.demo.screen import Plain
from rollout_lab.demo.snapshot import DemoSnapshot
from rollout_lab.demo.stage import ScenarioStuck

from rollout_operator.planning.wording import count
from tests.virtual_time import in_virtual_time

SMALL: Final = DemoSettings(zones=3, pods=2)
# Nothing is rolled out in these.
TIME: Final = re.compile(r" *([0-9.]+) s  ")
LEASE: Final = re.compile(r"lease rollout-operator was renewed ([0-9]+) s ago by operator-1; ")


async def write(story: str, settings: DemoSettings = SMALL) -> str:
    """Return the plain lines of a story."""
    stream = io.StringIO()
    assert await play(replace(settings, stories=(story,)), Plain(stream))
    return stream.getvalue()


def assert_order(text: str, *expected: str) -> None:
    """Check that these stand in a text one after the other."""
    place = 0
    for each in expected:
        found = text.find(each, place)
        assert found >= 0, f"no {each!r} in:\n{text[place:]}"
        place = found + len(each)


@in_virtual_time
async def test_a_rollout_goes_zone_by_zone() -> None:
    """SEED-001."""
    text = await write("rollout")

    assert_order(
        text,
        "0 of 6 pods ready on v2",
        "you        new template for all zones: v2",
        "operator   deletes zone-a-0: pod_outdated",
        "zone-a-0   o v1 ready -> x v1 ending",
        "; then zone-b and zone-c",
        "operator   deletes zone-a-1: pod_outdated",
        "operator   zone-a is done: rolled_out",
        "operator   deletes zone-b-0: pod_outdated",
        "operator   zone-c is done: rolled_out",
        "6 of 6 pods ready on v2",
        "6 pods replaced in",
        "at most 1 pod of a zone down at a time (1 allowed)",
        "the operator never took pods of two zones at a time",
    )
    assert "\x1b" not in text


@in_virtual_time
async def test_a_bad_revision_stops_at_the_budget_and_is_mended_first() -> None:
    """LI-10, D-14."""
    text = await write("bad-revision")

    assert_order(
        text,
        "operator   deletes zone-a-0: pod_outdated",
        "-> ! v2 broken",
        "budget_used: zone-a is waiting for zone-a-0 (CrashLoopBackOff). 1 pod left to update",
        "new template for all zones: v3",
        "deletes zone-a-0: pod_broken_and_outdated",
        "deletes zone-a-1: pod_outdated",
        "6 of 6 pods ready on v3",
        "6 pods (7 deletes) replaced in",
        "at most 1 pod of a zone down at a time (1 allowed)",
    )


@in_virtual_time
async def test_a_pod_that_dies_holds_the_rollout() -> None:
    """W-03: the operator waits for another zone, and says for which pod."""
    text = await write("pod-dies")

    assert_order(
        text,
        "operator   deletes zone-c-0: pod_outdated",
        "a fault    zone-a-0 dies",
        "zone_not_ready: zone-a has 1 of 2 pods ready (zone-a-0: ",
        "; zone-c waits",
        "a fault    zone-a-0 can run again",
        "operator   deletes zone-c-1: pod_outdated",
        "6 pods replaced in",
    )


@in_virtual_time
async def test_a_paused_zone_keeps_its_pods_until_it_is_released() -> None:
    """D-13, SEED-021: the annotation counts at once, and so does its end."""
    text = await write("paused-zone")

    assert_order(
        text,
        "you        pause zone-b",
        "paused: zone-b is paused: 2 outdated pods wait",
        "zone-a is done",
        "zone-c is done",
        "you        release zone-b",
        "deletes zone-b-0",
        "zone-b is done",
    )
    assert text.index("deletes zone-b-0") > text.index("release zone-b")


@in_virtual_time
async def test_a_forbidden_downscale_shows_the_denial() -> None:
    """SI-14."""
    text = await write("forbidden-downscale")

    assert_order(
        text,
        "you        scale zone-c to 1",
        "operator   review no-downscale, scale of zone-c: denied",
        'API server refused: admission webhook "no-downscale-demo.grafana.com" denied the request:',
        "because it has the label 'grafana.com/no-downscale=true'",
        "you        take the label no-downscale off zone-c",
        "operator   review no-downscale, scale of zone-c: allowed",
        "zone-c-1   # v1 ready -> no longer wanted",
        "1 request refused",
    )


@in_virtual_time
async def test_a_prepared_downscale_calls_the_pod_first() -> None:
    """PREP-20: one pod is called and confirms; another zone comes too early."""
    text = await write("prepared-downscale")

    assert_order(
        text,
        "you        scale zone-c to 1",
        "operator   POST zone-c-1/prepare-shutdown: HTTP 200",
        "review prepare-downscale, scale of zone-c: allowed",
        "zone-c-1   # v1 ready -> no longer wanted",
        "you        scale zone-a to 1, too",
        "review prepare-downscale, scale of zone-a: denied",
        "is labelled to wait 12h0m0s between zone downscales",
        "1 pod called to prepare",
        "1 request refused",
    )


@in_virtual_time
async def test_zones_follow_down_one_by_one_and_up_at_once() -> None:
    """SCALE-12, SI-11: people scale one zone, the operator the others."""
    text = await write("following-zones")

    assert_order(
        text,
        "you        scale zone-a to 1",
        "POST zone-a-1/prepare-shutdown: HTTP 200",
        "zone_downscaled_lately: zone-b follows zone-a: 2 → 1 in ",
        "wait 5s",
        "scale_down: zone-b follows zone-a: 2 → 1",
        "POST zone-b-1/prepare-shutdown: HTTP 200",
        "scale_down: zone-c follows zone-b: 2 → 1",
        "you        scale zone-a to 2",
        "scale_up: zone-b follows zone-a: 1 → 2",
        "scale_up: zone-c follows zone-b: 1 → 2",
        "3 pods called to prepare",
    )
    times = {
        said: float(found[1])
        for line in text.splitlines()
        if (found := TIME.match(line))
        for said in (
            "scale_down: zone-b",
            "scale_down: zone-c",
            "scale_up: zone-b",
            "scale_up: zone-c",
        )
        if said in line
    }
    assert 5 < times["scale_down: zone-c"] - times["scale_down: zone-b"] < 9
    assert times["scale_up: zone-c"] - times["scale_up: zone-b"] < 0.5
    assert "denied" not in text


@in_virtual_time
async def test_a_drained_node_waits_for_its_turn() -> None:
    """SI-01, ZPDB-65: evictions are refused while another zone moves; the next place is theirs."""
    text = await write("drained-node")

    assert_order(
        text,
        "operator   zone-a is done: rolled_out",
        "you        drain node-a1",
        "operator   deletes zone-b-0: pod_outdated",
        "you        node-a1 is drained",
        "operator   zone-c is done: rolled_out",
        "6 pods replaced in",
        "at most 1 pod of a zone down at a time (1 allowed)",
        "1 pod evicted",
        "refused",
        'admission webhook "pod-eviction-demo.grafana.com" denied the request:',
    )
    said = re.findall(r"eviction of (zone-a-[01]): (denied|allowed)", text)
    assert len(said) == len({*said}), "a client that tries again and again is reported once"
    assert {verdict for _, verdict in said} == {"denied", "allowed"}


@in_virtual_time
@pytest.mark.parametrize("zones", [1, 3])
async def test_a_failover_goes_on_where_the_first_operator_stood(zones: int) -> None:
    """LI-08, SI-01, SI-22: no pod goes while no replica acts, and no pod twice."""
    text = await write("failover", replace(SMALL, zones=zones))

    assert_order(
        text,
        "operator-1 deletes zone-a-0: pod_outdated",
        "a fault    operator-1 dies with its node",
        "the Lease  not renewed for 5 s: no replica acts until another takes it",
        "operator-2 takes the lease rollout-operator after operator-1, and acts from now on",
        f"operator-2 zone-{'abc'[zones - 1]} is done: rolled_out",
        f"{2 * zones} pods replaced in",
        "at most 1 pod of a zone down at a time (1 allowed)",
        "the operator never took pods of two zones at a time",
    )
    before, _, after = text.partition("dies with its node")
    between, _, after = after.partition("takes the lease")
    assert "deletes" not in between
    assert "operator-2" not in before
    assert "operator-1 deletes" not in after
    taken = re.findall(r"deletes (\S+):", text)
    assert len(taken) == len({*taken}) == 2 * zones


@in_virtual_time
@pytest.mark.parametrize("zones", [1, 3])
async def test_a_delayed_downscale_waits_until_pods_are_prepared_long_enough(zones: int) -> None:
    """Called first, gone when the delay is over."""
    text = await write("delayed-downscale", replace(SMALL, zones=zones))

    assert_order(
        text,
        "you        scale ReplicaTemplate ingester to 1",
        "operator   POST zone-a-1/prepare-delayed-downscale: HTTP 200",
        "delayed_by_pods: zone-a mirrors ReplicaTemplate",
        "8s are wanted",
        "zone-a-1   # v1 ready -> no longer wanted",
        f"{count(zones, 'pod')} called to prepare",
    )
    requested, *_ = re.findall(r"([0-9.]+) s  operator   POST zone-a-1", text)
    gone, *_ = re.findall(r"([0-9.]+) s  zone-a-1 .* no longer wanted", text)
    assert float(gone) - float(requested) > 7, "times are kept in whole seconds"


@in_virtual_time
@pytest.mark.parametrize("zones", [1, 3])
async def test_without_room_one_pod_is_down_until_there_is_room(zones: int) -> None:
    """LI-10: no further pod goes, and all go on once a node is back."""
    text = await write("no-room", replace(SMALL, zones=zones))

    assert_order(
        text,
        "you        cordon all nodes of zone-a",
        "operator   deletes zone-a-0: pod_outdated",
        "pods_starting: zone-a is waiting for zone-a-0 (",
        "you        uncordon node-a1",
        "operator   deletes zone-a-1: pod_outdated",
        f"{2 * zones} pods replaced in",
        "at most 1 pod of a zone down at a time (1 allowed)",
    )


@in_virtual_time
async def test_a_policy_orders_the_zones_and_its_pause_begins_anew() -> None:
    """MT-22, MT-28: the last zone first; no pod goes until a whole pause after the repair."""
    text = await write("policy")

    assert_order(
        text,
        "operator   driven_by_policy: MultiAZRollout demo/ingester replaces the pods",
        "operator   deletes zone-c-1: pod_outdated",
        "operator   batch_open: batch 1 of zone-c is open",
        "operator   interval_wait: zone-c waits for the end of a pause of 2s",
        "operator   deletes zone-c-0: pod_outdated",
        "a fault    zone-c-0 dies",
        "operator   batch_open: batch 2 of zone-c is open",
        "a fault    zone-c-0 can run again",
        "operator   deletes zone-b-1: pod_outdated",
        "operator   deletes zone-a-0: pod_outdated",
        "6 pods replaced in",
        "at most 1 pod of a zone down at a time (1 allowed)",
        "the operator never took pods of two zones at a time",
    )
    assert "an operator that looks every 5 s" not in text
    (back,) = re.findall(r"([0-9.]+) s  a fault    zone-c-0 can run again", text)
    (next_one,) = re.findall(r"([0-9.]+) s  operator   deletes zone-b-1", text)
    assert float(next_one) - float(back) > 2


@in_virtual_time
async def test_all_stories_are_printed_one_after_the_other() -> None:
    stream = io.StringIO()
    settings = replace(SMALL, stories=("forbidden-downscale", "prepared-downscale"))

    assert await play(settings, Plain(stream))
    assert_order(
        stream.getvalue(),
        "A forbidden downscale: 3 zones of 2 pods",
        "1 request refused",
        "A prepared downscale: 3 zones of 2 pods",
        "1 pod called to prepare",
    )


# The stage


class Watch(Plain):
    """A screen that keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.snapshots: list[DemoSnapshot] = []

    def show(self, snapshot: DemoSnapshot) -> None:
        self.snapshots.append(snapshot)


@in_virtual_time
async def test_what_will_not_come_is_reported_with_the_end_of_the_log() -> None:
    async with open_stage(SCENARIOS["rollout"], SMALL, Watch()) as stage:
        with pytest.raises(ScenarioStuck, match="waited in vain for a miracle") as stuck:
            await stage.until("a miracle", lambda now: False)

    assert '"reason":"up_to_date"' in str(stuck.value)


@in_virtual_time
async def test_a_demo_that_goes_on_forgets_what_was() -> None:
    screen = Watch()
    async with open_stage(SCENARIOS["rollout"], SMALL, screen) as stage:
        await SCENARIOS["rollout"].play(stage)
        stage.forget()
        assert stage.snapshot().entries == ()
        await stage.change_all(stage.next_version())
        await until_done(stage)

    assert stage.snapshot().goal == "v3"
    assert screen.snapshots[-1].elapsed < 20
    assert not any("v2" in entry.text for entry in screen.snapshots[-1].entries)


@in_virtual_time
async def test_while_no_replica_acts_the_lease_is_the_reason() -> None:
    """D-40: in the words that reasons have everywhere."""
    screen = Watch()
    async with open_stage(SCENARIOS["failover"], SMALL, screen) as stage:
        await SCENARIOS["failover"].play(stage)

    texts = [why.text for now in screen.snapshots for why in now.whys or () if not why.zone]
    found = [LEASE.match(text) for text in texts if text.startswith("lease ")]
    ages = [int(one[1]) for one in found if one is not None]
    assert len(ages) == len(found)
    assert ages == sorted(ages)
    assert ages[0] < 3
    assert ages[-1] >= 14


@in_virtual_time
async def test_what_the_policy_waits_for_is_the_reason() -> None:
    """And not that it drives the group, which is so all the time."""
    screen = Watch()
    async with open_stage(SCENARIOS["policy"], SMALL, screen) as stage:
        await SCENARIOS["policy"].play(stage)

    codes = {why.code for now in screen.snapshots for why in now.whys or () if not why.zone}
    assert {"batch_open", "interval_wait"} <= codes
    assert "driven_by_policy" not in codes


# What is written down


def took(text: str) -> float:
    found = re.search(r"replaced in ([0-9.]+) s", text)
    assert found is not None
    return float(found[1])


@in_virtual_time
async def test_why_a_zone_moves_is_not_what_it_wanted_before() -> None:
    """zone-a-0 was taken for v2, and is down still when zone-a, which is paused, wants v3."""

    def list_whys() -> list[str]:
        return [why.text for why in stage.snapshot().whys or ()]

    async with open_stage(SCENARIOS["rollout"], SMALL, Watch()) as stage:
        stage.begin_anew()
        await stage.change_all("v2")
        await stage.until("a delete", lambda now: any("wants v2" in text for text in list_whys()))
        await stage.act("pauses zone-a", pause("zone-a", is_paused=True))
        await stage.change_all("v3")
        await stage.rest(timedelta(seconds=1))

        row = stage.snapshot().rows[0]
        assert row.ready < len(row.cells), f"{row}"
        assert not any("wants v2" in text for text in list_whys())
