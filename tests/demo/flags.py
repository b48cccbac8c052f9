"""What the words in ARGS of `make demo-cluster` request: flags, their checks, the help text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
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
from rollout_operator.model.units import format_duration

MOST_PODS: Final = 20
LONGEST_START: Final = timedelta(minutes=1)
STORIES: Final = (
    "rollout",
    "bad-revision",
    "pod-dies",
    "paused-zone",
    "forbidden-downscale",
    "drained-node",
)

STORY: Final = Flag(
    name="story",
    kind=TEXT,
    default=STORIES[0],
    help=f"What is to be seen: {', '.join(STORIES)}.",
)
PODS: Final = Flag(
    name="pods", kind=INT, default=3, help=f"Pods of each of the three zones: 1 to {MOST_PODS}."
)
LIMIT: Final = Flag(
    name="limit",
    kind=INT,
    default=1,
    help="How many pods of a zone may be down: the annotation rollout-max-unavailable, and the"
    f" budget for evictions. From 1 to {MOST_PODS}.",
)
READY_AFTER: Final = Flag(
    name="ready-after",
    kind=DURATION,
    default=timedelta(seconds=1),
    help="How long a new pod takes until it is ready: more than 0s and at most"
    f" {format_duration(LONGEST_START)}.",
)
PLAIN: Final = Flag(
    name="plain", kind=BOOL, default=False, help="Print a line for each change, redraw nothing."
)
KEEP: Final = Flag(
    name="keep",
    kind=BOOL,
    default=False,
    help="Leave the control plane, the zones and the operator running after the story, say how to"
    " reach them with kubectl, and end on Ctrl-C.",
)
FLAGS: Final[tuple[Flag[Any], ...]] = (STORY, PODS, LIMIT, READY_AFTER, PLAIN, KEEP)

_HEAD: Final = """\
Usage: make demo-cluster ARGS="[flags]"

Shows the operator at work on a real control plane: etcd, API server and controller manager run as
processes of their own, and so does the operator, with the rights that its manifests grant and with
its webhooks. Only kubelets are played. Nothing is left running or written when it ends.

"""
_FOOT: Final = """
Exit codes:
  0 if the story came to its end and no promise was broken, or Ctrl-C ended -keep; 1 if not;
  2 if the command line is wrong; 130 if a signal came before the end.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is to be shown, checked."""

    story: str = STORY.default
    pods: int = PODS.default
    """In each of the zones."""
    limit: int = LIMIT.default
    """How many pods of a zone may be unavailable."""
    ready_after: timedelta = READY_AFTER.default
    is_plain: bool = False
    is_kept: bool = False
    """Whether the cluster stays after the story."""


def read_settings(argv: Sequence[str]) -> Settings:
    """Return what the words request. Raises UsageError, or HelpRequested."""
    words = parse_arguments(FLAGS, argv)
    refuse_leftovers(words)
    problem = next(_list_problems(words), None)
    if problem is not None:
        raise UsageError(problem)
    return Settings(
        story=words.value(STORY),
        pods=words.value(PODS),
        limit=words.value(LIMIT),
        ready_after=words.value(READY_AFTER),
        is_plain=words.value(PLAIN),
        is_kept=words.value(KEEP),
    )


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}{''.join(render_entries(FLAGS))}{_FOOT}"


def _list_problems(words: ParsedArguments) -> Iterator[str]:
    yield from list_wrong_choices(STORY.name, words.value(STORY), STORIES)
    for flag in (PODS, LIMIT):
        if not 1 <= words.value(flag) <= MOST_PODS:
            yield f"-{flag.name} must be from 1 to {MOST_PODS}: {words.value(flag)}"
    span = words.value(READY_AFTER)
    if not timedelta(0) < span <= LONGEST_START:
        most = format_duration(LONGEST_START)
        yield f"-{READY_AFTER.name} must be positive and at most {most}: {format_duration(span)}"
