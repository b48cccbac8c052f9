"""`rollout-operator explain`: whether a pod may go now, and what would have to happen first."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_operator.cli.access import (
    ACCESS_FLAGS,
    GROUP_WORDS,
    POLICY_WORDS,
    Named,
    be_quiet,
    describe_miss,
    open_inspector,
    suggest,
)
from rollout_operator.cli.render import (
    Line,
    OutputStream,
    StatusLayout,
    Style,
    draw_checks,
    draw_gate,
    draw_group,
    draw_policy,
    draw_release,
    draw_schedules,
    read_output,
    wrap_text,
)
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import Flag, ParsedArguments, UsageError, parse_mixed
from rollout_operator.model.description import Description, Explanation
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.model.objects import Group, Pod
from rollout_operator.operator.inspect import Inspection
from rollout_operator.planning.explain import (
    explain_driven_pod,
    explain_driven_set,
    explain_pod,
    explain_set,
)


class ExplainedKind(StrEnum):
    """The kind of the explained object, as the API names it."""

    POD = "pod"
    SET = "statefulset"
    GROUP = "group"
    POLICY = "multiazrollout"
    RELEASE = "rollout"
    GATE = "rolloutgate"
    SCHEDULE = "rolloutschedule"
    CLUSTER_SCHEDULE = "clusterrolloutschedule"
    CHECK = "healthcheck"


EXPLAIN_FLAGS: Final[tuple[Flag[Any], ...]] = ACCESS_FLAGS
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
_HEAD: Final = """\
Usage: rollout-operator explain POD|STATEFULSET [flags]
       rollout-operator explain pod/NAME|sts/NAME|group/NAME|mazr/NAME [flags]
       rollout-operator explain rollout/NAME|rolloutgate/NAME|rolloutschedule/NAME [flags]
       rollout-operator explain clusterrolloutschedule/NAME|healthcheck/NAME [flags]

Says whether a rollout deletes a pod now and whether an eviction of it would be allowed, and what
has to happen first if not. It decides on the objects as the operator does, with rights to list
statefulsets and pods. What a MultiAZRollout waits for needs the right to list multiazrollouts.
Of a Rollout of kuberik.com it says which version is deployed, which comes next and what holds that
back, by gate and HealthCheck; it needs the right to list those kinds. Nothing is written.

"""
_FOOT: Final = """
Exit codes:
  0 it is explained, 1 there is no such object or it cannot be read, 2 the command line is wrong.
