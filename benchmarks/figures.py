"""What a benchmark found out, as one line of JSON and in words.

A target that is missed is said, never enforced: what a wall clock shows depends on the machine.
"""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

# Beyond that, digits are noise.
_DIGITS: Final = 4


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number. Its name ends with its unit; without one it is a ratio or a count."""

    name: str
    value: float
    means: str
    """What was measured, from where to where."""
    at_most: float | None = None
    """The target, None where there is none."""
    at_least: float | None = None
    """The target of what is better when it is more."""

    @property
    def target(self) -> Mapping[str, float]:
        """Return the bounds that there are, by name."""
        bounds = {"at_most": self.at_most, "at_least": self.at_least}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    @property
    def is_met(self) -> bool:
        """Tell whether the target is met; without one it always is."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one benchmark."""

    benchmark: str
    setting: Mapping[str, object]
    """How large the measured world was."""
    figures: Sequence[Figure]
    machine: Mapping[str, object] = msgspec.field(default_factory=lambda: describe_machine())


def describe_machine() -> Mapping[str, object]:
    """Return what else tells how far the figures can be trusted: cores and the load on them."""
    return {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 2)}


def render_line(result: Result) -> str:
    """Return the result as one line of JSON, without its line feed."""
    targets = {
        figure.name: {**figure.target, "met": figure.is_met}
        for figure in result.figures
        if figure.target
    }
    line = {
        "benchmark": result.benchmark,
        "setting": result.setting,
        "figures": {figure.name: _rounded(figure.value) for figure in result.figures},
        "targets": targets,
        "machine": result.machine,
    }
    return msgspec.json.encode(line).decode()


def render_explanation(result: Result) -> str:
    """Return the result for people: a line a figure, and below it what the figure means."""
    lines = [result.benchmark]
    for figure in result.figures:
        lines.append(f"  {figure.name} = {_rounded(figure.value):g}{_render_target(figure)}")
        lines.append(f"      {figure.means}")
    return "\n".join(lines)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` (0..1) of the values do not exceed.

    Raises ValueError where there is none.
    """
    if not values:
        raise ValueError("a percentile of no values")
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def median(values: Sequence[float]) -> float:
    """Return the middle value. Raises statistics.StatisticsError where there is none."""
    return float(statistics.median(values))


def _render_target(figure: Figure) -> str:
    if not figure.target:
        return ""
    bounds = ", ".join(f"{name.replace('_', ' ')} {at:g}" for name, at in figure.target.items())
    return f"  (target: {bounds}; {'met' if figure.is_met else 'MISSED'})"


def _rounded(value: float) -> float:
    """Return the value with its leading digits; the ones before the point are all kept."""
    if value == 0:
        return 0.0
    return round(value, max(_DIGITS - 1 - math.floor(math.log10(abs(value))), 0))
