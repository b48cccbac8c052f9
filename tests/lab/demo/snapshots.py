"""Pictures made by hand, for tests of what is drawn."""

from collections.abc import Iterable

from rollout_lab.demo.snapshot import Cell, DemoEntry, DemoReason, DemoSnapshot, PodCell, ZoneRow

from rollout_operator.cli.render import Line, render_line

VERSIONS = {
    PodCell.OLD: "v1",
    PodCell.BROKEN: "v1",
    PodCell.ENDING: "v1",
    PodCell.GONE: "",
    PodCell.STARTING: "v2",
    PodCell.NEW: "v2",
}

OLD, ENDING, GONE, STARTING, NEW = (
    Cell(state, VERSIONS[state])
    for state in (PodCell.OLD, PodCell.ENDING, PodCell.GONE, PodCell.STARTING, PodCell.NEW)
)


def plain(lines: Iterable[Line]) -> list[str]:
    """Return lines as they look without colours."""
    return [render_line(line, 1000, is_coloured=False).rstrip() for line in lines]


def row(
    name: str, *cells: Cell, current: str = "794c7697f9", update: str = "79bf74c864"
) -> ZoneRow:
    """Return a zone that counts its ready pods."""
    ready = sum(cell.state in (PodCell.OLD, PodCell.NEW) for cell in cells)
    return ZoneRow(name=name, cells=cells, ready=ready, current=current, update=update)


def snapshot(
    *rows: ZoneRow,
    entries: tuple[DemoEntry, ...] = (),
    whys: tuple[DemoReason, ...] | None = None,
    elapsed: float = 1.44,
) -> DemoSnapshot:
    """Return a picture on its way to v2."""
    return DemoSnapshot(
        title="3 zones of 3 pods", elapsed=elapsed, goal="v2", rows=rows, entries=entries, whys=whys
    )


HALFWAY = snapshot(
    row("zone-a", NEW, STARTING, OLD), row("zone-b", OLD, OLD, OLD, current="c7bd9", update="c7bd9")
)
