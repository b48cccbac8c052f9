"""Lists and counts read alike in all reasons."""

import json

import pytest

from rollout_operator.planning.wording import count, format_json, join_names, join_some, verb


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", ""),
        ("a", "a"),
        ("ab", "a and b"),
        ("abc", "a, b and c"),
        ("abcd", "a, b, c and 1 more"),
        ("abcdefg", "a, b, c and 4 more"),
    ],
)
def test_names_are_joined_and_cut(names: str, text: str) -> None:
    assert join_names(names) == text


def test_names_that_are_not_known_are_counted() -> None:
    assert join_some(["a"], total=7) == "a and 6 more"


def test_numbers_agree_with_nouns_and_verbs() -> None:
    assert [count(number, "pod") for number in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]
    assert [verb(number, "waits", "wait") for number in (0, 1, 2)] == ["wait", "waits", "wait"]


def test_json_commands_no_terminal_and_says_the_same() -> None:
    content = {"name": "a\x1b[2J\x9b2J\x7f\u202eé\u2066\ufeff\n"}

    text = format_json(content)

    assert json.loads(text) == content
    assert "é" in text
    assert all(char.isprintable() for char in text.replace("\n", ""))
