"""What the words after `simulate` ask for: its flags, their checks, and the help text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Any, Final

from rollout_operator.config.checks import COMPATS, ORDERS
from rollout_operator.config.flags import get_flag
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
    list_wrong_choices,
    parse_arguments,
    refuse_leftovers,
)
from rollout_operator.config.usage import render_entries
from rollout_operator.lab.simulate.changes import FORMS, Change, parse_change, set_times
from rollout_operator.lab.simulate.input import STDIN
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import format_duration, format_rfc3339, parse_rfc3339, quote

# Where no pod tells how long it took.
READY_AFTER: Final = timedelta(seconds=30)
# Of any time: waits of centuries have room after it.
LAST_YEAR: Final = 9000
LONGEST_SPAN: Final = timedelta(hours=24)
LONGEST_RUN: Final = timedelta(days=7)
"""A week at rest takes some 15 s of a processor."""


LOOK_AHEAD: Final = timedelta(days=30)
LONGEST_LOOK_AHEAD: Final = timedelta(days=400)
"""As far as a schedule knows when it changes."""


@unique
class Output(StrEnum):
    """What the story is printed as."""

    TEXT = "text"
    JSON = "json"


FILE: Final[Flag[tuple[str, ...]]] = Flag(
    name="f",
    kind=FlagKind("string", lambda text: (text,) if text else (), lambda _: ""),
    default=(),
    help="File with what `kubectl get -o yaml` prints of statefulsets, pods and what else decides,"
    f" YAML or JSON; {STDIN} reads standard input. Of a folder each file counts that ends with"
    " .yaml, .yml or .json. May be given several times. Without, they are read from the cluster.",
)
_ONE_CHANGE: Final[FlagKind[tuple[Change, ...]]] = FlagKind(
    "string", lambda text: (parse_change(text),), lambda _: ""
)
CHANGE: Final[Flag[tuple[Change, ...]]] = Flag(
    name="change",
    kind=_ONE_CHANGE,
    default=(),
    help="What happens, see below; may be given several times. Without any, the operator is only"
    " started.",
)
VERSUS: Final[Flag[tuple[Change, ...]]] = Flag(
    name="versus",
    kind=replace(_ONE_CHANGE, parse=lambda text: (replace(parse_change(text), flag="versus"),)),
    default=(),
    help="What happens instead of all that -change says; may be given several times. Both are shown"
    " side by side.",
)
POLICY: Final = Flag(
    name="policy",
    kind=TEXT,
    default="",
    help="File with MultiAZRollouts, as they would be applied: each takes the place of the one of"
    " its name, or is a new one.",
)
OBEYS: Final = Flag(
    name="multi-az-rollouts.enabled",
    kind=BOOL,
    default=True,
    help="Whether the operator obeys MultiAZRollouts of the input.",
)
NAMESPACE: Final = Flag(
    name="namespace",
    kind=TEXT,
    default="",
    alias="n",
    help="Namespace to look at, also -n: that of the context, or the only one of the file.",
)
RELEASES: Final = Flag(
    name="releases",
    kind=BOOL,
    default=False,
    help="Tell of Rollouts of releases when which version would be deployed, and what holds it"
    " until then, instead of playing pods.",
)
COMPAT: Final[Flag[str]] = get_flag("releases.compat")
ORDER: Final[Flag[str]] = get_flag("releases.order")
READY: Final = Flag(
    name="ready-after",
    kind=DURATION,
    default=timedelta(0),
    help=f"How long a new pod takes until it is ready, at most {format_duration(LONGEST_SPAN)}."
    " 0 stands for the median of the rollout group's pods in the input, or"
    f" {format_duration(READY_AFTER)} where none tells. With -releases, how long Flux and"
    " HealthChecks take for a version.",
)
TERMINATES: Final = Flag(
    name="terminates-after",
    kind=DURATION,
    default=timedelta(seconds=10),
    help=f"How long a pod takes to end, at most {format_duration(LONGEST_SPAN)}.",
)
STUCK: Final[Flag[tuple[str, ...]]] = Flag(
    name="stuck",
    kind=LIST,
    default=(),
    help="A pod that stays as it is, not ready or terminating; may be given several times. Without,"
    " those that crash, wait for what they do not get, were ready before, or are three times as old"
    " as new pods are when they become ready.",
)
WEBHOOKS: Final = Flag(
    name="webhooks",
    kind=BOOL,
    default=True,
    help="Whether the operator's webhooks are registered, where the input does not tell.",
)
AS_OF: Final = Flag(
    name="as-of",
    kind=TEXT,
    default="",
    help="When the input was read, as in 2006-01-02T15:04:05Z: it counts for how long ago a zone"
    " was scaled down. By default the time of the file, or now. With -releases, from when on"
    " is looked ahead, by default from now on.",
)
UNTIL: Final = Flag(
    name="until",
    kind=DURATION,
    default=timedelta(0),
    help="Stop that long after the start, as in 10m, whatever still moves then. 0 stands for the"
    f" end of all that moves; with -releases, for {format_duration(LOOK_AHEAD)}.",
)
EXIT_CODE: Final = Flag(
    name="exit-code",
    kind=BOOL,
    default=False,
    help="Let the exit code say how it ends, see below; for scripts.",
)
SEED: Final = Flag(
    name="seed", kind=INT, default=0, help="Where the delays of the simulation come from."
)
OUTPUT: Final = Flag(
    name="o", kind=TEXT, default=str(Output.TEXT), help="Text for people, or json."
)
_OF_RELEASES: Final = (COMPAT, ORDER)
_OF_PODS: Final[tuple[Flag[Any], ...]] = (
    *(CHANGE, VERSUS, POLICY, OBEYS, TERMINATES, STUCK, WEBHOOKS, SEED),
)
FLAGS: Final[tuple[Flag[Any], ...]] = (
    FILE,
    CHANGE,
    VERSUS,
    POLICY,
    OBEYS,
    NAMESPACE,
    RELEASES,
    COMPAT,
    ORDER,
    READY,
    TERMINATES,
    STUCK,
    WEBHOOKS,
    AS_OF,
    UNTIL,
    EXIT_CODE,
    SEED,
    OUTPUT,
)

_HEAD: Final = """\
Usage: rollout-operator simulate [-f FILE] [-change "..."] [flags]

