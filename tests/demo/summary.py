"""How the end of a rollout on a control plane looks: the figures, and the judge's word.

Pure: figures in, lines out.
"""

from collections.abc import Iterator, Sequence

from rollout_operator.lab.demo.drawing import Line, Style
from tests.demo.figures import Figures
from tests.judge.promises import Violation


def draw_summary(figures: Figures) -> list[Line]:
    """Return a line per figure: its name, its value, what it is."""
    reaction = "none" if figures.reaction is None else f"{figures.reaction * 1000:.0f} ms"
    refused = f"; {figures.refused} refused" if figures.refused else ""
    texts = (
        ("took", f"{figures.wall:.2f} s", "from the new template to the last pod counted ready"),
        ("floor", f"{figures.floor:.2f} s", "the pods' restarts alone: no rollout can be faster"),
        ("ratio", f"{figures.wall / figures.floor:.2f}", "the first by the second"),
        ("reaction", reaction, "median, from what allows a delete to the delete"),
        ("deletes", f"{figures.replaced}", f"each replaced a pod{refused}"),
        ("zones short", f"{figures.zones_short}", "the most zones that missed a pod at once"),
        (
            "pods short",
            f"{figures.pods_short}",
            f"the most pods that one zone missed at once; allowed: {figures.limit}",
        ),
    )
    lines = [_draw_figure(*text) for text in texts]
    return [*lines, *_draw_verdict(figures.broken)]


def draw_failure(trouble: str, broken: Sequence[Violation]) -> list[Line]:
    """Return the judge's word and what went wrong; of half a rollout no figure means anything."""
    lines: list[Line] = [((text, Style.RED),) for text in trouble.splitlines()]
    return [*_draw_verdict(broken), (("NOT ROLLED OUT", Style.RED),), *lines]


def _draw_verdict(broken: Sequence[Violation]) -> Iterator[Line]:
    what = "watched the store for SI-01 to SI-04 and SI-06 to SI-08"
    if not broken:
        yield _draw_figure("judge", "clean", what, Style.GREEN)
        return
    yield _draw_figure("judge", f"{len(broken)} broken", what, Style.RED)
    yield from (((f"  {one.invariant}: {one.text}", Style.RED),) for one in broken)


def _draw_figure(name: str, value: str, means: str, style: Style = Style.PLAIN) -> Line:
    return ((f"{name:<13}", Style.BOLD), (f"{value:>9}", style), (f"  {means}", Style.FAINT))
