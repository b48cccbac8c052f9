"""The story of a release, in virtual time: what is seen of it, in order, and what it waits for."""

from dataclasses import replace
from typing import Final

import pytest
from rollout_lab.demo.opening import open_stage
from rollout_lab.demo.scenarios import SCENARIOS

from tests.lab.demo.test_scenarios import SMALL, Watch, assert_order, write
from tests.virtual_time import in_virtual_time

# In order.
WAITS: Final = ("SomeGatesBlocking", "Deploying", "InProgress")


@in_virtual_time
@pytest.mark.parametrize("zones", [1, 3])
async def test_a_release_goes_through_its_gate_flux_the_zones_and_a_bake(zones: int) -> None:
    """REL-01, RELB-16: in this order, and the bake begins after the last zone."""
    text = await write("release", replace(SMALL, zones=zones))

    last = "abc"[zones - 1]
    assert_order(
        text,
        "registry   has v2",
        "operator   rollout ingester: v2 is announced",
        "you        open the gate freeze",
        "you        gate freeze: is open",
        "operator   rollout ingester: deploys v2: Automatic deployment",
        "operator   source ingester: is to have v2 instead of v1",
        "Flux       source ingester: has fetched v2",
        "Flux       kustomization ingester: has applied v2",
        "operator   deletes zone-a-0: pod_outdated",
        f"operator   zone-{last} is done: rolled_out",
        "operator   check zones: is Healthy",
        "operator   rollout ingester: v2 bakes",
        "operator   rollout ingester: v2 has succeeded",
        f"{2 * zones} pods replaced in",
    )
    assert "instead of v2" not in text
    assert "v1 is announced" not in text, "what was before is no part of it"


@in_virtual_time
async def test_what_the_release_waits_for_is_the_reason() -> None:
    screen = Watch()
    async with open_stage(SCENARIOS["release"], SMALL, screen) as stage:
        await SCENARIOS["release"].play(stage)

    codes = [why.code for now in screen.snapshots for why in now.whys or ()][::-1]
    assert [*dict.fromkeys(one for one in codes if one in WAITS)] == [*reversed(WAITS)]
