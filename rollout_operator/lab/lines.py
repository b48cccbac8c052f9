"""Lines of a terminal: spans of text, each with a style that may be left out.

Pure. Shape and words alone say everything; what is drawn, and where, is decided elsewhere.
"""

from enum import StrEnum
from typing import Final

from rollout_operator.planning.wording import printable

# Cursor and automatic wrapping: a line that is too long must not push the others down.
BEGIN: Final = "\x1b[?25l\x1b[?7l"
END: Final = "\x1b[?7h\x1b[?25h"


class Style(StrEnum):
    """Graphic renditions; the eight colours that every terminal has."""

    PLAIN = ""
    BOLD = "1"
    FAINT = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    MAGENTA = "35"


Span = tuple[str, Style]
Line = tuple[Span, ...]
BLANK: Final[Line] = ()


def render_line(line: Line, width: int, *, is_coloured: bool) -> str:
    """Return a line as text, cut to `width` columns; what a tenant wrote commands no terminal."""
    parts = []
    for text, style in line:
        shown = printable(text)[:width]
        width -= len(shown)
        is_styled = is_coloured and style and shown
        parts.append(f"\x1b[{style}m{shown}\x1b[0m" if is_styled else shown)
    return "".join(parts)
