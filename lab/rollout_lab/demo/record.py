"""A demo as a file: a picture that moves (SVG), or what asciinema plays.

The frames are those of a terminal, drawn in virtual time: the same flags give the same file.
"""

import io
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final
from xml.sax.saxutils import escape

from msgspec.structs import replace
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI

from rollout_lab.demo.frame import TerminalFrame
from rollout_lab.demo.live import make_console
from rollout_lab.demo.snapshot import DemoSnapshot
from rollout_operator.cli.render import Line

# How long the end is shown before the picture begins anew.
LAST_S: Final = 8.0
# Spaces that a picture keeps.
SPACES: Final = "\u00a0\u00a0"
# A character, and the edge around the picture.
CELL: Final = 8.4
LEADING: Final = 18
MARGIN: Final = 14
# One tall page of all frames, moved up by one frame at a time; each line is drawn but once.
_SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {outer} {high}" width="{outer}" height="{high}"
 font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">
<style>{styles}
@keyframes play {{ {steps} }}
#play {{ animation: play {seconds:.2f}s step-end infinite; }}
@media (prefers-reduced-motion) {{ #play {{ animation: none; transform: translateY({last}px); }} }}
</style>
<defs>
{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="{background}"/>
<svg x="{margin}" y="{margin}" width="{inner}" height="{page}"><g id="play">
{frames}</g></svg>
</svg>
"""


class Film(AbstractContextManager["Film"]):
    """A screen that keeps what it is shown. Use with `with`."""

    def __init__(self, path: str, size: tuple[int, int], *, is_ascii: bool = False) -> None:
        self._is_cast = path.endswith(".cast")
        self._size = size
        self._is_ascii = is_ascii
        self._frames: list[tuple[float, DemoSnapshot]] = []
        self._before: object = None
        # Of the stories that are over.
        self._passed = 0.0

    @property
    def shows_keys(self) -> bool:
        """Never: a file takes none."""
        return False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing behind: the file is written by `command`."""

    def write(self, text: str) -> None:
        """Leave out what is no picture."""

    def show(self, snapshot: DemoSnapshot) -> None:
        """Keep what has changed: in a file that is to be small, the clock alone is no change."""
        rows = tuple(replace(row, history=()) for row in snapshot.rows)
        state = replace(snapshot, rows=rows, elapsed=0.0)
        if state != self._before:
            self._before = state
            self._frames.append((self._passed + snapshot.elapsed, snapshot))

    def finish(self, snapshot: DemoSnapshot, summary: Sequence[Line]) -> None:
        """Keep the end."""
        self.show(replace(snapshot, end=tuple(summary)))
        self._passed += snapshot.elapsed + LAST_S

    def render(self) -> str:
        """Return the content of the file."""
        return self._render_cast() if self._is_cast else self._render_svg()

    def _console(self) -> Console:
        console = make_console(io.StringIO(), is_coloured=True)
        console.size = console.size._replace(width=self._size[0], height=self._size[1])
        console.record = True
        return console

    def _frame(self, snapshot: DemoSnapshot) -> TerminalFrame:
        return TerminalFrame(snapshot, is_ascii=self._is_ascii, height=self._size[1])

    def _render_cast(self) -> str:
        width, height = self._size
        lines: list[object] = [{"version": 2, "width": width, "height": height}]
        for at, snapshot in self._frames:
            console = self._console()
            console.print(self._frame(snapshot), end="")
            text = console.export_text(styles=True).rstrip("\n").replace("\n", "\r\n")
            lines.append([round(at, 3), "o", f"\x1b[H\x1b[2J{text}"])
        return "".join(f"{json.dumps(line)}\n" for line in lines)

    def _render_svg(self) -> str:
        drawing = _Drawing()
        console = self._console()
        frames = [
            drawing.draw(console.render_lines(self._frame(snapshot)), number * self._size[1])
            for number, (_, snapshot) in enumerate(self._frames)
        ]
        page = self._size[1] * LEADING
        begins = [0.0, *(at for at, _ in self._frames[1:])]
        return _SVG.format(
            outer=round(self._size[0] * CELL + 2 * MARGIN),
            high=page + 2 * MARGIN,
            inner=round(self._size[0] * CELL),
            page=page,
            margin=MARGIN,
            background=DIMMED_MONOKAI.background_color.hex,
            styles="".join(f"\n.{name} {{ {css} }}" for css, name in drawing.styles.items()),
            lines="".join(
                f'<g id="{name}">{line}</g>\n' for line, name in drawing.lines.items() if line
            ),
            frames="".join(frames),
            seconds=self._passed,
            last=-page * (len(frames) - 1),
            steps=" ".join(
                f"{100 * at / self._passed:.3f}% {{ transform: translateY({-number * page}px) }}"
                for number, at in enumerate(begins)
            ),
        )


class _Drawing:
    """The lines and styles of a picture, each once, and their names."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.styles: dict[str, str] = {}

    def draw(self, lines: Sequence[Sequence[Segment]], first: int) -> str:
        """Return a frame whose first line has this number."""
        texts = [self._draw_line(line) for line in lines]
        names = [self.lines.setdefault(text, f"l{len(self.lines)}") for text in texts]
        return "".join(
            f'<use href="#{name}" y="{(first + number + 0.75) * LEADING:g}"/>\n'
            for number, (name, text) in enumerate(zip(names, texts, strict=True))
            if text
        )

    def _draw_line(self, line: Sequence[Segment]) -> str:
        texts, column = "", 0
        for text, style, _ in Segment.simplify(line):
            if text.strip():
                begin = column + len(text) - len(text.lstrip())
                shown = text.strip().replace("  ", SPACES)
                texts += (
                    f'<text x="{begin * CELL:g}" textLength="{len(shown) * CELL:g}"'
                    f' class="{self._name(style or Style())}">{escape(shown)}</text>'
                )
            column += len(text)
        return texts

    def _name(self, style: Style) -> str:
        colour = style.color.get_truecolor(DIMMED_MONOKAI) if style.color else None
        fill = (colour or DIMMED_MONOKAI.foreground_color).hex
        css = f"fill: {fill};{' font-weight: bold;' if style.bold else ''}"
        return self.styles.setdefault(css, f"s{len(self.styles)}")
