"""The commands of the demo: a story to be played, keys that a reader presses, figures, flags."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import timedelta
from typing import Final

from rollout_lab.demo.command import play
from rollout_lab.demo.flags import DemoSettings, read_settings
from rollout_lab.demo.screen import Picture, Screen
from rollout_lab.demo.stage import Controls, add_up, draw_totals
from rollout_lab.demo.stories import MEANINGS

from rollout_operator.config.grammar import UsageError
from rollout_operator.planning.text import Line, render_line
from tests.judge.stage import HistoryBuilder, play_records
from tests.stories import Stage

# What is recorded begins at the same time always.
SMALL: Final = DemoSettings(zones=3, pods=2, record="story")
# Why a pod goes and which pods wait, is in the codes.
_WHY: Final = re.compile(r"(deletes [\w-]+|refused (?:scaling [^:]*: )?\d+): .*")
_SHOWN: Final = (
    *("you", "a fault", "operator", "api-server", "registry", "the Lease", "kubelet", "policy"),
    *("rollout", "gate", "source", "kustomization", "check"),
)
_MOMENTS: Final[dict[str, Callable[[Picture], bool]]] = {
    "over": lambda now: bool(now.end),
    "first": lambda now: not now.end,
    "broken": lambda now: any("CrashLoop" in line.text for line in now.lines),
}


class Watch(Screen):
    """A screen that keeps what it was shown."""

    def __init__(self) -> None:
        self.pictures: list[Picture] = []

    def show(self, picture: Picture) -> None:
        self.pictures.append(picture)

    def tell(self) -> Iterator[str]:
        """Yield what happened in each story, then how it ended; of why all waits, the codes."""
        title, told, codes = "", 0, [""]
        for now in self.pictures:
            if now.title != title:
                title, told = now.title, 0
                yield now.about
            for line in now.lines[told:]:
                if line.who.startswith(_SHOWN) and not line.text.startswith("waits: "):
                    text = _WHY.sub(r"\1", f"{line.what} {line.text}".strip())
                    yield f"{line.at.total_seconds():.2f} {line.who}: {text}"
            told = len(now.lines)
            if (found := list_codes(now)) != codes:
                yield " ".join(["     ", *(code for code in found if code not in codes)]).rstrip()
                codes = found
        yield from draw(self.pictures[-1].end)


class Reader(Watch):
    """A screen before which a reader presses keys, each at its moment."""

    def __init__(self, presses: list[tuple[str, str]]) -> None:
        super().__init__()
        self.controls = Controls(lambda pace: None, MEANINGS)
        self._presses = deque(presses)

    def show(self, picture: Picture) -> None:
        super().show(picture)
        # A key that was not taken yet is answered first.
        if self._presses and not self.controls.has_command:
            moment, key = self._presses[0]
            if _MOMENTS[moment](picture) if moment in _MOMENTS else moment in picture.title:
                self._presses.popleft()
                self.controls.press(key)


class DemoStage(Stage):
    """The demo, played in virtual time, and its parts."""

    async def do_story(self, story: str, *words: str) -> str:
        """Play a story; show what is told, and how it ends. `zones=1` is another size."""
        zones = next((int(word.removeprefix("zones=")) for word in words), 3)
        screen = Watch()
        assert await play(replace(SMALL, zones=zones, stories=(story,)), screen)
        lines: list[str] = []
        for line in screen.tell():
            if line.startswith("      "):
                lines[-1] += f" [{line.strip()}]"
            elif line.strip():
                lines.append(line)
        return "\n".join(lines)

    async def do_keys(self, stories: str, *words: str) -> str:
        """Let a reader press keys, `over:i` once the story is over; show what people then did."""
        presses = [tuple(word.split(":")) for word in words]
        reader = Reader([(moment.replace("_", " "), key) for moment, key in presses])
        settings = replace(SMALL, zones=2, stories=tuple(stories.split(",")))
        assert await play(settings, reader, reader.controls)
        last = reader.pictures[-1]
        told = [
            f"{line.who}: {line.text}"
            for line in last.lines
            if line.who in ("you", "a fault", "kubelet") or "it is down" in line.text
        ]
        assert last.now is not None
        zones = last.now.groups[0].zones
        ends = [now for now in reader.pictures if now.end]
        parts = [
            f"{last.title.partition(':')[0]}: {[zone.ready for zone in zones]} ready"
            f" of {[zone.desired for zone in zones]}",
            *told,
            *draw(last.end[:1]),
            f"{len(ends)} pictures of an end, at {sorted({round(now.elapsed, 2) for now in ends})}",
        ]
        return "\n".join(parts)

    async def do_flags(self, *words: str) -> str:
        """Show the settings that are not as they are by default, or why they are refused."""
        try:
            settings = read_settings(words)
        except UsageError as refused:
            return str(refused)
        default = DemoSettings()
        return ", ".join(
            f"{one.name}={getattr(settings, one.name)!r}"
            for one in fields(settings)
            if getattr(settings, one.name) != getattr(default, one.name)
        )

    async def do_sum(self, *records: str) -> str:
        """Add up a history of zones a and b with two pods each, from its tenth second.

        Its records are as those of `tests/judge`.
        """
        words = HistoryBuilder().zones(2, "ab")
        play_records(words, ";".join(records))
        found = add_up(words.history.records, timedelta(seconds=10), limit=1)
        figures = (
            f"{found.deletes} deletes, {found.replaced} replaced, {found.zones_taken} zones taken,"
            f" {found.pods_down} down{', a promise was broken' * (not found.is_kept)}"
        )
        return "\n".join([figures, *draw(tuple(draw_totals(found)))])


def list_codes(now: Picture) -> list[str]:
    """Return the codes of what all there is waits for, or does."""
    if now.now is None:
        return []
    policies, releases = now.now.list_policies(), now.now.list_releases()
    groups = [group.code for group in now.now.groups]
    found = [*groups, *(one.code for one in policies), *(one.reason for one in releases)]
    return [str(code) for code in (*found, *now.remarks) if code]


def draw(lines: tuple[Line, ...]) -> list[str]:
    return [render_line(line, 1000, is_coloured=False) for line in lines]