Tells what the operator would do: which pod goes when and why, what waits for what, how long it
takes, and what its webhooks would refuse. It runs the operator's own code on a copy of objects,
with simulated controllers and pods, on virtual time. They are read from the cluster of a
kubeconfig, with rights to read, or from FILE. Nothing is ever written.

  rollout-operator simulate -n mimir -change "new template"
  kubectl get statefulsets,pods,zpdb,pdb -o yaml | rollout-operator simulate -f -

With -releases it tells when which version of a Rollout would be deployed, by the schedules, gates
and HealthChecks there are:

  rollout-operator simulate -releases -n prod
  rollout-operator simulate -releases -f manifests/ -as-of 2026-01-02T15:04:05Z -until 720h

"""
_CHANGES: Final = """
Changes, in the order of their times. Each may end with a time since the start, as in "pod zone-b-0
fails at 30s"; without, it comes together with the one before it. ZONE is a StatefulSet; for a
template, an image and a pause, a rollout group stands for all of its own, and where none is named
in the first two, all are meant. POLICY is a MultiAZRollout; it may stand where a group may.
"""
_ABOUT: Final = """
  evict asks once, through the operator's webhook where it is registered. drain cordons the nodes,
  then evicts the pods of one after the other as `kubectl drain` does: again every 5s where it is
  refused with 429. "drain zone ZONE" means the nodes that pods of ZONE run on, with all their pods.
  A pod comes back to its node, or to another one where that is cordoned. With "no room for N pods"
  the next N that need a node wait, until another number is given. A killed operator is started
  again after 10s; until then the API server refuses what its webhooks have to be asked about.
"""
_FOOT: Final = """
Exit codes:
  0 if the story was told, whatever it says; 1 if the input cannot be used; 2 if the command line is
  wrong. With -exit-code the story counts as well, and 0 means that all groups end rolled out: 3 if
  something still moves at the time of -until, 4 if one stands still before it is rolled out, 5 if
  others than the operator take down more pods than a rollout may: of a zone more than its limit, or
  pods of two zones of a group at a time. With -versus the higher one of both counts. With
  -releases, 3 if a version or the end of its bake may come later than is looked ahead, 4 if one
  never comes by itself, or fails.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateSettings:
    """What is to be simulated, checked."""

    files: tuple[str, ...] = ()
    """Where objects are read; none: from the cluster."""
    changes: tuple[tuple[timedelta, Change], ...] = ()
    """With the time of each since the start."""
    versus: tuple[tuple[timedelta, Change], ...] = ()
    """Other changes to compare with; none: nothing is compared."""
    policy_file: str = ""
    """With policies that count in place of those of the input."""
    obeys: bool = OBEYS.default
    namespace: str = ""
    releases: bool = RELEASES.default
    """Whether releases are foreseen, in place of pods."""
    release_compat: str = COMPAT.default
    release_order: str = ORDER.default
    ready_after: timedelta = READY.default
    """Zero: to be learnt."""
    terminates_after: timedelta = TERMINATES.default
    stuck: tuple[str, ...] = ()
    """Pods that stay as they are."""
    webhooks: bool = WEBHOOKS.default
    as_of: datetime | None = None
    until: timedelta = UNTIL.default
    """Since the start; zero: until nothing moves."""
    has_exit_code: bool = EXIT_CODE.default
    seed: int = SEED.default
    output: Output = Output.TEXT
    arguments: ParsedArguments = field(default_factory=ParsedArguments, compare=False)
    """As they were given, with the flags by which a cluster is found."""