"""


class ExplainedObject(msgspec.Struct, frozen=True):
    """The object that the words name."""

    name: str
    kind: ExplainedKind | None = None
    """None for whichever kind exists."""


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
        (kind, name), slash = arguments, "/"
    if len(arguments) == 1 and not slash:
        return ExplainedObject(kind)
    if not name:
        raise UsageError(
            "name one object: NAME of a pod or StatefulSet, or KIND/NAME, where KIND is pod, sts,"
            f" group, mazr, {', '.join(_RELEASE_KINDS[:-1])} or {_RELEASE_KINDS[-1]}"
        )
    if kind.lower() not in _KINDS:
        raise UsageError(
            f"{kind} is neither a pod nor a StatefulSet, nor a MultiAZRollout or a Rollout: write"
            f" pod/{name}, sts/{name}, group/{name}, mazr/{name} or rollout/{name}"
        )
    return ExplainedObject(name, _KINDS[kind.lower()])


async def _run(arguments: ParsedArguments, target: ExplainedObject, output: OutputStream) -> None:
    async with open_inspector(arguments) as inspector:
        [seen] = await inspector.inspect()
    width = output.width()
    output.write(await draw_explanation(seen, target, StatusLayout(width=width)), width)


async def draw_explanation(
    seen: Inspection, target: ExplainedObject, layout: StatusLayout
) -> list[Line]:
    """Return the explanation as lines. Raises InvalidInput where nothing has that name."""
    if target.kind is ExplainedKind.POLICY:
        return _draw_policy(seen, target, layout)
    if target.kind is ExplainedKind.GROUP:
        return _draw_group(seen, target, layout)
    if target.kind not in {None, ExplainedKind.POD, ExplainedKind.SET}:
        lines = _draw_of_releases(seen.description, target, replace(layout, is_wide=True))
        unread = (wrap_text(text, layout, style=Style.YELLOW) for text in seen.remarks)
        return [*lines, *(line for remark in unread for line in remark)]
    if lines := await _draw_driven(seen, target, layout):
        return lines
    for name, group in seen.groups.items():
        plan = seen.plans[name]
        if target.kind is not ExplainedKind.POD:
            explanation = explain_set(group, plan, target.name)
            if explanation is not None:
                title = f"StatefulSet {target.name} of group {name}"
                return [_title(title), *_draw(explanation, layout)]
        if target.kind is not ExplainedKind.SET:
            explanation = explain_pod(group, plan, target.name)
            if explanation is not None:
                lines = [_title(f"pod {target.name} of group {name}"), *_draw(explanation, layout)]
                return [*lines, *await _draw_eviction(seen, group, target, layout)]
    raise InvalidInput(_miss(seen, target))


def _draw_policy(seen: Inspection, target: ExplainedObject, layout: StatusLayout) -> list[Line]:
    """Return the lines about a MultiAZRollout. Raises InvalidInput where there is none."""
    for policy in seen.description.list_policies():
        if policy.name == target.name:
            return [*draw_policy(policy, seen.description.now, replace(layout, is_wide=True))]
    raise describe_miss([seen.description], Named(policy=target.name))


def _draw_group(seen: Inspection, target: ExplainedObject, layout: StatusLayout) -> list[Line]:
    """Return the lines about a rollout group. Raises InvalidInput where there is none."""
    for group in seen.description.groups:
        if group.name == target.name:
            return [*draw_group(group, seen.description.now, replace(layout, is_wide=True))]
    raise describe_miss([seen.description], Named(group=target.name))


def _draw_of_releases(
    seen: Description, target: ExplainedObject, layout: StatusLayout
) -> list[Line]:
    """Return the lines about an object of releases. Raises InvalidInput for none."""
    name, releases = target.name, seen.list_releases()
    match target.kind:
        case ExplainedKind.RELEASE:
            drawn = {release.name: draw_release(release, seen.now, layout) for release in releases}
        case ExplainedKind.GATE:
            drawn = {
                gate.name: draw_gate(release, gate, layout)
                for release in releases
                for gate in release.gates
            }
        case ExplainedKind.CHECK:
            drawn = {check.name: draw_checks([check], layout) for check in seen.list_checks()}
        case _:
            drawn = {
                schedule.name: draw_schedules([schedule], layout)
                for schedule in seen.list_schedules()
                if bool(schedule.namespace) is (target.kind is ExplainedKind.SCHEDULE)
            }
    if name in drawn:
        return [*drawn[name]]
    hint = suggest(name, [*drawn])
    raise InvalidInput(f"no {target.kind} {name} is seen in namespace {seen.namespace}{hint}")


async def _draw_driven(
    seen: Inspection, target: ExplainedObject, layout: StatusLayout
) -> list[Line]:
    """Return the lines about pods that a MultiAZRollout replaces; empty where none does."""
    for driven in seen.driven:
        group, plan, key, name = driven.group, driven.plan, driven.key, target.name
        if target.kind is not ExplainedKind.POD:
            explanation = explain_driven_set(group, plan, key, name)
            if explanation is not None:
                title = f"StatefulSet {name} of MultiAZRollout {key}"
                return [_title(title), *_draw(explanation, layout)]
        if target.kind is not ExplainedKind.SET:
            explanation = explain_driven_pod(group, plan, key, name)
            if explanation is not None:
                lines = [_title(f"pod {name} of MultiAZRollout {key}"), *_draw(explanation, layout)]
                return [*lines, *await _draw_eviction(seen, group, target, layout)]
    return []


def _title(text: str) -> Line:
    return ((text, Style.BOLD),)


def _draw(explanation: Explanation, layout: StatusLayout) -> Iterator[Line]:
    style = Style.GREEN if explanation.may_go else Style.PLAIN
    yield from wrap_text(f"rollout: {explanation.answer} [{explanation.code}]", layout, style=style)
    for condition in explanation.conditions:
        yield from wrap_text(f"first: {condition.text} [{condition.code}]", layout, indent=2)
        if condition.remedy:
            yield from wrap_text(condition.remedy, layout, indent=4, style=Style.FAINT)


async def _draw_eviction(
    seen: Inspection, group: Group, target: ExplainedObject, layout: StatusLayout
) -> list[Line]:
    """Return lines on whether an eviction of a pod would be allowed; empty without a pod."""
    pod = _find_pod(group, target.name)
    if pod is None:
        return []
    held = await seen.assess_eviction(pod)
    if held is None:
        return [(("eviction: no zone-aware budget refuses it", Style.GREEN),)]
    return [*wrap_text(f"eviction: {held.text} [{held.code}]", layout)]


def _find_pod(group: Group, name: str) -> Pod | None:
    pods = (pod for zone in group.zones for pod in zone.own_pods)
    return next((pod for pod in pods if pod.name == name), None)


def _miss(seen: Inspection, target: ExplainedObject) -> str:
    groups = [*seen.groups.values(), *(driven.group for driven in seen.driven)]
    zones = [zone for group in groups for zone in group.zones]
    sets = sorted({zone.sts.name for zone in zones})
    pods = sorted({pod.name for zone in zones for pod in zone.own_pods})
    names = {ExplainedKind.POD: pods, ExplainedKind.SET: sets}.get(
        target.kind or ExplainedKind.POLICY, [*sets, *pods]
    )
    what = target.kind or "pod or statefulset"
    where = seen.description.namespace
    hint = suggest(target.name, names)
    return f"there is no {what} {target.name} in a rollout group of namespace {where}{hint}"
