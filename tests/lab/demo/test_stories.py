"""Stories of the demo and its parts: texts of commands beside this file."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.demo.flags import FLAGS, STORIES, render_demo_usage
from rollout_lab.demo.objects import pause
from rollout_lab.demo.opening import open_stage
from rollout_lab.demo.scenarios import SCENARIOS, until_done
from rollout_lab.demo.stage import ScenarioStuck

from rollout_operator.cli.main import main
from rollout_operator.config.grammar import BOOL
from tests.goldens import Golden
from tests.lab.demo.stage import SMALL, DemoStage, Watch
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

LEASE: Final = re.compile(r"lease rollout-operator was renewed ([0-9]+) s ago by operator-1; ")


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await DemoStage().play(story.commands))

    run()
    story.check(found, golden)


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
    ages = [int(found[1]) for text in texts if (found := LEASE.match(text))]
    assert len(ages) == sum(text.startswith("lease ") for text in texts)
    assert ages == sorted(ages)
    assert ages[0] < 3
    assert ages[-1] >= 14


@pytest.mark.parametrize(
    ("story", "codes"),
    [
        ("policy", ["interval_wait", "batch_open"]),
        ("release", ["SomeGatesBlocking", "Deploying", "InProgress"]),
    ],
)
@in_virtual_time
async def test_what_is_waited_for_is_the_reason(story: str, codes: list[str]) -> None:
    """And not that a policy drives the group, which is so all the time."""
    screen = Watch()
    async with open_stage(SCENARIOS[story], SMALL, screen) as stage:
        await SCENARIOS[story].play(stage)

    seen = [why.code for now in screen.snapshots for why in now.whys or ()]
    last = [one for one in dict.fromkeys(seen[::-1]) if one in codes]
    assert last[::-1] == codes
    assert "driven_by_policy" not in seen


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


def test_help_names_every_flag_with_its_range_and_fits(capsys: pytest.CaptureFixture[str]) -> None:
    usage = render_demo_usage()
    assert main(["demo", "-help"]) == 0
    assert capsys.readouterr() == (usage, "")
    ends = {"zones": "1 to 8.", "pods": "1 to 21.", "speed": "0.1 to 10.", "ready-after": "1m0s."}
    for flag in FLAGS:
        word = "" if flag.kind is BOOL else f" {flag.kind.word}"
        assert f"\n  -{flag.name}{word}\n" in usage
        assert flag.help.endswith(ends.get(flag.name, ""))
    assert max(map(len, usage.splitlines())) <= 100
    assert "\n\n\n" not in usage
    assert tuple(SCENARIOS) == STORIES
