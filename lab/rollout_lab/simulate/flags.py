"""What the words after `simulate` request: its flags, their checks, and the help text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Any, Final

from msgspec.structs import replace

from rollout_lab.simulate.changes import FORMS, Change, parse_change, set_times
from rollout_operator.cli.dumps import STDIN
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    INT,
    LIST,
    TEXT,
    Flag,
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
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import format_duration, format_rfc3339, parse_rfc3339, quote

# Where no pod tells how long it took.
READY_AFTER: Final = timedelta(seconds=30)
# Of any time: waits of centuries have room after it.
LAST_YEAR: Final = 9000
LONGEST_SPAN: Final = timedelta(hours=24)
POLICY: Final = "policy"
LONGEST_RUN: Final = timedelta(days=7)
"""A week at rest takes some 15 s of a processor."""


@unique
class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


# Each word counts: `_gather` puts those of one command line together.
_FILES: Final[FlagKind[tuple[str, ...]]] = FlagKind(
    "string", lambda text: (text,) if text else (), lambda _: ""
)
_CHANGES: Final[FlagKind[tuple[Any, ...]]] = FlagKind(
    "string", lambda text: (parse_change(text),), lambda _: ""
)
_OTHER_CHANGES: Final = replace(
    _CHANGES, parse=lambda text: (replace(parse_change(text), flag="versus"),)
)
_REPEATED: Final = ("files", "changes", "versus", "stuck")
# Converted once all else is known to be right.
_MOMENT: Final[FlagKind[Any]] = replace(TEXT, show=lambda _: "")
_OUTPUT: Final[FlagKind[Any]] = TEXT

_HEAD: Final = """\
Usage: rollout-operator simulate [-f FILE] [-change "..."] [flags]

Tells what the operator would do: which pod goes when and why, what waits for what, how long it
takes, and what its webhooks would refuse. It runs the operator's own code on a copy of objects,
with simulated controllers and pods, on virtual time. They are read from the cluster of a
kubeconfig, with rights to read, or from FILE. Nothing is ever written.

  rollout-operator simulate -n mimir -change "new template"
  kubectl get statefulsets,pods,zpdb,pdb -o yaml | rollout-operator simulate -f -

"""
_ABOUT_CHANGES: Final = """
Changes, in the order of their times. Each may end with a time since the start, as in "pod zone-b-0
fails at 30s"; without, it comes together with the change before it. ZONE is a StatefulSet; for a
template, an image and a pause, a rollout group stands for all of its own, and where none is named
in the first two, all are meant. POLICY is a MultiAZRollout; it may stand where a group may.
"""
_ABOUT: Final = """
  evict tries once, through the operator's webhook where it is registered. drain cordons the nodes,
  then evicts the pods of one after the other as `kubectl drain` does: again every 5s where it is
  refused with 429. "drain zone ZONE" means the nodes that pods of ZONE run on, with all their pods.
  A pod comes back to its node, or to another where that is cordoned. With "no room for N pods"
  the next N that need a node wait, until another number is given. A killed operator is started
  again after 10s; until then the API server refuses what its webhooks have to review.
  No health check between zones asks a server: all checks of the RolloutHealthCheck NAME pass, until
  "gate NAME is failing" or "is unknown", where there is no answer; its own policies say what then.
"""
_FOOT: Final = """
Exit codes:
  0 if the story was told, whatever it says; 1 if the input cannot be used; 2 if the command line is
  wrong. With -exit-code the story counts as well, and 0 means that all groups end rolled out: 3 if
  something still moves at the time of -until, 4 if one stands still before it is rolled out, 5 if
  others than the operator take down more pods than a rollout may: of a zone more than its limit, or
  pods of two zones of a group at a time. With -versus the higher of both counts.
