"""What the words after `demo` ask for: its flags, their checks, and the help text."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    TEXT,
    Flag,
    ParsedArguments,
    UsageError,
    list_wrong_choices,
    parse_arguments,
    refuse_leftovers,
)
from rollout_operator.config.usage import render_entries
from rollout_operator.lab.demo.drawing import MOST_PODS
from rollout_operator.lab.demo.screen import Color
from rollout_operator.model.units import format_duration

# Each has a line of its own in 24.
MOST_ZONES: Final = 8
# A newcomer's minute; who wants to see slower pods has a cluster.
LONGEST_START: Final = timedelta(minutes=1)
_SPEEDS: Final = (0.1, 10.0)
_HIGHEST_PORT: Final = 65535
ALL: Final = "all"
# In these, one zone waits for another.
NEED_TWO_ZONES: Final = ("pod-dies", "following-zones", "drained-node", "policy")
STORIES: Final = (
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

STORY: Final = Flag(
    name="story",
    kind=TEXT,
    default=STORIES[0],
    help=f"What is to be seen: {', '.join(STORIES)}, or {ALL} for one after the other.",
)
ZONES: Final = Flag(
    name="zones",
    kind=INT,
    default=3,
    help=f"Zones of the rollout group, each a StatefulSet: from 1 to {MOST_ZONES}.",
)
PODS: Final = Flag(
    name="pods", kind=INT, default=3, help=f"Pods of each zone: from 1 to {MOST_PODS}."
)
LIMIT: Final = Flag(
    name="limit",
    kind=INT,
    default=1,
    help="How many pods of a zone may be down, which is the annotation rollout-max-unavailable:"
    f" from 1 to {MOST_PODS}.",
)
READY_AFTER: Final = Flag(
    name="ready-after",
    kind=DURATION,
    default=timedelta(milliseconds=1200),
    help="How long a new pod takes until it is ready: more than 0s and at most"
    f" {format_duration(LONGEST_START)}.",
)
SPEED: Final = Flag(
    name="speed",
    kind=FLOAT,
    default=1.0,
    help="How many times faster pods and people are; the operator's own pace stays:"
    f" from {_SPEEDS[0]:g} to {_SPEEDS[1]:g}.",
)
SEED: Final = Flag(
    name="seed", kind=INT, default=0, help="Where the delays of the simulation come from."
)
COLOR: Final = Flag(
    name="color",
    kind=TEXT,
    default=str(Color.AUTO),
    help="When to use colours: auto, always or never. NO_COLOR in the environment and TERM=dumb"
    " count for auto.",
)
ASCII: Final = Flag(
    name="ascii", kind=BOOL, default=False, help="Draw with nothing but ASCII characters."
)
RECORD: Final = Flag(
    name="record",
    kind=TEXT,
    default="",
    help="Play in no time, write what is seen to this file, and show nothing: a moving picture if"
    " it ends in .svg, for asciinema if it ends in .cast.",
)
SIZE: Final = Flag(
    name="size",
    kind=TEXT,
    default="100x30",
    help="Columns and lines of what is recorded: from 60x20 to 300x100. Needs -record.",
)
SERVE: Final = Flag(
    name="serve",
    kind=BOOL,
    default=False,
    help="Go on with a new rollout now and then, and serve the operator's status page, /metrics"
    " and /ready to this machine, until Ctrl-C.",
)
PORT: Final = Flag(
    name="server.port",
    kind=INT,
    default=8001,
    help="TCP port of these pages, on 127.0.0.1 only. 0 takes any free port. Needs -serve.",
)
FLAGS: Final[tuple[Flag[Any], ...]] = (
    STORY,
    ZONES,
    PODS,
    LIMIT,
    READY_AFTER,
    SPEED,
    SEED,
    COLOR,
    ASCII,
    RECORD,
    SIZE,
    SERVE,
    PORT,
)

_HEAD: Final = """\
Usage: rollout-operator demo [flags]

Shows the operator at work without a cluster: its own code, unmodified, on a simulated API server
with simulated controllers and pods. Nothing is sent anywhere. On a terminal with the library rich
(pip install 'rollout-operator[demo]') the whole of it is used; elsewhere each change is a line.

Keys, on a terminal: space stops the time, the right arrow goes on until something changes, + and -
make it faster and slower, n plays the next story, ? tells what you can do yourself, q ends it.

