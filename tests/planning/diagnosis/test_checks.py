"""Each check: silent on a good installation, and what it says of one thing that is wrong."""

from pathlib import Path

import pytest

from rollout_operator.model.diagnosis import FindingCode, Installation, Source
from rollout_operator.planning.doctor import CHECKS, EXPLANATIONS, diagnose
from tests.planning.diagnosis import installations
from tests.planning.diagnosis.installations import good
from tests.stories import check_tables


def show(call: str) -> str:
    found = eval(call, vars(installations))  # noqa: S307  # our own text
    if isinstance(found, Installation):
        findings = diagnose(found).findings
        lines = [f"{each.severity} {each.code}  {each.object}: {each.text}" for each in findings]
        found = "\n".join(lines)
    return f"{found}"


test_case = check_tables(__file__, findings=show, needs=show)


def test_every_finding_is_provoked_and_explained() -> None:
    provoked = Path(__file__).with_name("findings.txt").read_text()
    assert {*FindingCode} == {*EXPLANATIONS}
    assert [code for code in FindingCode if f" {code}  " not in provoked] == []


@pytest.mark.parametrize("source", list(Source))
def test_what_could_not_be_read_is_skipped_and_reported(source: Source) -> None:
    diagnosis = diagnose(good(unread={source: "cannot list it"}))

    wanted = [check.name for check in CHECKS if source in check.needs]
    assert [one.check for one in diagnosis.skipped] == wanted != []
    assert {one.why for one in diagnosis.skipped} == {"cannot list it"}
    assert diagnosis.passed == len(CHECKS) - len(wanted)
    assert diagnosis.findings == ()
