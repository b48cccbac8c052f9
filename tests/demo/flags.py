"""What the words in ARGS of `make demo-cluster` request: flags, their checks, the help text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    INT,
    TEXT,
    UsageError,
    fill_fields,
    flag,
    list_wrong_choices,
    map_flags,
    parse_arguments,
    refuse_leftovers,
)
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


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is to be shown, checked."""

    story: str = flag(
        "story", TEXT, STORIES[0], "", f"What is to be seen: {', '.join(STORIES)}."
    )
    pods: int = flag(
        "pods", INT, 3, "", f"Pods of each of the three zones: 1 to {MOST_PODS}."
    )
    limit: int = flag(
        "limit", INT, 1, "",
        "How many pods of a zone may be down: the annotation rollout-max-unavailable, and the"
        f" budget for evictions. From 1 to {MOST_PODS}.",
    )
    ready_after: timedelta = flag(
        "ready-after", DURATION, timedelta(seconds=1), "",
        "How long a new pod takes until it is ready: more than 0s and at most"
        f" {format_duration(LONGEST_START)}.",
    )
    is_plain: bool = flag(
        "plain", BOOL, False, "", "Print a line for each change, redraw nothing."
    )
    is_kept: bool = flag(
        "keep", BOOL, False, "",
        "Leave the control plane, the zones and the operator running after the story, say how to"
        " reach them with kubectl, and end on Ctrl-C.",
    )
# fmt: on


FLAGS: Final = tuple(map_flags(Settings).values())


def read_settings(argv: Sequence[str]) -> Settings:
    """Return what the words request. Raises UsageError, or HelpRequested."""
    arguments = parse_arguments(FLAGS, argv)
    refuse_leftovers(arguments)
    settings = Settings(**fill_fields(Settings, arguments))
    problem = next(_list_problems(settings), None)
    if problem is not None:
        raise UsageError(problem)
    return settings


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}{''.join(render_entries(FLAGS))}{_FOOT}"


def _list_problems(settings: Settings) -> Iterator[str]:
    yield from list_wrong_choices("story", settings.story, STORIES)
    for name, pods in (("pods", settings.pods), ("limit", settings.limit)):
        if not 1 <= pods <= MOST_PODS:
            yield f"-{name} must be from 1 to {MOST_PODS}: {pods}"
    span = settings.ready_after
    if not timedelta(0) < span <= LONGEST_START:
        most = format_duration(LONGEST_START)
        yield f"-ready-after must be positive and at most {most}: {format_duration(span)}"
