"""What the words after `demo` request: its flags, their checks, and the help text."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    TEXT,
    FlagKind,
    ParsedArguments,
    UsageError,
    fill_fields,
    flag,
    list_wrong_choices,
    map_flags,
    parse_arguments,
    refuse_leftovers,
)
from rollout_operator.model.units import format_duration

MOST_PODS: Final = 21
# Each has a line of its own in 24.
MOST_ZONES: Final = 8
# A newcomer's minute; who wants to see slower pods has a cluster.
LONGEST_START: Final = timedelta(minutes=1)
_SPEEDS: Final = (0.1, 10.0)
_HIGHEST_PORT: Final = 65535
ALL: Final = "all"
# All of them stand below one another.
_GROUP: Final = ""
# In these, one zone waits for another.
NEED_TWO_ZONES: Final = ("pod-dies", "following-zones", "drained-node", "policy")
STORIES: Final[tuple[str, ...]] = (
    "rollout",
    "bad-revision",
    "pod-dies",
    "paused-zone",
    "forbidden-downscale",
    "prepared-downscale",
    "following-zones",
    "drained-node",
    "delayed-downscale",
    "no-room",
    "failover",
    "policy",
    "release",
)


class Color(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    """On a terminal, unless the environment wants none."""
    ALWAYS = "always"
    NEVER = "never"


_STORY: Final[FlagKind[tuple[str, ...]]] = FlagKind(
    "string",
    lambda text: STORIES if text == ALL else (text,),
    lambda stories: ALL if stories == STORIES else stories[0],
)

_HEAD: Final = """\
Usage: rollout-operator demo [flags]

Shows the operator at work without a cluster: its own code, unmodified, on a simulated API server
with simulated controllers and pods. Nothing is sent anywhere. It fills a terminal; elsewhere each
change is a line.

Keys, on a terminal: space stops the time, the right arrow goes on until something changes, + and -
make it faster and slower, n plays the next story, ? tells what you can do yourself, q ends it.

"""
_FOOT: Final = """
Exit codes:
  0 if the story came to its end, or q, Ctrl-C on a terminal, or a signal with -serve ended it; 130
  if a signal came before; 1 if the story did not come to its end; 2 if the command line is wrong.
