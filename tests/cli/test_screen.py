"""Lines that change on a terminal, and plain ones elsewhere."""

import io
import os

from rollout_operator.cli.render import LiveFrame, OutputStream, read_output
from rollout_operator.planning.text import Line, Style


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(number: int) -> list[Line]:
    return [((f"line {place}", Style.RED),) for place in range(number)]


def test_a_pipe_gets_80_columns_or_160_and_no_colours() -> None:
    stream = io.StringIO()
    output = read_output(stream, {})
    output.write(lines(2), output.width())

    assert (output.width(), output.width(is_wide=True)) == (80, 160)
    assert stream.getvalue() == "line 0\nline 1\n"


def test_a_frame_is_redrawn_in_place_and_never_higher_than_the_terminal() -> None:
    stream = Terminal()
    output = OutputStream(stream, True, False, lambda: os.terminal_size((20, 4)))
    with LiveFrame(output) as frame:
        frame.draw(lines(2))
        stream.seek(0)
        stream.truncate()
        frame.draw(lines(9))
        assert stream.getvalue() == (
            "\r\x1b[2Aline 0\x1b[K\nline 1\x1b[K\n... 7 more lines\x1b[K\n\x1b[J"
        )
    assert stream.getvalue().endswith("\x1b[?25h"), "the cursor is back"


def test_what_does_not_fit_on_the_terminal_is_named() -> None:
    stream = Terminal()
    output = OutputStream(stream, True, False, lambda: os.terminal_size((40, 3)))
    heads: list[Line] = [((name, Style.BOLD), ("  waiting", Style.RED)) for name in ("a", "b", "c")]
    with LiveFrame(output) as frame:
        frame.draw(
            [line for head in heads for line in (head, ((f"  {head[0][0]}-0", Style.RED),), ())]
        )
    assert "a  waiting\x1b[K\n... 8 more lines: b, c\x1b[K\n" in stream.getvalue()
