"""What the judge says of histories that break a promise, and of some that nearly do."""

import re
from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.judge.batches import CHECKS
from tests.judge.stage import judge
from tests.judge.verdict import NOT_JUDGED
from tests.stories import Story, read_stories

PATHS = sorted(Path(__file__).parent.glob("*.txt"))
OTHERS = ("SCALE-05", "MIRR-04", "DELAY-08", "ROLL-39")
RELEASES = ("REL-01", "REL-50", "RELB-10", "RELB-15", "RELB-35", "RELB-42")


@pytest.mark.parametrize("story", read_stories(*PATHS))
def test_verdict(story: Story, golden: Golden) -> None:
    story.check(judge(story), golden)


def test_each_promise_that_is_judged_is_broken_by_a_history() -> None:
    """And it is said of which none is."""
    texts = [path.read_text("utf-8") for path in PATHS]
    broken = {name for text in texts for name in re.findall(r"([A-Z]+-\d+) at \d", text)}
    wanted = {*(f"SI-{one:02}" for one in (*range(1, 25), 26, 27, 28))}
    wanted |= {f"LI-{one:02}" for one in range(1, 16)}
    assert wanted - broken == {*NOT_JUDGED}
    assert {*CHECKS, *OTHERS, *RELEASES} <= broken
