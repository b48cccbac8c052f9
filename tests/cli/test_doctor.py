"""`doctor`: what it prints, and how it ends (DEP-88, D-76)."""

import json
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.cli.doctor import choose_exit_code, render_json, render_text
from rollout_operator.model.diagnosis import Diagnosis, Finding, FindingCode, SkippedCheck
from rollout_operator.model.names import ExitCode
from rollout_operator.model.outcome import Severity


def find(code: FindingCode, severity: Severity, *words: str) -> Finding:
    where, text, remedy = words
    return Finding(code=code, severity=severity, object=where, text=text, remedy=remedy)


WARNING: Final = find(
    FindingCode.SINGLE_ZONE, Severity.WARN, "group a", "its only zone is a", "label the others"
)
STRATEGY = ("StatefulSet b", "its update strategy is RollingUpdate", "set OnDelete")
ERROR: Final = find(FindingCode.NOT_ON_DELETE, Severity.ERROR, *STRATEGY)
LATE = ("webhook x", "deadline", "open the port")
TIMED_OUT: Final = find(FindingCode.WEBHOOK_TIMED_OUT, Severity.ERROR, *LATE)
SKIPPED: Final = SkippedCheck(check="order of zones", why="cannot list statefulsets")


def diagnosis(*findings: Finding, skipped: tuple[SkippedCheck, ...] = ()) -> Diagnosis:
    return Diagnosis(namespace="prod", findings=findings, skipped=skipped, passed=7)


@pytest.mark.parametrize(
    ("found", "plain", "strict"),
    [
        (diagnosis(), ExitCode.DONE, ExitCode.DONE),
        (diagnosis(WARNING), ExitCode.DONE, ExitCode.FAILED),
        (diagnosis(skipped=(SKIPPED,)), ExitCode.DONE, ExitCode.FAILED),
        (Diagnosis(namespace="prod", skipped=(SKIPPED,)), ExitCode.FAILED, ExitCode.FAILED),
        (diagnosis(WARNING, ERROR), ExitCode.FAILED, ExitCode.FAILED),
        (diagnosis(ERROR, TIMED_OUT), ExitCode.UNREACHED, ExitCode.UNREACHED),
    ],
    ids=["nothing", "warning", "skipped", "all skipped", "error", "time-out"],
)
def test_the_exit_code_says_how_bad_it_is(
    found: Diagnosis, plain: ExitCode, strict: ExitCode
) -> None:
    assert choose_exit_code(found) is plain
    assert choose_exit_code(found, is_strict=True) is strict


def test_a_good_installation_is_one_line() -> None:
    assert render_text(diagnosis()) == "7 checks passed\n"


def test_errors_come_first_and_each_says_what_to_do() -> None:
    skipped = (SKIPPED, replace(SKIPPED, check="spelling of keys"))
    assert render_text(diagnosis(WARNING, ERROR, skipped=skipped)) == (
        "error  not_on_delete  StatefulSet b\n"
        "       its update strategy is RollingUpdate\n"
        "       -> set OnDelete\n"
        "warn   single_zone  group a\n"
        "       its only zone is a\n"
        "       -> label the others\n"
        "skipped  cannot list statefulsets\n"
        "       not checked: order of zones; spelling of keys\n"
        "1 error, 1 warning, 7 checks passed, 2 checks skipped\n"
    )


def test_where_nothing_was_checked_no_check_is_named() -> None:
    skipped = (SKIPPED, replace(SKIPPED, check="spelling of keys"))
    found = Diagnosis(namespace="prod", findings=(ERROR,), skipped=skipped)
    assert render_text(found).splitlines()[-3:] == [
        "skipped  cannot list statefulsets",
        "       not checked: everything else",
        "1 error, 0 checks passed, 2 checks skipped",
    ]


def test_checks_that_nobody_needs_are_counted_apart() -> None:
    found = replace(diagnosis(), unneeded=4)
    assert render_text(found) == "7 checks passed, 4 checks not needed\n"
    assert choose_exit_code(found, is_strict=True) is ExitCode.DONE


def test_what_a_tenant_wrote_steers_no_terminal() -> None:
    evil = "\x1b[2J\x9b1m\n0 errors"
    finding = Finding(
        code=FindingCode.SINGLE_ZONE, severity=Severity.WARN, object=evil, text=evil, remedy=evil
    )
    text = render_text(diagnosis(finding, skipped=(SkippedCheck(check=evil, why=evil),)))

    assert len(text.splitlines()) == 6
    assert all(line.isprintable() for line in text.split("\n"))


def test_json_has_the_same_for_scripts() -> None:
    assert json.loads(render_json(diagnosis(ERROR, skipped=(SKIPPED,)))) == {
        "schemaVersion": 1,
        "namespace": "prod",
        "passed": 7,
        "unneeded": 0,
        "findings": [
            {
                "code": "not_on_delete",
                "severity": "error",
                "object": "StatefulSet b",
                "text": "its update strategy is RollingUpdate",
                "remedy": "set OnDelete",
            }
        ],
        "skipped": [{"check": "order of zones", "why": "cannot list statefulsets"}],
    }
