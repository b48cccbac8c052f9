"""Where a story is shown: in place on a terminal, or line by line anywhere else.

On a terminal it is what `rollout-operator status` shows, with what happens below it.
"""

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TextIO

import msgspec
from msgspec.structs import replace

from rollout_lab.demo.flags import Color
from rollout_lab.trace.lines import TraceLine
from rollout_lab.trace.trace import render_lines
from rollout_operator.cli.render import (
    BLANK,
    Line,
    LiveFrame,
    OutputStream,
    Span,
    StatusLayout,
    Style,
    draw_status,
    read_output,
    render_line,
)
from rollout_operator.model.description import Description

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
        if text in _MARKS:
            yield f"{_MARKS[text]}{gap}", style
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


def open_pipe(stream: TextIO) -> Plain:
    """Return a screen that writes lines without colours."""
    return Plain(OutputStream(stream, is_terminal=False, is_coloured=False, size=_no_terminal))


def _no_terminal() -> os.terminal_size:
    return os.terminal_size((_PIPE_WIDTH, 24))
