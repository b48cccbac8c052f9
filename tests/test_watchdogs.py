"""The guards of `conftest.py` fail the tests that they should, and no others."""

import pytest

from tests.code_rules import ROOT

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
markers = controlplane: as in the project
"""


@pytest.fixture
def outcome(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> "Outcome":
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(INI)
    return Outcome(pytester)


class Outcome:
    """Runs the source of a test file under the guards, in a process of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def run(self, source: str, *arguments: str) -> pytest.RunResult:
        self.pytester.makepyfile("import asyncio, time, warnings, pytest\n" + source)
        return self.pytester.runpytest_subprocess(
            "-p", "tests.watchdogs", "-p", "no:cacheprovider", "-q", *arguments
        )


def test_a_task_left_over_fails_the_test(outcome: Outcome) -> None:
    result = outcome.run(
        "async def test_it(): asyncio.create_task(asyncio.sleep(60), name='forgotten')"
    )

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*left over: *forgotten*"])


def test_a_task_that_a_fixture_stops_is_not_left_over(outcome: Outcome) -> None:
    """Fixtures are cleaned up before the guard looks."""
    result = outcome.run(
        """
@pytest.fixture
async def ticking():
    task = asyncio.create_task(asyncio.sleep(60))
    yield
    task.cancel()
    await asyncio.wait([task])

async def test_it(ticking): ...

def test_without_loop(): ...
"""
    )

    result.assert_outcomes(passed=2)


def test_a_blocked_loop_fails_the_test(outcome: Outcome) -> None:
    result = outcome.run("async def test_it(): time.sleep(3)")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the loop stood still for ?.? s*"])


def test_a_loop_that_waits_or_stops_shortly_is_not_blocked(outcome: Outcome) -> None:
    """Nor is the control plane's business judged: it starts processes."""
    result = outcome.run(
        """
async def test_it():
    time.sleep(0.5)
    await asyncio.sleep(2.5)

@pytest.mark.controlplane
async def test_slow(): time.sleep(2.5)
"""
    )

    result.assert_outcomes(passed=2)


def test_a_warning_fails_the_test(pytestconfig: pytest.Config) -> None:
    assert "error" in pytestconfig.getini("filterwarnings")


def test_the_control_plane_comes_last_in_any_order(outcome: Outcome) -> None:
    source = """
@pytest.mark.controlplane
def test_late(): ...
""" + "".join(f"def test_{number}(): ...\n" for number in range(9))
    orders = [
        [line for line in outcome.run(source, "--co", *seed).outlines if "::" in line]
        for seed in ((), ("--shuffle=1",), ("--shuffle=1",), ("--shuffle=2",))
    ]

    assert all(order[-1].endswith("test_late") for order in orders)
    assert orders[1] == orders[2] != orders[0]
    assert orders[1] != orders[3]
