"""The guards of `conftest.py` fail the tests that they should, and no others."""

import pytest

from tests.code_rules import ROOT

pytestmark = pytest.mark.thorough

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
markers = controlplane: as in the project
"""
GUARDED = """
import asyncio, time, pytest

async def test_forgets_a_task(): asyncio.create_task(asyncio.sleep(60), name="forgotten")

async def test_blocks(): time.sleep(3)

@pytest.fixture
async def ticking():  # cleaned up before the guard looks
    task = asyncio.create_task(asyncio.sleep(60))
    yield
    task.cancel()
    await asyncio.wait([task])

async def test_with_a_fixture(ticking): ...

async def test_waits():
    time.sleep(0.5)
    await asyncio.sleep(2.5)

@pytest.mark.controlplane  # it starts processes
async def test_blocks_on_the_control_plane(): time.sleep(2.5)
"""
ORDERED = """
import pytest

@pytest.mark.controlplane
def test_late(): ...
""" + "".join(f"def test_{number}(): ...\n" for number in range(9))


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    """Run a test file under the guards, in a process of its own."""
    pytester.makeini(INI)
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(
        "-p", "tests.watchdogs", "-p", "no:cacheprovider", "-q", *arguments
    )


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def test_tasks_left_over_and_blocked_loops_fail_their_tests(pytester: pytest.Pytester) -> None:
    result = run(pytester, GUARDED)

    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(["*left over: *forgotten*", "*the loop stood still for ?.? s*"])


def test_a_warning_fails_the_test(pytestconfig: pytest.Config) -> None:
    assert "error" in pytestconfig.getini("filterwarnings")


def test_the_control_plane_comes_last_in_any_order(pytester: pytest.Pytester) -> None:
    orders = [
        [line for line in run(pytester, ORDERED, "--co", *seed).outlines if "::" in line]
        for seed in ((), ("--shuffle=1",), ("--shuffle=1",), ("--shuffle=2",))
    ]

    assert all(order[-1].endswith("test_late") for order in orders)
    assert orders[1] == orders[2] != orders[0]
    assert orders[1] != orders[3]
