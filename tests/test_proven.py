"""`make test` leaves out what is marked `prove`, and `make prove` runs that alone."""

import pytest

SETTINGS = """
[pytest]
asyncio_default_fixture_loop_scope = function
markers = prove: as in the project
"""
CASES = """
import pytest

def test_plain(): pass

@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_seeds(seed): pass
"""


def test_only_what_is_marked_waits_for_make_prove(pytester: pytest.Pytester) -> None:
    pytester.makeini(SETTINGS)
    pytester.makepyfile(CASES)
    words = ("-p", "tests.proven", "-p", "no:cacheprovider", "-v")

    gate = pytester.runpytest(*words)
    gate.assert_outcomes(passed=2, deselected=1)
    gate.stdout.fnmatch_lines(["*test_plain*", "*test_seeds[[]1]*"])

    proof = pytester.runpytest(*words, "--prove")
    proof.assert_outcomes(passed=1, deselected=2)
    proof.stdout.fnmatch_lines(["*test_seeds[[]2]*"])
