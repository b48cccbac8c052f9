"""Scenarios of the comparison, as `scenarios.txt` has them, and what may differ in each.

A scenario begins at the margin with its name and title. Each line below is a step, of operations
between semicolons; what is seen after it is compared. `~` before names the fields in which both
differ, as `make prove ARGS="kuberik --record"` writes it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).parent / "scenarios.txt"
PAGE: Final = Path(__file__).parents[2] / "docs/releases-migrate.md"
_CHAPTER: Final = re.compile(r"\n## What behaves otherwise\n(.*?)\n## ", re.DOTALL)
_ROW: Final = re.compile(r"^\| (?P<what>[^|]*?) <!-- (?P<names>[a-z0-9 ]+) -->", re.MULTILINE)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is done, step by step, and in which fields both differ after it."""

    name: str
    title: str
    steps: Sequence[str]
    differing: frozenset[str] = frozenset()

    def render(self) -> str:
        differing = [f"  ~ {' '.join(sorted(self.differing))}"] if self.differing else []
        steps = [f"  {step}" for step in self.steps]
        return "\n".join((f"{self.name} {self.title}", *differing, *steps)) + "\n"


def read_scenarios(text: str) -> Sequence[Scenario]:
    return [_parse(block) for block in re.split(r"\n(?=\w)", text) if re.match(r"\w", block)]


def _parse(block: str) -> Scenario:
    (head, *lines) = block.rstrip().splitlines()
    name, _, title = head.partition(" ")
    steps = [line.strip() for line in lines if line.strip()]
    differing = [field for step in steps if step.startswith("~ ") for field in step[2:].split()]
    return Scenario(
        name=name,
        title=title,
        steps=[step for step in steps if not step.startswith("~ ")],
        differing=frozenset(differing),
    )


def write_differing(differing: Mapping[str, frozenset[str]]) -> None:
    """Write in which fields both differ, in the scenarios that were played."""
    text = FILE.read_text()
    comment, _, _ = text.partition("\n\n")
    known = [
        msgspec.structs.replace(one, differing=differing.get(one.name, one.differing))
        for one in read_scenarios(text)
    ]
    FILE.write_text(f"{comment}\n\n" + "\n".join(one.render() for one in known))


def list_rows() -> Mapping[str, str]:
    """Return which difference the page names, by the scenario that shows it."""
    (chapter,) = _CHAPTER.findall(PAGE.read_text())
    return {name: row["what"] for row in _ROW.finditer(chapter) for name in row["names"].split()}


def list_undocumented(scenarios: Sequence[Scenario], rows: Mapping[str, str]) -> Iterator[str]:
    """Yield what differs and has no row, and the rows whose scenario does not differ."""
    for one in scenarios:
        if one.differing and one.name not in rows:
            yield f"{one.name} differs, and no row of {PAGE.name} names it"
        if one.name in rows and not one.differing:
            yield f"{one.name} does not differ, but shows: {rows[one.name]}"
    for name in sorted({*rows} - {one.name for one in scenarios}):
        yield f"{name} is no scenario, but shows: {rows[name]}"
