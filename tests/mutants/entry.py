"""What a mutant is: one deliberate error in the operator, and how it is put into a copy of it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from tests.simulation.runtime import DEFECT

PACKAGES: Final = ("rollout_operator", "lab/rollout_lab")


class OutOfDate(Exception):
    """The catalogue is out of date: a text that a mutant changes is not there exactly once."""


# By its word in the catalogue: the scenarios whose schedules run, and those whose plans run after
# them. Where none are planned, each run has hundreds of steps.
SCENARIOS: Final[Mapping[str, tuple[str, str]]] = {
    "rollouts": ("s1 s2 s3 s4 s10 walk", "s1-small s2-small"),
    "leaving": ("s1-left both-left", "s1-small s2-small"),
    # Many groups due at once, under the default rate limits.
    "crowded": ("s11", "s1-small s2-small"),
    "downscales": ("s7 s7-small", "s7-small"),
    # Where people want different counts of one set.
    "wide": ("s7-wide", "s1-small s2-small"),
    # Where counts move through the zones by themselves.
    "following": ("s5 s5-small", ""),
    "mirroring": ("s6 s6-small", ""),
    # Where a person rewrites the times of downscales, or something else writes counts as well.
    "edited": ("s5-edited s5-edited-tracked", ""),
    "contested": ("s5-contested", ""),
    "evicting": ("s8 s9 s8-two s9-two", ""),
}
# How the judge calls it where a world does not come to rest, or not in time.
NO_REST: Final = frozenset({"LI-01", "LI-02", "LI-10"})
# Promises that are seen by that alone.
SEEN_AT_REST: Final = NO_REST | {"LI-03", "LI-04"}
_PROMISE: Final = re.compile(r"\b(?:[SL]I|ROLL|SCALE|MIRR|DELAY)-\d\d\b")


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One error: `old` becomes `new` in the one place of the package where it stands.

    In which file that is, and in which function, may change without a change of the catalogue.
    """

    name: str
    old: str
    new: str
    breaks: str
    """The promises that it breaks, by id, and in a few words how. No other counts as a finding."""
    where: str = msgspec.field(name="in", default="rollouts")
    """A word of `SCENARIOS`, or scenarios."""
    profile: str = ""
    """Only schedules whose seed has this one run, where it takes one to see it at all."""

    @property
    def scenarios(self) -> list[str]:
        """Return those whose random schedules run, in turn."""
        return SCENARIOS.get(self.where, (self.where, ""))[0].split()

    @property
    def planned(self) -> list[str]:
        """Return those whose systematic plans run."""
        return SCENARIOS.get(self.where, SCENARIOS["rollouts"])[1].split()

    @property
    def wanted(self) -> frozenset[str]:
        """Return the invariants by which it may show, in the judge's words."""
        named = frozenset(_PROMISE.findall(self.breaks))
        return named | {DEFECT} | (NO_REST if named & SEEN_AT_REST else frozenset())

    def change(self, sources: Mapping[Path, str]) -> tuple[Path, str]:
        """Return the file in which its text stands, and that with the error. Raises OutOfDate."""
        files = [path for path, source in sources.items() for _ in range(source.count(self.old))]
        if len(files) != 1:
            places = ", ".join(map(str, files)) or "none"
            raise OutOfDate(
                f"the catalogue is out of date: {self.name}: not in one place of the sources,"
                f" but in {len(files)} ({places}): {self.old!r}"
            )
        return files[0], sources[files[0]].replace(self.old, self.new)

    def apply(self, folder: Path) -> Path:
        """Put the error into a copy of the checkout; return the file. Raises OutOfDate."""
        file, source = self.change(read_sources(folder))
        (folder / file).write_text(source)
        return file


def read_sources(folder: Path) -> dict[Path, str]:
    """Return the sources of a checkout's packages by their paths below it.

    The lab is among them: its processes are put together of the operator's parts.
    """
    files = (path for part in PACKAGES for path in sorted((folder / part).rglob("*.py")))
    return {path.relative_to(folder): path.read_text() for path in files}


ALL: Final = msgspec.convert(
    yaml.safe_load(Path(__file__).with_name("catalogue.yaml").read_text()), list[Mutant]
)
CATALOGUE: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in ALL}
