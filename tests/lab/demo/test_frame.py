"""The whole terminal: each line fits, and the reason is never cut."""

import io
from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from rich.segment import Segment
from rollout_lab.demo.drawing import CELL_STYLES
from rollout_lab.demo.frame import TerminalFrame
from rollout_lab.demo.keys import SHORT
from rollout_lab.demo.live import make_console
from rollout_lab.demo.snapshot import Cell, DemoEntry, DemoReason, DemoSnapshot

from rollout_operator.cli.render import Style
from tests.lab.demo.snapshots import HALFWAY, NEW, OLD, STARTING, VERSIONS, row, snapshot

SIZES = [(80, 24), (120, 40), (200, 60)]
DENIAL = "eviction of zone-a-0: 1 pod of zone-b is not ready; the next eviction in line"
WHY = DemoReason(zone="zone-a", code="pods_starting", text="zone-a has 2 of 3 pods ready " * 6)
ENTRIES = tuple(DemoEntry(at=n, who="API server", text=f"{n}: {DENIAL}") for n in range(30))
BUSY = replace(HALFWAY, about="Look at that.", whys=(WHY,), entries=ENTRIES, keys=SHORT)


def draw(shown: DemoSnapshot, width: int, height: int, *, is_ascii: bool = False) -> list[str]:
    """Return the lines of a terminal, without colours."""
    console = make_console(io.StringIO(), is_coloured=False)
    console.size = console.size._replace(width=width, height=height)
    frame = TerminalFrame(shown, is_ascii=is_ascii, height=height)
    return [_read(line) for line in console.render_lines(frame, pad=False)]


def _read(line: Iterable[Segment]) -> str:
    return "".join(segment.text for segment in line).rstrip()


@pytest.mark.parametrize(("width", "height"), [(60, 20), *SIZES])
def test_a_picture_fills_the_terminal_and_no_more(width: int, height: int) -> None:
    lines = draw(BUSY, width, height)

    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("space pause")
    words = " ".join("".join(lines).replace("│", " ").split())
    assert words.count("zone-a has 2 of 3 pods ready") == 6, "the reason is whole"
    assert "29: eviction" in words, "the newest entry is shown"


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("pods", [1, 3, 10, 21])
def test_zones_fit_whatever_their_size(width: int, height: int, pods: int) -> None:
    states = [list(CELL_STYLES)[n % len(CELL_STYLES)] for n in range(pods)]
    cells = [Cell(state, VERSIONS[state]) for state in states]
    rows = (replace(row(name, *cells), history=(1,) * 500) for name in ("zone-a", "zone-b"))
    lines = draw(snapshot(*rows), width, height)

    assert len(lines) == height
    (first,) = (line for line in lines if line.startswith("zone-a"))
    assert f"/{pods}" in first
    assert len(first) <= width
    assert first.endswith("█")


def test_how_many_were_down_is_seen_against_the_limit() -> None:
    history = (0,) * 5 + (1,) * 5 + (2,) * 5
    shown = snapshot(replace(row("zone-a", NEW, STARTING, OLD), history=history))
    lines = draw(shown, 80, 24)

    (first,) = (line for line in lines if line.startswith("zone-a"))
    assert first.endswith("▁▅█")
    assert any(line.endswith("down, limit 1") for line in lines)


def test_the_end_takes_the_place_of_the_reason() -> None:
    lines = draw(replace(BUSY, end=((("9 pods replaced", Style.BOLD),),)), 80, 24)

    assert any("What was shown" in line for line in lines)
    assert any("9 pods replaced" in line for line in lines)
    assert not any("Why" in line for line in lines)


def test_where_only_entries_show_reasons_no_room_is_kept_for_them() -> None:
    lines = draw(replace(BUSY, whys=None), 80, 24)

    assert not any("Why" in line for line in lines)
    assert any("29: eviction" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_ascii_is_nothing_but_ascii(width: int, height: int) -> None:
    lines = draw(replace(BUSY, pace=0.0), width, height, is_ascii=True)

    assert "".join(lines).isascii()
    assert "paused" in lines[0]
