"""The CA in webhook configurations: texts of commands beside this file, and what is no story."""

import asyncio
import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.pki.bundle import is_ours, plan_patch
from tests.goldens import Golden
from tests.pki.bundle_stage import ENCODED, NAMES, BundleStage, apply, configuration
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

FIRST = next(text for text, name in ENCODED.items() if name == "first")


@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "bundles.txt"))
def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await BundleStage(lines).play(story.commands))

    run()
    story.check(found, golden)


@given(st.lists(st.sampled_from(["none", "first", "other"]), min_size=1, max_size=6))
def test_si_20_a_patch_changes_bundles_and_nothing_else(bundles: list[str]) -> None:
    one = configuration("guard", *bundles)
    before = copy.deepcopy(asdict(one))
    patched = apply(one, plan_patch(one, FIRST, "ops", NAMES))
    assert asdict(one) == before, "W-25: what is cached is never changed"
    assert {hook.ca_bundle for hook in patched.webhooks} == {FIRST}
    assert plan_patch(patched, FIRST, "ops", NAMES) == []
    assert replace(patched, webhooks=one.webhooks) == one


def test_what_cannot_be_read_is_nobodys() -> None:
    lost = Unreadable(
        kind="ValidatingWebhookConfiguration",
        namespace="",
        name="x",
        uid=Uid("x"),
        resource_version="1",
        labels={INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"},
        error="no",
    )
    assert not is_ours(lost, "ops")


@in_virtual_time
async def test_cancelling_in_the_middle_of_a_write_leaves_nothing_behind() -> None:
    stage = BundleStage([])
    [*_, before] = await stage.play(["put guard", "run", "0.0005s"])
    await asyncio.sleep(1)
    assert (before, stage.look()) == ("guard at 0.0", [])
