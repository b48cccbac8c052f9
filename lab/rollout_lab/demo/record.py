"""A demo as a file: a picture that moves (SVG), or what asciinema plays.

The frames are those of a terminal, drawn in virtual time: the same flags give the same file.
"""

import json
from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape

from msgspec.structs import replace

from rollout_lab.demo.screen import Picture, Screen, draw_picture
from rollout_operator.cli.render import Line, Style, render_line

# How long the end is shown before the picture begins anew.
LAST_S: Final = 8.0
# Spaces that a picture keeps.
_SPACES: Final = "\u00a0\u00a0"
FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
BACKGROUND: Final = "#0d1117"
COLOURS: Final[Mapping[Style, str]] = {
    Style.PLAIN: "#e6edf3",
    Style.BOLD: "#ffffff",
    Style.FAINT: "#8b949e",
    Style.RED: "#ff7b72",
    Style.GREEN: "#3fb950",
    Style.YELLOW: "#d29922",
    Style.MAGENTA: "#d2a8ff",
}
# A character, and the edge around the picture.
CELL: Final = 8.4
_LEADING: Final = 18
_MARGIN: Final = 14
# One tall page of all frames, moved up by one frame at a time; each line is drawn but once.
_SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {outer} {high}" width="{outer}" height="{high}"
 font-family="{font}" font-size="14">
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


class Film(Screen):
    """A screen that keeps what it is shown."""

    def __init__(self, path: str, size: tuple[int, int], *, is_ascii: bool = False) -> None:
        self._is_cast = path.endswith(".cast")
        self._width, self._height = size
        self._is_ascii = is_ascii
        self._frames: list[tuple[float, list[Line]]] = []
        self._before: object = None
        # Of the stories that are over.
        self._passed = 0.0

    def show(self, picture: Picture) -> None:
        """Keep what has changed: in a file that is to be small, the clock alone is no change."""
        still = self._draw(replace(picture, elapsed=0.0))
        if still != self._before:
            self._before = still
            self._frames.append((self._passed + picture.elapsed, self._draw(picture)))

    def finish(self, picture: Picture) -> None:
        self.show(picture)
        self._passed += picture.elapsed + LAST_S

    def _draw(self, picture: Picture) -> list[Line]:
        return draw_picture(picture, self._width, self._height, is_ascii=self._is_ascii)

    def render(self) -> str:
        return self._render_cast() if self._is_cast else self._render_svg()

    def _render_cast(self) -> str:
        rows: list[object] = [{"version": 2, "width": self._width, "height": self._height}]
        for at, lines in self._frames:
            texts = [render_line(line, self._width, is_coloured=True) for line in lines]
            rows.append([round(at, 3), "o", "\x1b[H\x1b[2J" + "\r\n".join(texts)])
        return "".join(f"{json.dumps(row)}\n" for row in rows)

    def _render_svg(self) -> str:
        names: dict[str, str] = {}
        frames = ""
        for number, (_, lines) in enumerate(self._frames):
            for row, line in enumerate(lines):
                if drawn := draw_spans(line, self._width):
                    name = names.setdefault(drawn, f"l{len(names)}")
                    y = (number * self._height + row + 0.75) * _LEADING
                    frames += f'<use href="#{name}" y="{y:g}"/>\n'
        page = self._height * _LEADING
        begins = [0.0, *(at for at, _ in self._frames[1:])]
        return _SVG.format(
            outer=round(self._width * CELL + 2 * _MARGIN),
            high=page + 2 * _MARGIN,
            inner=round(self._width * CELL),
            page=page,
            margin=_MARGIN,
            font=FONT,
            background=BACKGROUND,
            styles="".join(f"\n.{name} {{ {css} }}" for name, css in _STYLES.items()),
            lines="".join(f'<g id="{name}">{line}</g>\n' for line, name in names.items()),
            frames=frames,
            seconds=self._passed,
            last=-page * (len(self._frames) - 1),
            steps=" ".join(
                f"{100 * at / self._passed:.3f}% {{ transform: translateY({-number * page}px) }}"
                for number, at in enumerate(begins)
            ),
        )


_STYLES: Final = {
    f"s{style.name.lower()}": f"fill: {colour};{' font-weight: bold;' * (style is Style.BOLD)}"
    for style, colour in COLOURS.items()
}


def draw_spans(line: Line, columns: int, more: str = "") -> str:
    """Return a line as texts, each at its own place, so that columns hold."""
    texts, column = "", 0
    for text, style in line:
        cut = text[: columns - column]
        if shown := cut.strip():
            begin = column + len(cut) - len(cut.lstrip())
            texts += (
                f'<text x="{begin * CELL:g}" textLength="{len(shown) * CELL:g}"{more}'
                f' class="s{style.name.lower()}">{escape(shown.replace("  ", _SPACES))}</text>'
            )
        column += len(cut)
    return texts
