"""`rollout-operator explain`: whether a pod may be deleted now, and what has to happen first."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from rollout_operator.cli.access import (
    ACCESS_FLAGS,
    GROUP_WORDS,
    POLICY_WORDS,
    SERVICE,
    ClusterInspector,
    be_quiet,
    not_found,
    open_inspector,
)
from rollout_operator.cli.render import OutputStream, read_output
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import Flag, ParsedArguments, UsageError, parse_mixed
from rollout_operator.model.description import Explanation
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.model.objects import Group
from rollout_operator.model.units import quote
from rollout_operator.operator.inspect import Inspection
from rollout_operator.planning.cards import EMPTY_NAME, build_gate, list_cards
from rollout_operator.planning.explain import (
    explain_driven_pod,
    explain_driven_set,
    explain_pod,
    explain_set,
)
from rollout_operator.planning.text import Line, StatusLayout, Style, draw_card, wrap_text


class ExplainedKind(StrEnum):
    """The kind of the explained object."""

    POD = "pod"
    SET = "statefulset"
    GROUP = "group"
    POLICY = "multiazrollout"
    RELEASE = "rollout"
    GATE = "rolloutgate"
    SCHEDULE = "rolloutschedule"
    CLUSTER_SCHEDULE = "clusterrolloutschedule"
    CHECK = "healthcheck"


_Explain: TypeAlias = Callable[[str], Explanation | None]
_RELEASE_KINDS: Final = (
    ExplainedKind.RELEASE,
    ExplainedKind.GATE,
    ExplainedKind.SCHEDULE,
    ExplainedKind.CLUSTER_SCHEDULE,
    ExplainedKind.CHECK,
)
_KINDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), ExplainedKind.POD),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), ExplainedKind.SET),
    **dict.fromkeys(GROUP_WORDS, ExplainedKind.GROUP),
    **dict.fromkeys(POLICY_WORDS, ExplainedKind.POLICY),
    **{word: kind for kind in _RELEASE_KINDS for word in (f"{kind}", f"{kind}s")},
}
EXPLAIN_FLAGS: Final[tuple[Flag[Any], ...]] = (*ACCESS_FLAGS, SERVICE)
_HEAD: Final = """\
Usage: rollout-operator explain POD|STATEFULSET [flags]
       rollout-operator explain pod/NAME|sts/NAME|group/NAME|mazr/NAME [flags]
       rollout-operator explain rollout/NAME|rolloutgate/NAME|rolloutschedule/NAME [flags]
       rollout-operator explain clusterrolloutschedule/NAME|healthcheck/NAME [flags]

Says whether a rollout would delete a pod now and whether an eviction of it would be allowed, and if
not, what has to happen first. It decides on the objects as the operator does, with rights to list
statefulsets and pods; a MultiAZRollout needs the right to list multiazrollouts. For a Rollout of
kuberik.com it says which version is deployed, which is next and which gates and HealthChecks hold
it back; this needs the right to list those kinds. Nothing is written.

"""
_FOOT: Final = """
Exit codes:
  0 done, 1 the object does not exist or cannot be read, 2 the command line is wrong.
"""


class ExplainedObject(msgspec.Struct, frozen=True):
    """The object that the arguments name."""

    name: str
    kind: ExplainedKind | None = None
    """None: a pod or a StatefulSet."""


def run(arguments: Sequence[str]) -> int:
    """Explain one object; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(EXPLAIN_FLAGS, arguments)
    target = read_target(parsed.leftovers)
    be_quiet()
    asyncio.run(_run(parsed, target, read_output(sys.stdout, os.environ)))
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(EXPLAIN_FLAGS))}{_FOOT}"


def read_target(arguments: Sequence[str]) -> ExplainedObject:
    """Return the object named by `NAME`, `KIND/NAME` or `KIND NAME`. Raises UsageError."""
    kind, slash, name = arguments[0].partition("/") if len(arguments) == 1 else ("", "", "")
    if len(arguments) == 2:
        kind, name = arguments
    elif len(arguments) == 1 and not slash:
        return ExplainedObject(kind)
    if not name or kind.lower() not in _KINDS:
        wrong = f", not {quote(kind)}" if name else ""
        raise UsageError(
            "name one object: NAME of a pod or StatefulSet, or KIND/NAME, where KIND is pod, sts,"
            f" group, mazr, {', '.join(_RELEASE_KINDS[:-1])} or {_RELEASE_KINDS[-1]}{wrong}"
        )
    return ExplainedObject(name, _KINDS[kind.lower()])


async def _run(arguments: ParsedArguments, target: ExplainedObject, output: OutputStream) -> None:
    # What it says of releases is in their objects.
    asks_operator = target.kind not in _RELEASE_KINDS
    async with open_inspector(arguments, asks_operator=asks_operator) as inspector:
        await explain(inspector, target, output)