"""
_FOOT: Final = """
Exit codes:
  0 if the story came to its end, or q, Ctrl-C on a terminal, or a signal with -serve ended it; 130
  if a signal came before; 1 if the story did not come to its end; 2 if the command line is wrong.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What is to be shown, checked."""

    stories: tuple[str, ...] = (STORIES[0],)
    zones: int = ZONES.default
    """How many."""
    pods: int = PODS.default
    """Of each zone."""
    limit: int = LIMIT.default
    """Pods of a zone that may be down."""
    ready_after: timedelta = READY_AFTER.default
    speed: float = SPEED.default
    seed: int = SEED.default
    color: Color = Color.AUTO
    is_ascii: bool = False
    record: str = ""
    """The file that is written instead of showing anything; empty for none."""
    size: tuple[int, int] = (100, 30)
    """Columns and lines of what is recorded."""
    port: int | None = None
    """Where pages are served and new rollouts follow; None where that is not asked for."""

    def scale(self, span: timedelta) -> timedelta:
        """Return how long something takes at the speed that is asked for."""
        return span / self.speed

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the zones."""
        return tuple(f"zone-{letter}" for letter in "abcdefgh"[: self.zones])


def read_settings(argv: Sequence[str]) -> DemoSettings:
    """Return what the words after the command ask for. Raises UsageError, or HelpRequested."""
    arguments = parse_arguments(FLAGS, argv)
    refuse_leftovers(arguments)
    problem = next(_list_problems(arguments), None)
    if problem is not None:
        raise UsageError(problem)
    story = arguments.value(STORY)
    return DemoSettings(
        stories=STORIES if story == ALL else (story,),
        zones=arguments.value(ZONES),
        pods=arguments.value(PODS),
        limit=arguments.value(LIMIT),
        ready_after=arguments.value(READY_AFTER),
        speed=arguments.value(SPEED),
        seed=arguments.value(SEED),
        color=Color(arguments.value(COLOR)),
        is_ascii=arguments.value(ASCII),
        record=arguments.value(RECORD),
        size=_read_size(arguments.value(SIZE)) or (0, 0),
        port=arguments.value(PORT) if arguments.value(SERVE) else None,
    )


def render_demo_usage() -> str:
    """Return the help text of the command."""
    return f"{_HEAD}{''.join(render_entries(FLAGS))}{_FOOT}"


def _list_problems(arguments: ParsedArguments) -> Iterator[str]:
    """Yield what is wrong, in the order in which it is told; only the first is."""
    yield from list_wrong_choices(arguments, STORY, (*STORIES, ALL))
    yield from list_wrong_choices(arguments, COLOR, Color)
    yield from _check_range(arguments, ZONES, 1, MOST_ZONES)
    yield from _check_range(arguments, PODS, 1, MOST_PODS)
    yield from _check_range(arguments, LIMIT, 1, MOST_PODS)
    yield from _check_range(arguments, PORT, 0, _HIGHEST_PORT)
    if arguments.value(ZONES) == 1 and arguments.value(STORY) in (*NEED_TWO_ZONES, ALL):
        yield f"-{STORY.name}={arguments.value(STORY)} needs at least 2 zones: -{ZONES.name}=1"
    if arguments.has(PORT) and not arguments.value(SERVE):
        yield f"-{PORT.name}={arguments.value(PORT)} needs -{SERVE.name}"
    size, record = _read_size(arguments.value(SIZE)), arguments.value(RECORD)
    if size is None or not (60 <= size[0] <= 300 and 20 <= size[1] <= 100):
        yield f"-{SIZE.name} must be from 60x20 to 300x100: {arguments.value(SIZE)}"
    if arguments.has(SIZE) and not record:
        yield f"-{SIZE.name}={arguments.value(SIZE)} needs -{RECORD.name}"
    if record and not record.endswith((".svg", ".cast")):
        yield f"-{RECORD.name} must end in .svg or .cast: {record}"
    if record and arguments.value(SERVE):
        yield f"-{RECORD.name} and -{SERVE.name} exclude each other"
    span = arguments.value(READY_AFTER)
    if not timedelta(0) < span <= LONGEST_START:
        most = format_duration(LONGEST_START)
        yield f"-{READY_AFTER.name} must be positive and at most {most}: {format_duration(span)}"
    speed = arguments.value(SPEED)
    least, fastest = _SPEEDS
    if not (math.isfinite(speed) and least <= speed <= fastest):
        yield f"-{SPEED.name} must be from {least:g} to {fastest:g}: {speed:g}"


def _read_size(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", text)
    return None if match is None else (int(match[1]), int(match[2]))


def _check_range(
    arguments: ParsedArguments, flag: Flag[int], least: int, most: int
) -> Iterator[str]:
    if not least <= arguments.value(flag) <= most:
        yield f"-{flag.name} must be from {least} to {most}: {arguments.value(flag)}"
