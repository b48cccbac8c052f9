"""The option `--update-golden`: without it files are only compared, with it they are written."""

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
    golden.check(Path("golden") / "trace.txt", "first\\nsecond\\n")
"""


@pytest.mark.parametrize("kept", [None, "first\n", "first\nsecond", "first\nsecond\nthird\n"])
def test_another_text_fails_until_it_is_written(
    pytester: pytest.Pytester, kept: str | None
) -> None:
    pytester.makeini(INI)
    pytester.makeconftest("pytest_plugins = ['tests.goldens']")
    pytester.makepyfile(TEST)
    path = pytester.path / "golden" / "trace.txt"
    if kept is not None:
        path.parent.mkdir()
        path.write_text(kept)

    compared = pytester.runpytest()
    compared.assert_outcomes(failed=1)
    compared.stdout.fnmatch_lines(["*trace.txt*", "if that is right: pytest --update-golden"])
    assert (path.read_text() if path.exists() else None) == kept

    written = pytester.runpytest("--update-golden")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["*golden files written: 1*", "*trace.txt*"])
    assert path.read_text() == "first\nsecond\n"
    pytester.runpytest().assert_outcomes(passed=1)
