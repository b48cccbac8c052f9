"""The option `--update-golden`: who writes files, who only compares, and what is shown."""

import pytest

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

TEST = """
from pathlib import Path
from tests.goldens import Golden

def test_text(golden: Golden) -> None:
    golden.check(Path("kept") / "tale.txt", "first\\nsecond\\n")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a project of one test that compares two lines."""
    pytester.makeini(INI)
    pytester.makeconftest("pytest_plugins = ['tests.goldens']")
    pytester.makepyfile(TEST)
    return pytester


def test_a_text_that_is_not_kept_fails_and_nothing_is_written(project: pytest.Pytester) -> None:
    result = project.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["+first", "+second", "if that is right: pytest --update-golden"])
    assert not (project.path / "kept").exists()


def test_the_option_writes_it_and_then_it_holds(project: pytest.Pytester) -> None:
    written = project.runpytest("--update-golden")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["*golden files written: 1*", "+first", "+second"])

    project.runpytest().assert_outcomes(passed=1)
    again = project.runpytest("--update-golden")
    again.stdout.fnmatch_lines(["*golden files written: 0*"])


@pytest.mark.parametrize("kept", ["first\n", "first\nsecond", "first\nsecond\nthird\n"])
def test_any_other_text_fails_with_what_is_different(project: pytest.Pytester, kept: str) -> None:
    (project.path / "kept").mkdir()
    path = project.path / "kept" / "tale.txt"
    path.write_text(kept)

    result = project.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tale.txt*"])
    assert path.read_text() == kept

    project.runpytest("--update-golden").assert_outcomes(passed=1)
    assert path.read_text() == "first\nsecond\n"
