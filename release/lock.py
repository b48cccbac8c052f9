"""What a lock file pins: names, versions, for which machines, and what asked for each."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker

_PIN: Final = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+?)(?: ; (?P<marker>.+?))? \\$")
_VIA: Final = re.compile(r"^    # +(?:via )?(?!via$)(?P<name>[a-z0-9-]+)(?: \(pyproject\.toml\))?$")
# As the lock calls who is locked.
ROOT_NAME: Final = "rollout-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One package at one version."""

    name: str
    version: str
    marker: str
    """Where it is installed; empty for everywhere."""
    wanted_by: tuple[str, ...]
    """Packages that need it; `ROOT_NAME` for ours."""

    def is_for(self, environment: dict[str, str]) -> bool:
        """Tell whether it is installed in an environment of markers."""
        return not self.marker or Marker(self.marker).evaluate(environment)


def read_lock(path: Path) -> list[Pin]:
    """Return what a lock file pins, in its order."""
    pins: list[Pin] = []
    wanted_by: list[str] = []
    for line in path.read_text().splitlines():
        if found := _PIN.match(line):
            wanted_by = []
            pins.append(_pin(found))
        elif pins and (asker := _VIA.match(line)):
            wanted_by.append(asker["name"])
            pins[-1] = _wanted(pins[-1], wanted_by)
    return pins


def _pin(found: re.Match[str]) -> Pin:
    marker = found["marker"] or ""
    return Pin(name=found["name"], version=found["version"], marker=marker, wanted_by=())


def _wanted(pin: Pin, by: list[str]) -> Pin:
    return Pin(name=pin.name, version=pin.version, marker=pin.marker, wanted_by=tuple(by))