"""


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateSettings:
    """What is to be simulated, checked."""

    files: tuple[str, ...] = flag(
        "f", _FILES, (), "",
        "File with what `kubectl get -o yaml` prints of statefulsets, pods and what else decides,"
        f" YAML or JSON; {STDIN} reads standard input. Of a folder each file counts that ends with"
        " .yaml, .yml or .json. May be given several times. Without, they are read from the"
        " cluster.",
    )
    changes: tuple[tuple[timedelta, Change], ...] = flag(
        "change", _CHANGES, (), "",
        "What happens, see below; may be given several times. Without any, the operator is only"
        " started.",
    )
    """With the time of each since the start."""
    versus: tuple[tuple[timedelta, Change], ...] = flag(
        "versus", _OTHER_CHANGES, (), "",
        "What happens instead of all that -change says; may be given several times. Both are shown"
        " side by side.",
    )
    policy_file: str = flag(
        POLICY, TEXT, "", "",
        "File with MultiAZRollouts, as they would be applied: each takes the place of the policy"
        " of its name, or is a new policy.",
    )
    obeys: bool = flag(
        "multi-az-rollouts.enabled", BOOL, True, "",
        "Whether the operator obeys MultiAZRollouts of the input.",
    )
    namespace: str = flag(
        "namespace", TEXT, "", "",
        "Namespace to look at, also -n: that of the context, or the only namespace of the file.",
        alias="n",
    )
    ready_after: timedelta = flag(
        "ready-after", DURATION, timedelta(0), "",
        f"How long a new pod takes until it is ready, at most {format_duration(LONGEST_SPAN)}."
        " 0 stands for the median of the rollout group's pods in the input, or"
        f" {format_duration(READY_AFTER)} where none tells.",
    )
    terminates_after: timedelta = flag(
        "terminates-after", DURATION, timedelta(seconds=10), "",
        f"How long a pod takes to end, at most {format_duration(LONGEST_SPAN)}.",
    )
    stuck: tuple[str, ...] = flag(
        "stuck", LIST, (), "",
        "A pod that stays as it is, not ready or terminating; may be given several times. Without,"
        " those that crash, wait for what they do not get, were ready before, or are three times as"
        " old as new pods are when they become ready.",
    )
    webhooks: bool = flag(
        "webhooks", BOOL, True, "",
        "Whether the operator's webhooks are registered, where the input does not tell.",
    )
    as_of: datetime | None = flag(
        "as-of", _MOMENT, None, "",
        "When the input was read, as in 2006-01-02T15:04:05Z: it counts for how long ago a zone"
        " was scaled down. By default the time of the file, or now.",
    )
    until: timedelta = flag(
        "until", DURATION, timedelta(0), "",
        "Stop that long after the start, as in 10m, whatever still moves then. 0 stands for the"
        " end of all that moves.",
    )
    has_exit_code: bool = flag(
        "exit-code", BOOL, False, "", "Let the exit code say how it ends, see below; for scripts."
    )
    seed: int = flag("seed", INT, 0, "", "Where the delays of the simulation come from.")
    output: Output = flag("o", _OUTPUT, Output.TEXT, "", "Text for people, or json.")
    arguments: ParsedArguments = field(default_factory=ParsedArguments, compare=False)
    """As they were given, with the flags by which a cluster is found."""
# fmt: on


_DECLARED: Final = map_flags(SimulateSettings)
FLAGS: Final = tuple(_DECLARED.values())


def read_settings(argv: Sequence[str], access: Sequence[Flag[Any]] = ()) -> SimulateSettings:
    """Return what the words after the command request. Raises UsageError, or HelpRequested.

    `access` are the flags by which a cluster is found.
    """
    repeated = [_gather(each) if name in _REPEATED else each for name, each in _DECLARED.items()]
    arguments = parse_arguments((*access, *repeated), argv)
    refuse_leftovers(arguments, "; a change stands in quotes, a file after -f")
    given = fill_fields(SimulateSettings, arguments)
    problem = next(_list_problems(given, arguments, access), None)
    if problem is not None:
        raise UsageError(problem)
    try:
        given["changes"] = tuple(set_times(given["changes"]))
        given["versus"] = tuple(set_times(given["versus"]))
    except InvalidInput as error:
        raise UsageError(str(error)) from None
    given |= {"as_of": _parse_moment(given["as_of"]), "output": Output(given["output"])}
    return SimulateSettings(**given, arguments=arguments)


def render_simulate_usage(access: Sequence[Flag[Any]] = ()) -> str:
    """Return the help text of the command, with the flags by which a cluster is found."""
    forms = "".join(f"  {form.shown}\n" for form in FORMS)
    return (
        f"{_HEAD}{''.join(render_entries((*FLAGS, *access)))}{_ABOUT_CHANGES}{forms}{_ABOUT}{_FOOT}"
    )


def _gather(gathering: Flag[Any]) -> Flag[Any]:
    """Return a flag for one reading of words: of several, each counts."""
    gathered: list[Any] = []

    def take(text: str) -> tuple[Any, ...]:
        gathered.extend(gathering.kind.parse(text))
        return tuple(gathered)

    return replace(gathering, kind=replace(gathering.kind, parse=take))


def _list_problems(
    given: Mapping[str, Any], arguments: ParsedArguments, access: Sequence[Flag[Any]]
) -> Iterator[str]:
    for each in access:
        if arguments.has(each) and given["files"]:
            yield f"-f reads no cluster: leave out -{each.name}"
    if (*given["files"], given["policy_file"]).count(STDIN) > 1:
        yield f"standard input is read once, by one -f or -{POLICY}"
    yield from list_wrong_choices("o", given["output"], Output)
    for name, most in (
        ("ready_after", LONGEST_SPAN),
        ("terminates_after", LONGEST_SPAN),
        ("until", LONGEST_RUN),
    ):
        if not timedelta(0) <= given[name] <= most:
            shown = f"{format_duration(most)}: {format_duration(given[name])}"
            yield f"-{_DECLARED[name].name} must be between 0s and {shown}"
    latest = min(LONGEST_SPAN, given["until"] or LONGEST_SPAN)
    for change in given["changes"] + given["versus"]:
        if change.at is not None and change.at > latest:
            yield f"-{change.flag} {quote(change.text)}: later than {format_duration(latest)}"


def _parse_moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = parse_rfc3339(text)
    except InvalidInput as error:
        raise UsageError(f"-as-of: {error}") from None
    if moment.year > LAST_YEAR:
        raise UsageError(f"-as-of: {quote(text)} is after the year {LAST_YEAR}")
    return moment


def show_time(moment: datetime) -> str:
    return format_rfc3339(moment.replace(microsecond=0))
