"""What is looked for by name is found by it, without a read of the other files."""

import pytest

from tests.code_rules import ROOT
from tests.named import list_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", ()),
        ("test_a_pod_goes", ("test_a_pod_goes",)),
        ("(test_a or test_B) and test_c", ("test_a", "test_b", "test_c")),
        pytest.param("gzip", (), id="may be of a parameter"),
        pytest.param("test_a and gzip", (), id="may be of a parameter as well"),
        pytest.param("not test_a", (), id="nearly all are meant"),
    ],
)
def test_names_are_taken_where_only_they_are_given(expression: str, names: tuple[str, ...]) -> None:
    assert list_names(expression) == names


def test_files_without_the_name_are_not_read(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(
        test_here="def test_wanted(): ...\ndef test_other(): ...",
        test_wanted_file="def test_inside(): ...",
        test_broken="raise OSError",
    )
    words = ("-p", "tests.named", "-p", "no:cacheprovider", "-q")

    assert pytester.runpytest_subprocess(*words, "-k", "wanted").ret == pytest.ExitCode.INTERRUPTED
    result = pytester.runpytest_subprocess(*words, "-k", "test_WANTED")
    result.assert_outcomes(passed=2)
