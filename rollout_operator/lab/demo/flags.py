"""What the words after `demo` ask for: its flags, their checks, and the help text."""

import math
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
    UsageError,
    Words,
    find_other_choice,
    parse_words,
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
_NEED_TWO_ZONES: Final = ("pod-dies", "following-zones", "drained-node")
STORIES: Final = (
    "rollout",
    "bad-revision",
    "pod-dies",
    "paused-zone",
    "forbidden-downscale",
    "prepared-downscale",
    "following-zones",
    "drained-node",
    "failover",
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
    SERVE,
    PORT,
)

_HEAD: Final = """\
Usage: rollout-operator demo [flags]

Shows the operator at work without a cluster: its own code, unmodified, on a simulated API server
with simulated controllers and pods. Nothing is sent anywhere. On a terminal the picture is redrawn
in place; elsewhere each change is a line.

"""
_FOOT: Final = """
Exit codes:
  0 if the story came to its end, or a signal ended -serve; 130 if a signal came before; 1 if the
  story did not come to its end; 2 if the command line is wrong.
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
    words = parse_words(FLAGS, argv)
    refuse_leftovers(words)
    problem = next(_find_problems(words), None)
    if problem is not None:
        raise UsageError(problem)
    story = words.value(STORY)
    return DemoSettings(
        stories=STORIES if story == ALL else (story,),
        zones=words.value(ZONES),
        pods=words.value(PODS),
        limit=words.value(LIMIT),
        ready_after=words.value(READY_AFTER),
        speed=words.value(SPEED),
        seed=words.value(SEED),
        color=Color(words.value(COLOR)),
        port=words.value(PORT) if words.value(SERVE) else None,
    )


def render_demo_usage() -> str:
    """Return the help text of the command."""
    return f"{_HEAD}{''.join(render_entries(FLAGS))}{_FOOT}"


def _find_problems(words: Words) -> Iterator[str]:
    """Yield what is wrong, in the order in which it is told; only the first is."""
    yield from find_other_choice(words, STORY, (*STORIES, ALL))
    yield from find_other_choice(words, COLOR, Color)
    yield from _check_range(words, ZONES, 1, MOST_ZONES)
    yield from _check_range(words, PODS, 1, MOST_PODS)
    yield from _check_range(words, LIMIT, 1, MOST_PODS)
    yield from _check_range(words, PORT, 0, _HIGHEST_PORT)
    if words.value(ZONES) == 1 and words.value(STORY) in (*_NEED_TWO_ZONES, ALL):
        yield f"-{STORY.name}={words.value(STORY)} needs at least 2 zones: -{ZONES.name}=1"
    if words.has(PORT) and not words.value(SERVE):
        yield f"-{PORT.name}={words.value(PORT)} needs -{SERVE.name}"
    span = words.value(READY_AFTER)
    if not timedelta(0) < span <= LONGEST_START:
        most = format_duration(LONGEST_START)
        yield f"-{READY_AFTER.name} must be positive and at most {most}: {format_duration(span)}"
    speed = words.value(SPEED)
    least, fastest = _SPEEDS
    if not (math.isfinite(speed) and least <= speed <= fastest):
        yield f"-{SPEED.name} must be from {least:g} to {fastest:g}: {speed:g}"


def _check_range(words: Words, flag: Flag[int], least: int, most: int) -> Iterator[str]:
    if not least <= words.value(flag) <= most:
        yield f"-{flag.name} must be from {least} to {most}: {words.value(flag)}"
