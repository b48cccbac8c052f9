"""What a second try is for, and what never gets one."""

import pytest

from tests.code_rules import ROOT
from tests.test_watchdogs import INI

TRIED = """
import pytest
from tests.second_try import BrokenPromise

tries = []

def fail_once(name, error):
    tries.append(name)
    if tries.count(name) == 1:
        raise error

@pytest.mark.controlplane
def test_late(): fail_once("late", TimeoutError("no answer"))

@pytest.mark.controlplane
def test_never(): raise TimeoutError("no answer, ever")

@pytest.mark.controlplane
def test_promise(): fail_once("promise", BrokenPromise("SI-01: two zones"))

def test_logic(): fail_once("logic", AssertionError("wrong"))
"""


def test_what_waits_for_processes_is_tried_twice_and_no_broken_promise(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One passes with its second try, one fails twice; a promise and plain code fail at once."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(INI)
    pytester.makepyfile(TRIED)
    arguments = ("-p", "tests.second_try", "-p", "no:cacheprovider", "-rR")
    result = pytester.runpytest_subprocess(*arguments)

    result.assert_outcomes(passed=1, failed=3)
    again = [line.split("::")[1].split(" ")[0] for line in result.outlines if "RERUN " in line]
    assert again == ["test_late", "test_never"], result.outlines
