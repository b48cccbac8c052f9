"""Patterns of tenants: bounded, in linear time, matched as a whole (SEC-16, D-41, W-28)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import compile_pattern, has_open_alternation


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("(a+)+$", "a" * 252 + "!"),
        ("((a|a)*)*b", "a" * 253),
        ("(.*)(.*)(.*)(.*)(.*)x", "a" * 253),
        ("([a-z]+)*-([a-z]+)*-([0-9]+)*x", "a-" * 126),
        (f"({'a?' * 250}{'a' * 250})", "a" * 250 + "b"),
    ],
)
def test_sec_16_pathological_patterns_are_harmless(pattern: str, subject: str) -> None:
    """A backtracking engine would not come back from any of these."""
    compiled = compile_pattern(pattern)
    begin = time.process_time()
    for _ in range(10):
        assert compiled.capture(subject, 1) is None
    assert time.process_time() - begin < 1


def test_a_bad_pattern_writes_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput):
        compile_pattern("([bad")
    assert capfd.readouterr() == ("", "")


@given(st.text(st.sampled_from("ab|()[]\\QE^-:?*"), max_size=40))
def test_w28_only_an_open_alternation_changes_what_matches(pattern: str) -> None:
    """Without one, a pattern between anchors matches the same with a group of its own."""
    try:
        compile_pattern(pattern)
        loose = compile_pattern(f"(^{pattern}$)")
    except InvalidInput:
        return
    if has_open_alternation(pattern) or "\\Q" in pattern:
        return
    whole = compile_pattern(f"({pattern})")
    for text in ("", "a", "b", "ab", "aab", "|", "(", "^"):
        assert whole.capture(text, 1) == loose.capture(text, 1)
