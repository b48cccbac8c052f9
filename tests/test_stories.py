"""Of stories, what differs fails, or is written; how they are read and played, all of them show."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories

TESTS: Final = Path(__file__).parent


def read(path: Path) -> list[Story]:
    return [one.values[0] for one in read_stories(path)]  # type: ignore[misc]


def test_what_differs_is_shown_or_written(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("-- s\na | 1\nlonger | 2\n\n# t\nb\nc | 3\n")
    story, first, second = read(path)

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
    assert [one.lines[0] for one in read(path)] == [("a", "1"), ("b", "6\n7"), ("c", "3")]


def test_a_module_names_each_text() -> None:
    """What none beside it or above names is read by no test, and whatever it says passes."""
    modules = {path.parent: "" for path in TESTS.glob("**/*.py")}
    for path in TESTS.glob("**/*.py"):
        modules[path.parent] += path.read_text("utf-8")
    for text in (one for one in TESTS.glob("**/*.txt") if one.parent.name != "golden"):
        name = rf'\b{text.stem}=|[/"]{text.stem}(\.txt)?"|glob\("\*\.txt"\)'
        assert any(re.search(name, modules.get(folder, "")) for folder in text.parents), text
