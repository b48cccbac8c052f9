"""Where a story is shown: in place on a terminal, or line by line anywhere else.

On a terminal it is what `rollout-operator status` shows, with what happens below it. A film keeps
what a terminal would show, drawn in virtual time: as a picture that moves (SVG), or as what
asciinema plays. The same flags give the same file.
"""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TextIO
from xml.sax.saxutils import escape

import msgspec
from msgspec.structs import replace

from rollout_lab.demo.flags import Color
from rollout_lab.trace.lines import TraceLine
from rollout_lab.trace.trace import render_lines
from rollout_operator.cli.render import LiveFrame, OutputStream, read_output
from rollout_operator.model.description import Description
from rollout_operator.planning.text import (
    BLANK,
    Line,
    Span,
    StatusLayout,
    Style,
    draw_status,
    render_line,
)

# Without an end of its own a line has no limit.
_ENDLESS: Final = 10**6
_PIPE_WIDTH: Final = 100
_NAMES: Final = 10
# What a line begins with: the time.
_CLOCK: Final = 10
# Of what happens; with less room than that the status is shown in short.
_LEAST_ENTRIES: Final = 6
# Pods stand apart where there is room for 21 of them.
_ROOMY: Final = 80
_MARKS: Final = dict(zip("#o~!x.", "✔●▲✖▼○", strict=True))
_ASCII: Final = str.maketrans("→─", ">-")
_WAITS: Final = "waits: "


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    elapsed: float
    """Seconds since the story began."""
    about: str = ""
    now: Description | None = None
    """As the operator describes the namespace."""
    remarks: tuple[str, ...] = ()
    """What keeps it from doing so."""
    lines: tuple[TraceLine, ...] = ()
    """What has happened."""
    end: tuple[Line, ...] = ()
    """What was shown; empty while something goes on."""
    pace: float = 1.0
    """How fast time goes; 0 while it stands."""
    keys: tuple[str, ...] = ()
    is_help: bool = False


