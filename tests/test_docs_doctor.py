"""`docs/commands.md` says of each finding what the command says, and of flags what there is."""

from rollout_operator.cli.doctor import OUTPUT, STRICT, render_usage
from rollout_operator.planning.doctor import CHECKS
from rollout_operator.planning.doctor_remedies import render_table
from tests.code_rules import ROOT

PAGE = (ROOT / "docs/commands.md").read_text()


def test_the_table_of_findings_is_that_of_the_code() -> None:
    begin, end = "compared by a test -->\n", "<!-- end of findings -->"
    assert PAGE.partition(begin)[2].partition(end)[0] == render_table()


def test_the_number_of_checks_and_the_flags_are_reported() -> None:
    assert f"`{len(CHECKS)} checks passed`" in PAGE
    for flag in (OUTPUT, STRICT):
        assert f"-{flag.name}" in render_usage()