async def explain(
    inspector: ClusterInspector, target: ExplainedObject, output: OutputStream
) -> None:
    """Write the explanation. Raises InvalidInput where nothing has that name, and ApiError."""
    [seen] = await inspector.inspect()
    layout = StatusLayout(width=output.width())
    lines = await _draw_target(seen, target, layout)
    for remark in seen.remarks:
        if remark != seen.observed.unread_budgets:
            lines += wrap_text(remark, layout, style=Style.YELLOW)
    output.write(lines, layout.width)


async def _draw_target(
    seen: Inspection, target: ExplainedObject, layout: StatusLayout
) -> list[Line]:
    if target.kind in {None, ExplainedKind.POD, ExplainedKind.SET}:
        return await _draw_pods(seen, target, layout)
    description = seen.description
    releases = description.list_releases()
    gates = (build_gate(release, gate) for release in releases for gate in release.gates)
    cards = [
        card for card in (*list_cards(description), *gates) if card.kind.lower() == target.kind
    ]
    for card in cards:
        if card.name == target.name:
            return [*draw_card(card, description.now, replace(layout, is_wide=True))]
    kind = "rollout group" if target.kind is ExplainedKind.GROUP else f"{target.kind}"
    where, names = f"namespace {description.namespace}", [card.name for card in cards]
    raise not_found(kind, target.name, where, names)


async def _draw_pods(seen: Inspection, target: ExplainedObject, layout: StatusLayout) -> list[Line]:
    """Return the lines about a pod or StatefulSet, first of those that a MultiAZRollout drives."""
    name = target.name
    for group, owner, of_set, of_pod in _list_explainers(seen):
        if target.kind is not ExplainedKind.POD and (explanation := of_set(name)) is not None:
            title = f"StatefulSet {name} of {owner}"
            return [((title, Style.BOLD),), *_draw(explanation, layout)]
        if target.kind is not ExplainedKind.SET and (explanation := of_pod(name)) is not None:
            title = f"pod {name} of {owner}"
            lines: list[Line] = [((title, Style.BOLD),), *_draw(explanation, layout)]
            return [*lines, *await _draw_eviction(seen, group, name, layout)]
    raise _miss(seen, target)


def _list_explainers(seen: Inspection) -> Iterator[tuple[Group, str, _Explain, _Explain]]:
    """Yield groups, each with who moves its pods, and what explains a StatefulSet or a pod."""
    for driven in seen.driven:
        group, state = driven.group, (driven.group, driven.plan, driven.key)
        of_set, of_pod = partial(explain_driven_set, *state), partial(explain_driven_pod, *state)
        yield group, f"MultiAZRollout {driven.key}", of_set, of_pod
    for name, group in seen.groups.items():
        plan = seen.plans[name]
        of_set, of_pod = partial(explain_set, group, plan), partial(explain_pod, group, plan)
        yield group, f"group {name or EMPTY_NAME}", of_set, of_pod


def _draw(explanation: Explanation, layout: StatusLayout) -> Iterator[Line]:
    style = Style.GREEN if explanation.may_go else Style.PLAIN
    yield from wrap_text(f"rollout: {explanation.answer} [{explanation.code}]", layout, style=style)
    for condition in explanation.conditions:
        yield from wrap_text(f"first: {condition.text} [{condition.code}]", layout, indent=2)
        if condition.remedy:
            yield from wrap_text(condition.remedy, layout, indent=4, style=Style.FAINT)


async def _draw_eviction(
    seen: Inspection, group: Group, name: str, layout: StatusLayout
) -> list[Line]:
    """Return lines on whether an eviction of a pod would be allowed; empty where none exists."""
    pods = (pod for zone in group.zones for pod in zone.own_pods)
    pod = next((pod for pod in pods if pod.name == name), None)
    if pod is None:
        return []
    held = await seen.assess_eviction(pod)
    if held is None and seen.observed.unread_budgets:
        return [*wrap_text(f"eviction: {seen.observed.unread_budgets}", layout, style=Style.YELLOW)]
    if held is None:
        return [(("eviction: no zone-aware budget refuses it", Style.GREEN),)]
    return [*wrap_text(f"eviction: {held.text} [{held.code}]", layout)]


def _miss(seen: Inspection, target: ExplainedObject) -> InvalidInput:
    groups = [*seen.groups.values(), *(driven.group for driven in seen.driven)]
    zones = [zone for group in groups for zone in group.zones]
    sets = sorted({zone.sts.name for zone in zones})
    pods = sorted({pod.name for zone in zones for pod in zone.own_pods})
    names = [*sets, *pods]
    if target.kind is not None:
        names = pods if target.kind is ExplainedKind.POD else sets
    where = f"a rollout group of namespace {seen.description.namespace}"
    return not_found(target.kind or "pod or statefulset", target.name, where, names)