class Screen:
    """Shows pictures. Use with `with`, which leaves a terminal as it was."""

    shows_keys = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing behind."""

    def write(self, text: str) -> None:
        """Write text as it is."""

    def show(self, picture: Picture) -> None:
        """Show what is now."""

    def finish(self, picture: Picture) -> None:
        """Show the end, which stays."""
        self.show(picture)


def choose_screen(
    stream: TextIO,
    env: Mapping[str, str],
    *,
    is_plain: bool = False,
    is_ascii: bool = False,
    color: Color = Color.AUTO,
) -> Screen:
    """Return the screen that fits: NO_COLOR takes the colours, TERM=dumb also the picture."""
    output = read_output(stream, env)
    is_ascii = is_ascii or not (stream.encoding or "utf-8").lower().startswith("utf")
    if color is not Color.AUTO:
        is_coloured = color is Color.ALWAYS
        output = replace(output, is_coloured=is_coloured)
    kind = Plain if is_plain or not output.is_terminal else Live
    return kind(output, is_ascii=is_ascii)


def draw_picture(picture: Picture, width: int, height: int, *, is_ascii: bool) -> list[Line]:
    """Return so many lines: what is now, then as much of what happened as there is room for."""
    pace = f"{picture.pace:g} times as fast  " if picture.pace else "paused  "
    clock = f"{'' if picture.pace == 1 else pace}{picture.elapsed:.1f} s"
    room = max(width - len(clock) - 1, 0)
    head: list[Line] = [
        ((f"{picture.title[:room]:{room}} ", Style.BOLD), (clock, Style.YELLOW)),
        *(((line, Style.FAINT),) for line in textwrap.wrap(picture.about, width - 1)),
        BLANK,
    ]
    foot = _draw_keys(picture, width)
    room = height - len(head) - len(foot)
    status = [*_draw_now(picture, StatusLayout(width=width), is_ascii=is_ascii)]
    if len(status) + _LEAST_ENTRIES > room:
        layout = StatusLayout(width=width, is_terse=True)
        status = [*_draw_now(picture, layout, is_ascii=is_ascii)]
    room -= len(status)
    told = [line for line in picture.lines if not line.text.startswith(_WAITS)]
    # A line has at least a row of its own.
    rows = render_lines(told[-max(room, 1) :], width, _NAMES) if room > 0 else []
    rows = rows[-room:] if room > 0 else []
    drawn = [*head, *status, *map(_draw_row, rows)][: height - len(foot)]
    drawn += [BLANK] * (height - len(drawn) - len(foot)) + foot
    return to_ascii(drawn) if is_ascii else drawn


def _draw_now(picture: Picture, layout: StatusLayout, *, is_ascii: bool) -> Iterator[Line]:
    if picture.now is not None:
        for line in draw_status(picture.now, picture.remarks, layout):
            yield line if is_ascii else tuple(_mark(line, layout.width))
        yield BLANK
    for line in picture.end:
        for row in textwrap.wrap("".join(text for text, _ in line), layout.width - 1) or [""]:
            yield ((row, line[0][1] if line else Style.PLAIN),)
    if picture.end:
        yield BLANK


def _draw_row(row: str) -> Line:
    return (row[:_CLOCK], Style.FAINT), (row[_CLOCK:], Style.PLAIN)


def _mark(line: Line, width: int) -> Iterator[Span]:
    """Yield the spans of a line, with marks for pods that are told apart at a glance."""
    gap = " " if width >= _ROOMY else ""
    for text, style in line:
        if text and text[0] in _MARKS and not text.strip(text[0]):
            yield f"{_MARKS[text[0]]}{gap}" * len(text), style
        elif text[:1] in _MARKS and text[1:2] == " " and len(line) > 1:
            yield f"{_MARKS[text[0]]}{text[1:]}", style
        else:
            yield text, style


def _draw_keys(picture: Picture, width: int) -> list[Line]:
    if picture.is_help:
        return [((f"  {key}", Style.PLAIN),) for key in picture.keys]
    return [(("  ".join(picture.keys)[: width - 1], Style.BOLD),)] if picture.keys else []


def to_ascii(lines: Iterable[Line]) -> list[Line]:
    """Return lines in nothing but ASCII, as wide as before."""
    return [tuple((_encode(text), style) for text, style in line) for line in lines]


def _encode(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode()


class _Written(Screen):
    def __init__(self, output: OutputStream, *, is_ascii: bool = False) -> None:
        self._output = output
        self._is_ascii = is_ascii

    def write(self, text: str) -> None:
        self._output.stream.write(text)
        self._output.stream.flush()


class Live(_Written):
    """Draws pictures over one another; the last of each story stays."""

    shows_keys = True

    def __init__(self, output: OutputStream, *, is_ascii: bool = False) -> None:
        super().__init__(output, is_ascii=is_ascii)
        self._frame = LiveFrame(output)
        self._drawn: tuple[str, Sequence[Line]] = ("", ())

    def __enter__(self) -> Self:
        self._frame.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._frame.__exit__(kind, error, trace)

    def show(self, picture: Picture) -> None:
        size = self._output.size()
        lines = draw_picture(picture, size.columns, size.lines - 1, is_ascii=self._is_ascii)
        title, before = self._drawn
        if title not in ("", picture.title):
            self._frame = LiveFrame(self._output)
        if lines != before:
            self._frame.draw(lines)
        self._drawn = (picture.title, lines)


class Plain(_Written):
    """Writes a line for whatever happens, in colours if they are wanted."""

    def __init__(self, output: OutputStream, *, is_ascii: bool = False) -> None:
        super().__init__(output, is_ascii=is_ascii)
        self._title = ""
        self._told = 0

    def show(self, picture: Picture) -> None:
        """Write what is new; first of all, how it begins."""
        if picture.end and not self._title:  # `finish` has written all of it
            return
        if self._title != picture.title:
            self._title, self._told = picture.title, 0
            self._write_status(picture)
        for line in picture.lines[self._told :]:
            who = f"{line.who:<{_NAMES}}"
            text = f"{line.what} {line.text}".lstrip()
            at = f"{line.at.total_seconds():>6.2f} s  "
            self._write([((at, Style.FAINT), (f"{who}  ", Style.BOLD), (text, Style.PLAIN))])
        self._told = len(picture.lines)

    def finish(self, picture: Picture) -> None:
        """Write what is new still, then how it ends."""
        self.show(picture)
        self._write([BLANK])
        self._write_status(picture)
        self._title = ""

    def _write_status(self, picture: Picture) -> None:
        head: list[Line] = [((f"{picture.title}, {picture.elapsed:.1f} s", Style.BOLD),)]
        head += [((picture.about, Style.PLAIN),)] if picture.about and not picture.end else []
        layout = StatusLayout(width=_PIPE_WIDTH)
        now = draw_status(picture.now, picture.remarks, layout) if picture.now else []
        self._write([*head, BLANK, *now, BLANK, *picture.end, *[BLANK] * bool(picture.end)])

    def _write(self, lines: Iterable[Line]) -> None:
        for line in to_ascii(lines) if self._is_ascii else lines:
            text = render_line(line, _ENDLESS, is_coloured=self._output.is_coloured)
            self.write(f"{text.rstrip()}\n")


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
