"""What a reader does by keys happens, and adds up to figures of its own; in virtual time."""

import io
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.demo.acts import MEANINGS
from rollout_lab.demo.command import play
from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.keys import Controls
from rollout_lab.demo.screen import Plain
from rollout_lab.demo.snapshot import DemoSnapshot, PodCell
from rollout_lab.demo.stage import TICK

from rollout_operator.cli.render import Style
from tests.virtual_time import in_virtual_time

SMALL: Final = DemoSettings(zones=2, pods=2)
# Nothing is rolled out in this story.
QUIET: Final = "forbidden-downscale"

Moment = Callable[[DemoSnapshot], bool]


def is_over(now: DemoSnapshot) -> bool:
    return bool(now.end)


def is_broken(now: DemoSnapshot) -> bool:
    return any(cell.state is PodCell.BROKEN for cell in now.cells)


class Reader(Plain):
    """A screen before which a reader presses keys, each at its moment."""

    def __init__(self, *presses: tuple[Moment, str]) -> None:
        super().__init__(io.StringIO())
        self.controls = Controls(lambda pace: None, MEANINGS)
        self.snapshots: list[DemoSnapshot] = []
        self._presses = deque(presses)

    def show(self, snapshot: DemoSnapshot) -> None:
        self.snapshots.append(snapshot)
        # A key that was not taken yet is answered first.
        if self._presses and not self.controls.has_command and self._presses[0][0](snapshot):
            self.controls.press(self._presses.popleft()[1])

    def texts(self) -> list[str]:
        """Return what was said, in order."""
        return [entry.text for entry in self.snapshots[-1].entries]


async def read(story: str, *presses: tuple[Moment, str]) -> Reader:
    """Play a story to a reader who quits when the last act is over."""
    reader = Reader(*presses, (is_over, "q"))
    assert await play(replace(SMALL, stories=(story,)), reader, reader.controls)
    return reader


def at_once(now: DemoSnapshot) -> bool:
    return not now.end


@in_virtual_time
@pytest.mark.parametrize(
    ("story", "presses", "said"),
    [
        ("rollout", "i", ["new template for all zones: v3"]),
        (QUIET, "k", ["zone-a-0 dies", "zone-a-0 can run again"]),
        (QUIET, "d", ["drain node-a1", "node-a1 is drained", "uncordon node-a1"]),
        (QUIET, "ss", ["scale zone-b to 3", "scale zone-b to 2"]),
        (QUIET, "pp", ["pause zone-b (an annotation)", "release zone-b"]),
        (QUIET, "o", ["operator-1 dies with its node", "starts operator-1 again"]),
    ],
)
async def test_each_key_does_what_its_meaning_says(
    story: str, presses: str, said: list[str]
) -> None:
    reader = await read(story, (at_once, presses[0]), *((is_over, key) for key in presses[1:]))

    texts = reader.texts()
    assert [text for text in texts if text in said] == said
    assert all(row.up == len(row.cells) for row in reader.snapshots[-1].rows)


@in_virtual_time
async def test_a_bad_image_is_rolled_back_to_the_last_good_one() -> None:
    """LI-10: the broken pod goes first."""
    reader = await read("rollout", (is_over, "b"), (is_broken, "r"))

    assert "deletes zone-a-0: pod_broken_and_outdated" in reader.texts()
    said = [text for text in reader.texts() if text.startswith("new template")]
    assert said == [f"new template for all zones: {version}" for version in ("v2", "v3", "v2")]
    assert reader.snapshots[-1].goal == "v2"


@in_virtual_time
async def test_figures_are_those_of_what_the_reader_did() -> None:
    """SI-01, also while stories are improvised."""
    reader = await read("rollout", (is_over, "i"))

    first = next(now.end for now in reader.snapshots if now.end)
    last = reader.snapshots[-1].end
    assert first[1:][0][0][0].startswith("4 pods replaced")
    assert last[0][0][0].startswith("4 pods replaced")
    assert reader.snapshots[-1].goal == "v3"


@in_virtual_time
async def test_a_story_gives_way_to_the_next_one() -> None:
    reader = Reader((at_once, "n"), (lambda now: now.title.startswith("A bad"), "q"))
    settings = replace(SMALL, stories=("rollout", "bad-revision"))

    assert await play(settings, reader, reader.controls)
    assert reader.snapshots[0].title.startswith("A rollout")
    assert reader.snapshots[-1].title.startswith("A bad revision")


@in_virtual_time
async def test_between_stories_there_is_time_to_read_and_the_next_title() -> None:
    reader = Reader((lambda now: now.title.startswith("A bad"), "q"))
    settings = replace(SMALL, stories=("rollout", "bad-revision"))

    assert await play(settings, reader, reader.controls)
    reported = [
        now for now in reader.snapshots if (("Next: A bad revision", Style.YELLOW),) in now.end
    ]
    # The clock of the picture stands: each read is a tick.
    assert len(reported) * TICK >= timedelta(seconds=5)


@in_virtual_time
async def test_after_the_last_story_comes_one_that_the_zones_can_show() -> None:
    reader = Reader((is_over, "n"), (at_once, "q"))
    settings = replace(SMALL, zones=1, stories=("bad-revision",))

    assert await play(settings, reader, reader.controls)
    assert reader.snapshots[-1].title.startswith("A paused zone")


@in_virtual_time
async def test_time_and_bars_stand_at_the_end_and_go_on_with_the_next_act() -> None:
    def has_stood(now: DemoSnapshot) -> bool:
        return is_over(now) and sum(map(is_over, reader.snapshots)) > 20

    reader = Reader((has_stood, "i"), (at_once, "q"))
    assert await play(replace(SMALL, stories=("rollout",)), reader, reader.controls)

    ends = [now for now in reader.snapshots if now.end]
    assert len(ends) > 20
    assert len({now.elapsed for now in ends}) == 1
    assert len({tuple(row.history for row in now.rows) for now in ends}) == 1
    assert reader.snapshots[-1].elapsed > ends[0].elapsed
