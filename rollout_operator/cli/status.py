"""`rollout-operator status`: what each rollout group does, and what it waits for.

On a terminal `-watch` redraws the view; in a pipe it prints a line for each change.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.cli.access import (
    GROUP,
    INSPECTION_FLAGS,
    ClusterInspector,
    be_quiet,
    open_inspector,
    read_named,
)
from rollout_operator.cli.render import LiveFrame, OutputStream, read_output
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    BOOL,
    TEXT,
    Flag,
    ParsedArguments,
    UsageError,
    parse_mixed,
    refuse_other_choices,
)
from rollout_operator.model.description import Description, ZoneDescription
from rollout_operator.model.names import ApiError, ExitCode
from rollout_operator.operator.inspect import Inspection
from rollout_operator.planning.cards import list_cards, render_card
from rollout_operator.planning.text import BLANK, Line, StatusLayout, Style, draw_status
from rollout_operator.planning.wording import format_json, one_line

_FORMATS: Final = ("text", "wide", "json")
_WATCH: Final = Flag(
    name="watch",
    kind=BOOL,
    default=False,
    alias="w",
    help="Keep watching until Ctrl-C, also -w; without a terminal only changes are printed.",
)
_OUTPUT: Final = Flag(
    name="output",
    kind=TEXT,
    default="text",
    alias="o",
    help="text, wide (revisions, limits, pods that are not ready) or json, also -o.",
)
_EVERYWHERE: Final = Flag(
    name="all-namespaces",
    kind=BOOL,
    default=False,
    alias="A",
    help="All namespaces that have rollout groups, also -A.",
)
STATUS_FLAGS: Final[tuple[Flag[Any], ...]] = (
    _WATCH,
    _OUTPUT,
    _EVERYWHERE,
    *INSPECTION_FLAGS,
)
# Between two reads with -w, which the API server answers from its cache.
_EVERY: Final = timedelta(seconds=2)

_HEAD: Final = """\
Usage: rollout-operator status [NAME|group/NAME|mazr/NAME|rollout/NAME] [flags]

Shows what each rollout group, or the object that is named, does, what it waits for and what you can
do about it. It reads the objects with the rights of a kubeconfig and decides as the operator does,
so it works even while the operator is down. Rights to list statefulsets and pods are enough; with
get on services/proxy it shows what the operator itself reports. Nothing is written.

"""
_FOOT: Final = """
Exit codes:
  0 done, even if ended by Ctrl-C, 1 the objects cannot be read, 2 the command line is wrong.
"""


def run(arguments: Sequence[str]) -> int:
    """Show the status; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(STATUS_FLAGS, arguments)
    read_named(parsed.leftovers, group=parsed.value(GROUP))
    refuse_other_choices(parsed, _OUTPUT, _FORMATS)
    if parsed.value(_OUTPUT) == "json" and parsed.value(_WATCH):
        raise UsageError("-watch shows text: leave out -output=json")
    be_quiet()
    try:
        asyncio.run(_run(parsed, read_output(sys.stdout, os.environ)))
    except KeyboardInterrupt:
        if not parsed.value(_WATCH):
            raise
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(STATUS_FLAGS))}{_FOOT}"


async def _run(arguments: ParsedArguments, output: OutputStream) -> None:
    named = read_named(arguments.leftovers, group=arguments.value(GROUP))
    is_everywhere = arguments.value(_EVERYWHERE)
    async with open_inspector(arguments, is_everywhere=is_everywhere, named=named) as inspector:
        await show(inspector, arguments, output)


async def show(
    inspector: ClusterInspector, arguments: ParsedArguments, output: OutputStream
) -> None:
    """Show the chosen namespaces; with -w until cancelled. Raises OperatorError."""
    is_wide = arguments.value(_OUTPUT) == "wide"
    if arguments.value(_WATCH):
        if output.is_terminal:
            await _redraw(inspector, output, is_wide=is_wide)
        await _report_changes(inspector, output)
    seen = await inspector.inspect()
    if arguments.value(_OUTPUT) == "json":
        found = [inspection.best for inspection in seen]
        content = format_json(found if arguments.value(_EVERYWHERE) else found[0])
        output.stream.write(f"{content}\n")
    else:
        width = output.width(is_wide=is_wide)
        output.write(_draw_all(seen, StatusLayout(width=width, is_wide=is_wide)), width)


def _draw_all(seen: Sequence[Inspection], layout: StatusLayout) -> list[Line]:
    lines: list[Line] = []
    for inspection in seen:
        lines += [BLANK] if lines else []
        lines += draw_status(inspection.best, inspection.remarks, layout)
    return lines or [(("no rollout groups found", Style.PLAIN),)]


async def _redraw(inspector: ClusterInspector, output: OutputStream, *, is_wide: bool) -> None:
    lines = list[Line]()
    with LiveFrame(output) as frame:
        while True:
            try:
                seen = await inspector.inspect(is_fresh=False)
                lines = _fit(seen, output.size(), is_wide=is_wide)
                problem: list[Line] = []
            except ApiError as error:
                if not lines:
                    raise
                problem = [((f"not read since: {error}", Style.RED),)]
            frame.draw([*problem, *lines])
            await inspector.clock.sleep(_EVERY)


def _fit(seen: Sequence[Inspection], size: os.terminal_size, *, is_wide: bool) -> list[Line]:
    """Return the lines about all namespaces, in short where the terminal has too few rows."""
    layout = StatusLayout(width=size.columns, is_wide=is_wide)
    lines = _draw_all(seen, layout)
    if len(lines) < size.lines:
        return lines
    return _draw_all(seen, replace(layout, is_wide=False, is_terse=True))


async def _report_changes(inspector: ClusterInspector, output: OutputStream) -> None:
    """Write each change, with the time, until cancelled. Raises ApiError of the first read."""
    earlier: Mapping[str, str] | None = None
    while True:
        try:
            seen = await inspector.inspect(is_fresh=False)
            facts = {
                about: text
                for inspection in seen
                for about, text in map_facts(inspection.best, inspection.remarks).items()
            }
        except ApiError as error:
            if earlier is None:
                raise
            facts = {**earlier, "the error": f"not read: {error}"}
        for line in list_changes(earlier or {}, facts):
            output.stream.write(f"{inspector.clock.now():%H:%M:%S} {line}\n")
        output.stream.flush()
        earlier = facts
        await inspector.clock.sleep(_EVERY)


def map_facts(description: Description, remarks: Sequence[str] = ()) -> Mapping[str, str]:
    """Return a line for each group, zone and budget of a namespace, by its subject.

    No line changes with time alone: the same state gives the same lines.
    """
    where = description.namespace
    facts: dict[str, str] = {}
    for card in list_cards(description):
        facts[f"{where} {card.kind} {card.name}"] = render_card(card)
        for zone in card.zones:
            facts[f"{where} zone {zone.name}"] = _render_zone(zone)
    if remarks:
        facts[f"{where} notes"] = "; ".join(remarks)
    return {about: one_line(text) for about, text in facts.items()}


def list_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that are new or different, then those that are gone."""
    yield from (text for about, text in now.items() if before.get(about) != text)
    yield from (one_line(f"{about} is gone") for about in before if about not in now)


def _render_zone(zone: ZoneDescription) -> str:
    paused = ", paused" if zone.is_paused else ""
    numbers = f"{zone.ready}/{zone.desired} ready, {zone.updated}/{zone.desired} updated"
    return f"zone {zone.name}: {numbers}{paused}"
