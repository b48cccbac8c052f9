"""Stories of the demo and its parts: texts of commands beside this file."""

import pytest
from rollout_lab.demo.flags import FLAGS, STORIES, render_demo_usage
from rollout_lab.demo.stage import ScenarioStuck, open_stage
from rollout_lab.demo.stories import SCENARIOS, until_done

from rollout_operator.cli.main import main
from rollout_operator.config.grammar import BOOL
from tests.lab.demo.stage import SMALL, DemoStage, Watch
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = in_virtual_time(check_stories(__file__, parts=DemoStage, stories=DemoStage))


@in_virtual_time
async def test_what_will_not_come_is_reported_with_the_end_of_the_log() -> None:
    async with open_stage(SCENARIOS["rollout"], SMALL, Watch()) as stage:
        with pytest.raises(ScenarioStuck, match="waited in vain for a miracle") as stuck:
            await stage.until("a miracle", lambda: False)

    assert "*** ready" in str(stuck.value)


@in_virtual_time
async def test_a_demo_that_goes_on_forgets_what_was() -> None:
    screen = Watch()
    async with open_stage(SCENARIOS["rollout"], SMALL, screen) as stage:
        await SCENARIOS["rollout"].play(stage)
        stage.forget()
        assert stage.picture().lines == ()
        await stage.change_all(stage.next_version())
        await until_done(stage)

    assert screen.pictures[-1].elapsed < 20
    assert any("v3" in line.text for line in screen.pictures[-1].lines)
    assert not any("v2" in line.text for line in screen.pictures[-1].lines)


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
