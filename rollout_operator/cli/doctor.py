"""`rollout-operator doctor`: check an installation, and say what is wrong and how to fix it.

Prints the findings of `operator.examine` and chooses the exit code. All writes are dry runs.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    BOOL,
    TEXT,
    Flag,
    parse_arguments,
    refuse_leftovers,
    refuse_other_choices,
)
from rollout_operator.kube.connection import Access
from rollout_operator.model.diagnosis import Diagnosis, Finding, FindingCode
from rollout_operator.model.names import ExitCode
from rollout_operator.model.outcome import Severity
from rollout_operator.operator.examine import examine
from rollout_operator.planning.wording import format_json, one_line
from rollout_operator.telemetry import logs

_SCHEMA_VERSION: Final = 1

OUTPUT: Final = Flag(
    name="output", kind=TEXT, default="text", alias="o", help="Format: text or json, also -o."
)
STRICT: Final = Flag(
    name="strict",
    kind=BOOL,
    default=False,
    help="Fail on warnings and skipped checks as well.",
)
_FLAGS: Final[tuple[Flag[Any], ...]] = (*ACCESS_FLAGS, OUTPUT, STRICT)
_FORMATS: Final = ("text", "json")

_HEAD: Final = """\
Usage: rollout-operator doctor [flags]

Checks the installation in one namespace and says what is wrong and how to fix it: rights, webhooks,
certificates, settings of groups, Pod Security. Rights to read are enough for most checks; a check
that needs more is skipped. Nothing is changed: webhooks and new pods are tried by dry runs.

"""
_FOOT: Final = """
Exit codes:
  0 nothing is wrong, 1 something is, or nothing could be read, 2 the command line is wrong, 124 the
  API server does not reach a webhook in time.

Each finding is explained in docs/commands.md.
"""


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}{''.join(render_entries(_FLAGS))}{_FOOT}"


def run(arguments: Sequence[str]) -> int:
    """Check; return the exit code.

    Raises HelpRequested, ConfigError, and OperatorError where the API server cannot be reached.
    """
    parsed = parse_arguments(_FLAGS, arguments)
    refuse_leftovers(parsed)
    refuse_other_choices(parsed, OUTPUT, _FORMATS)
    logs.configure(level="warn")
    diagnosis = asyncio.run(_examine(choose_access(parsed)))
    render = render_json if parsed.value(OUTPUT) == "json" else render_text
    sys.stdout.write(render(diagnosis))
    return choose_exit_code(diagnosis, is_strict=parsed.value(STRICT))


async def _examine(access: Access) -> Diagnosis:
    async with open_client(access) as client:
        return await examine(client, access.namespace, LoopClock().now())


def choose_exit_code(diagnosis: Diagnosis, *, is_strict: bool = False) -> ExitCode:
    if diagnosis.has(FindingCode.WEBHOOK_TIMED_OUT):
        return ExitCode.UNREACHED
    was_nothing_read = not (diagnosis.passed or diagnosis.findings)
    is_bad = diagnosis.count(Severity.ERROR) > 0 or was_nothing_read
    if is_strict:
        is_bad = is_bad or bool(diagnosis.findings or diagnosis.skipped)
    return ExitCode.FAILED if is_bad else ExitCode.DONE


def render_json(diagnosis: Diagnosis) -> str:
    """Return the findings for scripts; fields may be added, but none is renamed."""
    content = {"schemaVersion": _SCHEMA_VERSION, **msgspec.to_builtins(diagnosis)}
    return f"{format_json(content)}\n"


def render_text(diagnosis: Diagnosis) -> str:
    """Return the findings, errors first, and a line that sums them up."""
    order = (Severity.ERROR, Severity.WARN)
    findings = sorted(diagnosis.findings, key=lambda finding: order.index(finding.severity))
    lines = [line for finding in findings for line in _list_lines(finding)]
    lines += _list_skipped(diagnosis)
    return "".join(f"{one_line(line)}\n" for line in (*lines, _sum_up(diagnosis)))


def _list_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity:5}  {finding.code}  {finding.object}"
    yield f"       {finding.text}"
    yield f"       -> {finding.remedy}"


def _list_skipped(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the checks that were skipped, by what could not be read."""
    checks: dict[str, list[str]] = {}
    for check in diagnosis.skipped:
        checks.setdefault(check.why, []).append(check.check)
    is_all = len(checks) == 1 and not diagnosis.passed
    for why, names in checks.items():
        yield f"skipped  {why}"
        yield f"       not checked: {'everything else' if is_all else '; '.join(names)}"


def _sum_up(diagnosis: Diagnosis) -> str:
    counts = [
        (diagnosis.count(Severity.ERROR), "error", ""),
        (diagnosis.count(Severity.WARN), "warning", ""),
        (diagnosis.passed, "check", " passed"),
        (len(diagnosis.skipped), "check", " skipped"),
        (diagnosis.unneeded, "check", " not needed"),
    ]
    return ", ".join(
        f"{number} {noun}{'s' * (number != 1)}{end}"
        for number, noun, end in counts
        if number or end == " passed"
    )
