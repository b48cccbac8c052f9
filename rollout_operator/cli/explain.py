"""`rollout-operator explain`: whether a pod may go now, and what would have to happen first."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rollout_operator.cli.access import ACCESS_FLAGS
from rollout_operator.cli.inspection import be_quiet, open_inspector, suggest
from rollout_operator.cli.text.layout import StatusLayout, wrap_text
from rollout_operator.cli.text.screen import OutputStream, read_output
from rollout_operator.config.grammar import Flag, ParsedArguments, UsageError, parse_mixed
from rollout_operator.config.usage import render_entries
from rollout_operator.lab.lines import Line, Style
from rollout_operator.model.description import Explanation
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.exit_codes import ExitCode
from rollout_operator.model.group import Group
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Reason
from rollout_operator.operator.diagnosis.inspect import Inspection
from rollout_operator.planning.description.explain import explain_pod, explain_set


class ExplainedKind(StrEnum):
    """What is explained; in words of the API."""

    POD = "pod"
    SET = "statefulset"


EXPLAIN_FLAGS: Final[tuple[Flag[Any], ...]] = ACCESS_FLAGS
_KINDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), ExplainedKind.POD),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), ExplainedKind.SET),
}
_HEAD: Final = """\
Usage: rollout-operator explain POD|STATEFULSET [flags]
       rollout-operator explain pod/NAME|sts/NAME [flags]

Says whether a rollout deletes a pod now and whether an eviction of it would be allowed, and what
has to happen first if not. It decides on the objects as the operator does, with rights to list
statefulsets and pods. Nothing is written.

"""
_FOOT: Final = """
Exit codes:
  0 it is explained, 1 there is no such object or it cannot be read, 2 the command line is wrong.
"""


@dataclass(frozen=True, slots=True)
class ExplainedObject:
    """What the words name."""

    name: str
    kind: ExplainedKind | None = None
    """None: whichever there is."""


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
    """Return what is named by `NAME`, `KIND/NAME` or `KIND NAME`. Raises UsageError."""
    kind, slash, name = arguments[0].partition("/") if len(arguments) == 1 else ("", "", "")
    if len(arguments) == 2:
        (kind, name), slash = arguments, "/"
    if len(arguments) == 1 and not slash:
        return ExplainedObject(kind)
    if not name:
        raise UsageError("name one pod or StatefulSet: NAME, pod/NAME or sts/NAME")
    if kind.lower() not in _KINDS:
        raise UsageError(
            f"{kind} is neither a pod nor a StatefulSet: write pod/{name} or sts/{name}"
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
    """Return the answer as lines. Raises InvalidInput where nothing has that name."""
    for name, group in seen.groups.items():
        plan = seen.plans[name]
        if target.kind is not ExplainedKind.POD:
            found = explain_set(group, plan, target.name)
            if found is not None:
                title = f"StatefulSet {target.name} of group {name}"
                return [_title(title), *_draw(found, layout)]
        if target.kind is not ExplainedKind.SET:
            found = explain_pod(group, plan, target.name)
            if found is not None:
                pod = _find_pod(group, target.name)
                held = None if pod is None else await seen.observed.assess_eviction(pod)
                lines = [_title(f"pod {target.name} of group {name}"), *_draw(found, layout)]
                return lines if pod is None else [*lines, *_draw_eviction(held, layout)]
    raise InvalidInput(_miss(seen, target))


def _title(text: str) -> Line:
    return ((text, Style.BOLD),)


def _draw(found: Explanation, layout: StatusLayout) -> Iterator[Line]:
    style = Style.GREEN if found.may_go else Style.PLAIN
    yield from wrap_text(f"rollout: {found.answer} [{found.code}]", layout, style=style)
    for condition in found.conditions:
        yield from wrap_text(f"first: {condition.text} [{condition.code}]", layout, indent=2)
        if condition.remedy:
            yield from wrap_text(condition.remedy, layout, indent=4, style=Style.FAINT)


def _draw_eviction(held: Reason | None, layout: StatusLayout) -> Iterator[Line]:
    if held is None:
        yield (("eviction: no zone-aware budget refuses it", Style.GREEN),)
        return
    yield from wrap_text(f"eviction: {held.text} [{held.code}]", layout)


def _find_pod(group: Group, name: str) -> Pod | None:
    pods = (pod for zone in group.zones for pod in zone.own_pods)
    return next((pod for pod in pods if pod.name == name), None)


def _miss(seen: Inspection, target: ExplainedObject) -> str:
    sets = [zone.sts.name for group in seen.groups.values() for zone in group.zones]
    pods = [
        pod.name for group in seen.groups.values() for zone in group.zones for pod in zone.own_pods
    ]
    known = {ExplainedKind.POD: pods, ExplainedKind.SET: sets, None: [*sets, *pods]}[target.kind]
    what = target.kind or "pod or statefulset"
    where = seen.description.namespace
    hint = suggest(target.name, known)
    return f"there is no {what} {target.name} in a rollout group of namespace {where}{hint}"
