"""Stories are read, compared and written as `tests.stories` says."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.goldens import Golden
from tests.stories import Stage, Steps, Story, read_stories

TEXT = """\
What the file is about, with a | in it.

-- two commands
say one  | one
say 'a b'| kept

# a heading
say x | x
say y
  | two
  | lines
"""


class Echo(Stage):
    waited = 0.0

    async def do_say(self, word: str) -> str:
        """Repeat it."""
        return word

    async def do_wait(self, seconds: float) -> None:
        self.waited += seconds

    def look(self) -> list[str]:
        return [f"waited {self.waited}"] * bool(self.waited)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.txt"


def read(path: Path, text: str) -> list[Story]:
    path.write_text(dedent(text))
    return [one.values[0] for one in read_stories(path)]  # type: ignore[misc]


def test_a_story_and_the_cases_of_a_table(path: Path) -> None:
    story, first, second = read(path, TEXT.replace("'a b'|", "'a b' |"))

    assert (story.title, story.commands) == ("two commands", ["say one", "say 'a b'"])
    assert (first.title, first.lines) == ("a heading: say x", (("say x", "x"),))
    assert second.lines == (("say y", "\ntwo\nlines"),)


class Brief(Echo, Steps):
    """Takes several commands a line."""


async def test_commands_are_methods_and_spans_wait() -> None:
    played = await Echo().play(["say 'a b'", "1.5m", "say x"])
    assert played == ["a b", "waited 90.0", "x; waited 90.0"]
    brief = await Brief().play(["say x; say y", "1s; say x > 2s; say z"])
    assert brief == ["x; y", "waited 3.0; z; waited 3.0"]


def test_what_differs_is_shown_or_written(path: Path) -> None:
    story, first, second = read(path, "-- s\na | 1\nlonger | 2\n\n# t\nb\nc | 3\n")

    story.check(["1", "2"], Golden(False, []))
    with pytest.raises(pytest.fail.Exception, match="4"):
        story.check(["1", "4"], Golden(False, []))
    writing = Golden(True, [])
    story.check(["1", "4\n5"], writing)
    first.check("6\n7", writing)
    second.check("3", writing)

    assert path.read_text() == (
        "-- s\na      | 1\nlonger | 4\n       | 5\n\n# t\nb | 6\n  | 7\nc | 3\n"
    )
    assert len(writing.changes) == 2
    assert [one.values[0].lines[0] for one in read_stories(path)] == [  # type: ignore[union-attr]
        ("a", "1"),
        ("b", "6\n7"),
        ("c", "3"),
    ]