"""


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    stories: tuple[str, ...] = flag(
        "story", _STORY, STORIES[:1], _GROUP,
        f"What is to be seen: {', '.join(STORIES)}, or {ALL} for one after the other.",
    )
    zones: int = flag(
        "zones", INT, 3, _GROUP,
        f"Zones of the rollout group, each a StatefulSet: from 1 to {MOST_ZONES}.",
    )
    pods: int = flag("pods", INT, 3, _GROUP, f"Pods of each zone: from 1 to {MOST_PODS}.")
    limit: int = flag(
        "limit", INT, 1, _GROUP,
        "How many pods of a zone may be down, which is the annotation rollout-max-unavailable:"
        f" from 1 to {MOST_PODS}.",
    )
    ready_after: timedelta = flag(
        "ready-after", DURATION, timedelta(milliseconds=1200), _GROUP,
        "How long a new pod takes until it is ready: more than 0s and at most"
        f" {format_duration(LONGEST_START)}.",
    )
    speed: float = flag(
        "speed", FLOAT, 1.0, _GROUP,
        "How many times faster pods and people are; the operator's own pace stays:"
        f" from {_SPEEDS[0]:g} to {_SPEEDS[1]:g}.",
    )
    seed: int = flag("seed", INT, 0, _GROUP, "Where the delays of the simulation come from.")
    color: str = flag(
        "color", TEXT, str(Color.AUTO), _GROUP,
        "When to use colours: auto, always or never. NO_COLOR in the environment and TERM=dumb"
        " count for auto.",
    )
    is_ascii: bool = flag("ascii", BOOL, False, _GROUP, "Draw with nothing but ASCII characters.")
    record: str = flag(
        "record", TEXT, "", _GROUP,
        "Play in no time, write what is seen to this file, and show nothing: a moving picture if"
        " it ends in .svg, for asciinema if it ends in .cast.",
    )
    size: str = flag(
        "size", TEXT, "100x30", _GROUP,
        "Columns and lines of what is recorded: from 60x20 to 300x100. Needs -record.",
    )
    is_served: bool = flag(
        "serve", BOOL, False, _GROUP,
        "Go on with a new rollout now and then, and serve the operator's status page, /metrics"
        " and /ready to this machine, until Ctrl-C.",
    )
    port: int = flag(
        "server.port", INT, 8001, _GROUP,
        "TCP port of these pages, on 127.0.0.1 only. 0 takes any free port. Needs -serve.",
    )
# fmt: on

    def scale(self, span: timedelta) -> timedelta:
        """Return how long something takes at the speed that is set."""
        return span / self.speed

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"zone-{letter}" for letter in "abcdefgh"[: self.zones])

    @property
    def screen_size(self) -> tuple[int, int] | None:
        """Return the columns and lines of what is recorded, None where the size is none."""
        match = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", self.size)
        return None if match is None else (int(match[1]), int(match[2]))


_DECLARED: Final = map_flags(DemoSettings)
FLAGS: Final = tuple(_DECLARED.values())


def read_settings(argv: Sequence[str]) -> DemoSettings:
    """Return what the words after the command request. Raises UsageError, or HelpRequested."""
    arguments = parse_arguments(FLAGS, argv)
    refuse_leftovers(arguments)
    settings = DemoSettings(**fill_fields(DemoSettings, arguments))
    problem = next(_list_problems(settings, arguments), None)
    if problem is not None:
        raise UsageError(problem)
    return settings


def render_demo_usage() -> str:
    """Return the help text of the command."""
    return f"{_HEAD}{''.join(render_entries(FLAGS))}{_FOOT}"


def _list_problems(settings: DemoSettings, arguments: ParsedArguments) -> Iterator[str]:
    """Yield what is wrong, in the order in which it is told; only the first is."""
    story = _STORY.show(settings.stories)
    yield from list_wrong_choices("story", story, (*STORIES, ALL))
    yield from list_wrong_choices("color", settings.color, Color)
    yield from _check_range("zones", settings.zones, 1, MOST_ZONES)
    yield from _check_range("pods", settings.pods, 1, MOST_PODS)
    yield from _check_range("limit", settings.limit, 1, MOST_PODS)
    yield from _check_range("server.port", settings.port, 0, _HIGHEST_PORT)
    if settings.zones == 1 and story in (*NEED_TWO_ZONES, ALL):
        yield f"-story={story} needs at least 2 zones: -zones=1"
    if arguments.has(_DECLARED["port"]) and not settings.is_served:
        yield f"-server.port={settings.port} needs -serve"
    size, record = settings.screen_size, settings.record
    if size is None or not (60 <= size[0] <= 300 and 20 <= size[1] <= 100):
        yield f"-size must be from 60x20 to 300x100: {settings.size}"
    if arguments.has(_DECLARED["size"]) and not record:
        yield f"-size={settings.size} needs -record"
    if record and not record.endswith((".svg", ".cast")):
        yield f"-record must end in .svg or .cast: {record}"
    if record and settings.is_served:
        yield "-record and -serve exclude each other"
    if not timedelta(0) < settings.ready_after <= LONGEST_START:
        most, span = format_duration(LONGEST_START), format_duration(settings.ready_after)
        yield f"-ready-after must be positive and at most {most}: {span}"
    least, fastest = _SPEEDS
    if not (math.isfinite(settings.speed) and least <= settings.speed <= fastest):
        yield f"-speed must be from {least:g} to {fastest:g}: {settings.speed:g}"


def _check_range(flag: str, value: int, least: int, most: int) -> Iterator[str]:
    if not least <= value <= most:
        yield f"-{flag} must be from {least} to {most}: {value}"
