"""`docs/commands.md` says of each finding what the command says, and of flags what there is."""

import re

import pytest

from rollout_operator.cli.doctor import OUTPUT, STRICT, render_usage
from rollout_operator.cli.main import COMMANDS
from rollout_operator.planning.doctor import CHECKS, EXPLANATIONS
from tests.code_rules import ROOT

PAGE = (ROOT / "docs/commands.md").read_text()


def test_the_table_of_findings_is_that_of_the_code() -> None:
    begin, end = "compared by a test -->\n", "<!-- end of findings -->"
    rows = [f"| `{code}` | {' | '.join(told)} |\n" for code, told in EXPLANATIONS.items()]
    head = "| code | severity | what it means | what to do |\n| --- | --- | --- | --- |\n"
    assert PAGE.partition(begin)[2].partition(end)[0] == head + "".join(rows)


@pytest.mark.parametrize(
    "path",
    ["README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/**/*.md", "charts/**/NOTES.txt"],
)
def test_commands_that_are_named_have_a_row_in_the_help(path: str) -> None:
    """The old names of tasks of `admin` still work, but neither help nor completion shows them."""
    text = "\n".join(page.read_text() for page in sorted(ROOT.glob(path)))
    named = re.findall(r"(?:`|^\$ |^ {3,})rollout-operator ([a-z][\w-]*)", text, re.MULTILINE)
    assert {*named} - {command.name for command in COMMANDS} == set()


def test_the_number_of_checks_and_the_flags_are_reported() -> None:
    assert f"`{len(CHECKS)} checks passed`" in PAGE
    for flag in (OUTPUT, STRICT):
        assert f"-{flag.name}" in render_usage()
