"""The plugins of `conftest.py` fail the tests that they should, and try some of them twice."""

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


@pytest.fixture(name="play")
def make_play(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return what runs a test file in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(INI)
    return pytester


def test_tasks_left_over_and_blocked_loops_fail_their_tests(
    play: pytest.Pytester, pytestconfig: pytest.Config
) -> None:
    play.makepyfile(GUARDED)
    result = play.runpytest_subprocess("-p", "tests.watchdogs", "-p", "no:cacheprovider", "-q")

    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(["*left over: *forgotten*", "*the loop stood still for ?.? s*"])
    assert "error" in pytestconfig.getini("filterwarnings")


def test_what_waits_for_processes_is_tried_twice_and_no_broken_promise(
    play: pytest.Pytester,
) -> None:
    """One passes with its second try, one fails twice; a promise and plain code fail at once."""
    play.makepyfile(TRIED)
    result = play.runpytest_subprocess("-p", "tests.second_try", "-p", "no:cacheprovider", "-rR")

    result.assert_outcomes(passed=1, failed=3)
    again = [line.split("::")[1].split(" ")[0] for line in result.outlines if "RERUN " in line]
    assert again == ["test_late", "test_never"], result.outlines