def read_settings(argv: Sequence[str], access: Sequence[Flag[Any]] = ()) -> SimulateSettings:
    """Return what the words after the command ask for. Raises UsageError, or HelpRequested.

    `access` are the flags by which a cluster is found.
    """
    repeated = [_gather(flag) if flag in (FILE, CHANGE, VERSUS, STUCK) else flag for flag in FLAGS]
    arguments = parse_arguments((*access, *repeated), argv)
    refuse_leftovers(arguments, "; a change stands in quotes")
    changes: tuple[Change, ...] = arguments.value(CHANGE)
    versus: tuple[Change, ...] = arguments.value(VERSUS)
    try:
        problem = next(_list_problems(arguments, access), None)
        if problem is not None:
            raise UsageError(problem)
        return SimulateSettings(
            files=arguments.value(FILE),
            changes=tuple(set_times(changes)),
            versus=tuple(set_times(versus)),
            policy_file=arguments.value(POLICY),
            obeys=arguments.value(OBEYS),
            namespace=arguments.value(NAMESPACE),
            releases=arguments.value(RELEASES),
            release_compat=arguments.value(COMPAT),
            release_order=arguments.value(ORDER),
            ready_after=arguments.value(READY),
            terminates_after=arguments.value(TERMINATES),
            stuck=arguments.value(STUCK),
            webhooks=arguments.value(WEBHOOKS),
            as_of=_read_time(arguments),
            until=arguments.value(UNTIL),
            has_exit_code=arguments.value(EXIT_CODE),
            seed=arguments.value(SEED),
            output=Output(arguments.value(OUTPUT)),
            arguments=arguments,
        )
    except UsageError:
        raise
    except InvalidInput as error:
        raise UsageError(str(error)) from None


def render_simulate_usage(access: Sequence[Flag[Any]] = ()) -> str:
    """Return the help text of the command, with the flags by which a cluster is found."""
    forms = "".join(f"  {form.shown}\n" for form in FORMS)
    return f"{_HEAD}{''.join(render_entries((*FLAGS, *access)))}{_CHANGES}{forms}{_ABOUT}{_FOOT}"


def _gather(flag: Flag[tuple[Any, ...]]) -> Flag[tuple[Any, ...]]:
    """Return a flag for one reading of words: of several, each counts."""
    gathered: list[Any] = []

    def take(text: str) -> tuple[Any, ...]:
        gathered.extend(flag.kind.parse(text))
        return tuple(gathered)

    return replace(flag, kind=replace(flag.kind, parse=take))


def _list_problems(arguments: ParsedArguments, access: Sequence[Flag[Any]]) -> Iterator[str]:
    for flag in access:
        if arguments.has(flag) and arguments.value(FILE):
            yield f"-{flag.name} says where a cluster is, and -{FILE.name} that none is read"
    if (*arguments.value(FILE), arguments.value(POLICY)).count(STDIN) > 1:
        yield f"standard input is read once, by one -{FILE.name} or -{POLICY.name}"
    yield from list_wrong_choices(OUTPUT.name, arguments.value(OUTPUT), Output)
    is_ahead = arguments.value(RELEASES)
    for flag in _OF_PODS if is_ahead else ():
        if arguments.has(flag):
            yield f"-{flag.name} is of pods: it does not go with -{RELEASES.name}"
    for flag in () if is_ahead else _OF_RELEASES:
        if arguments.has(flag):
            yield f"-{flag.name} is of releases: it goes with -{RELEASES.name}"
    if compat := arguments.value(COMPAT):
        yield from list_wrong_choices(COMPAT.name, compat, COMPATS[1:])
    yield from list_wrong_choices(ORDER.name, arguments.value(ORDER), ORDERS)
    longest = LONGEST_LOOK_AHEAD if is_ahead else LONGEST_RUN
    for flag, most in ((READY, LONGEST_SPAN), (TERMINATES, LONGEST_SPAN), (UNTIL, longest)):
        if not timedelta(0) <= arguments.value(flag) <= most:
            shown = f"at most {format_duration(most)}: {format_duration(arguments.value(flag))}"
            yield f"-{flag.name} must not be negative and {shown}"
    for change in arguments.value(CHANGE) + arguments.value(VERSUS):
        latest = min(LONGEST_SPAN, arguments.value(UNTIL) or LONGEST_SPAN)
        if change.at is not None and change.at > latest:
            yield f"-{change.flag} {quote(change.text)}: later than {format_duration(latest)}"


def _read_time(arguments: ParsedArguments) -> datetime | None:
    text = arguments.value(AS_OF)
    if not text:
        return None
    try:
        moment = parse_rfc3339(text)
    except InvalidInput as error:
        raise UsageError(f"-{AS_OF.name}: {error}") from None
    if moment.year > LAST_YEAR:
        raise UsageError(f"-{AS_OF.name}: {quote(text)} is after the year {LAST_YEAR}")
    return moment


def show_time(moment: datetime) -> str:
    """Return a time as the flag `-as-of` takes it."""
    return format_rfc3339(moment.replace(microsecond=0))
