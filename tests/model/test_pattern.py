"""Patterns of tenants: bounded, in linear time, matched as a whole (SEC-16, D-41, W-28)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import LONGEST_NAME, InvalidInput
from rollout_operator.model.units import (
    LONGEST_PATTERN,
    compile_extraction,
    compile_pattern,
    has_open_alternation,
)


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


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a{1000}){1000}", "invalid repetition size"),
        (r"([\pL]{100})", "pattern too large"),
        ("(" * 2000, "pattern of 2000 bytes"),
        ("\u00e9" * 513, "pattern of 1026 bytes"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid perl operator"),
        ("a)(b", "unexpected )"),
        ("(a)\\", "trailing"),
    ],
)
def test_sec_16_what_is_not_compiled(pattern: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace(")", r"\)")):
        compile_pattern(pattern)


def test_sec_16_the_longest_pattern_and_name() -> None:
    compiled = compile_pattern("(" + "a" * (LONGEST_PATTERN - 3) + "?)")
    assert compiled.capture("a" * (LONGEST_PATTERN - 3), 1) is None, "no name is so long"
    longest = "a" * LONGEST_NAME
    assert compile_pattern("(a+)").capture(longest, 1) == longest
    assert compile_pattern("(a+)").capture(longest + "a", 1) is None


def test_a_bad_pattern_writes_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput):
        compile_pattern("([bad")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        pytest.param("a|(b)", "b", "b", id="an alternative is the whole"),
        pytest.param("a|(b)", "xb", None, id="W-28 not its end alone"),
        pytest.param("(a)|b", "ax", None, id="W-28 not its beginning alone"),
        pytest.param("(a)|b", "b", None, id="W-28 a group that took no part"),
        pytest.param("(a*)b", "b", "", id="a group that holds nothing"),
        pytest.param("(a)$", "a\n", None, id="the end is the end"),
        pytest.param("(?i)(A)", "a", "a", id="flags are the pattern's own"),
        pytest.param("(a)", "", None, id="an empty name"),
    ],
)
def test_d41_a_match_is_of_the_whole_name(pattern: str, text: str, found: str | None) -> None:
    assert compile_pattern(pattern).capture(text, 1) == found


@pytest.mark.parametrize(
    ("pattern", "is_open"),
    [
        ("a|(b)", True), ("(a)|b", True), ("(a)(b)|", True), ("(?:a|b)|c", True), ("(?i)a|b", True),
        ("(a|b)", False), ("", False), (r"a\|(b)", False), ("[|](a)", False), ("[]|](a)", False),
        ("[^]|](a)", False), (r"[\]|](a)", False), ("[[:alpha:]|](a)", False),
        (r"\Qa|b\E(c)", False), (r"\Qa\E|(c)", True), ("(a(b|c)d)", False),
    ],
)  # fmt: skip
def test_w28_where_grouping_makes_a_difference(pattern: str, is_open: bool) -> None:
    compile_pattern(pattern)
    assert has_open_alternation(pattern) is is_open


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


@pytest.mark.parametrize(
    ("pattern", "template", "expected"),
    [
        ("b", "", "abc-12"),
        ("x", "$0", None),
        ("(?P<w>[a-z]+)-(?P<n>[0-9]+)", "$n.$w", "12.abc"),
        ("(?P<w>[a-z]+)-(?P<n>[0-9]+)", "$nx${n}x$2", "12x12"),
        ("(b)|(?P<x>z)", "<$1$x$2$3$y>", "<b>"),
        ("[0-9]", "$$0 $ ${0 $-$01", "$0 $ ${0 $-"),
        ("", "$0v", ""),
        ("[a-z]+", "$0\u00e9${0}\u00e9", "abc\u00e9"),
    ],
)
def test_what_is_extracted_of_a_tag(pattern: str, template: str, expected: str | None) -> None:
    """RELB-03: as Go's `Regexp.ExpandString` has it."""
    assert compile_extraction(pattern, template)("abc-12") == expected


@pytest.mark.parametrize("pattern", ["(", "(?!x)", "(a{1000}){1000}"])
def test_what_extracts_nothing_says_why(pattern: str) -> None:
    """RELB-03."""
    with pytest.raises(InvalidInput):
        compile_extraction(pattern, "$0")
