"""The guards of `conftest.py` fail the tests that they should."""

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


def test_tasks_left_over_and_blocked_loops_fail_their_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(INI)
    pytester.makepyfile(GUARDED)
    plugins = ("tests.steady_loop", "tests.watchdogs", "no:cacheprovider")
    result = pytester.runpytest_subprocess("-q", *(f"-p{name}" for name in plugins))

    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(["*left over: *forgotten*", "*the loop stood still for ?.? s*"])
    assert "error" in pytestconfig.getini("filterwarnings")
