"""The picture of `rollout-operator status`: what it draws on a terminal, as SVG."""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from rollout_operator.planning.text import BLANK, Line, StatusLayout, Style, draw_status
from tests.pictures.stage import NAMESPACE, busy_operator

COLUMNS: Final = 80
FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
CELL: Final = 8.4
LEADING: Final = 19
MARGIN: Final = 16
_BACKGROUND: Final = "#0d1117"
_COLOURS: Final = {
    Style.PLAIN: "#e6edf3",
    Style.BOLD: "#ffffff",
    Style.FAINT: "#8b949e",
    Style.RED: "#ff7b72",
    Style.GREEN: "#3fb950",
    Style.YELLOW: "#d29922",
    Style.MAGENTA: "#d2a8ff",
}


async def draw_status_command() -> bytes:
    """Return the picture of a terminal of 80 columns."""
    async with busy_operator() as process:
        lines = draw_status(await process.describe(), (), StatusLayout(width=COLUMNS))
    prompt: Line = ((f"$ rollout-operator status -n {NAMESPACE}", Style.FAINT),)
    return render_svg([prompt, BLANK, *lines]).encode()


def render_svg(lines: Sequence[Line]) -> str:
    """Return lines of a terminal as a picture: each span at its own place, so that columns hold."""
    width = 2 * MARGIN + COLUMNS * CELL
    height = 2 * MARGIN + len(lines) * LEADING
    texts = "".join(_render_line(number, line) for number, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" font-family="{FONT}" font-size="14">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>\n{texts}</svg>\n'
    )


def _render_line(number: int, line: Line) -> str:
    y, column, spans = MARGIN + (number + 0.75) * LEADING, 0, ""
    for text, style in line:
        shown = text[: COLUMNS - column]
        if shown.strip():
            weight = ' font-weight="bold"' if style is Style.BOLD else ""
            spans += (
                f'<text x="{MARGIN + column * CELL:g}" y="{y:g}" fill="{_COLOURS[style]}"{weight}'
                f' textLength="{len(shown) * CELL:g}" xml:space="preserve">{escape(shown)}</text>\n'
            )
        column += len(shown)
    return spans
