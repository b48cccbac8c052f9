"""Words that prose of tests does without: docstrings and comments, not names and not cases."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_rules import ROOT, Module, load_modules

# A sentence has a subject that acts: the API server, another replica, the kubelet, a tenant. Pods
# are called, clients request, failures are reported.
GONE = re.compile(
    r"\b(whoever|(no|some|any|every)body|(some|any|every)one|(un)?ask(s|ed|ing|ers?)?"
    r"|(?<!cannot )tells?(?! (all |its )?pods that)|telling|told(?! (yet |again |pods )?that)"
    r"|(another|the (other|next)) one(?=[,.;:)]|$))\b",
    re.IGNORECASE,
)
QUOTED = re.compile(r"`[^`]*`")
# They name the words that are gone.
RULES = {"tests/test_house_rules.py", "tests/test_house_words.py"}


def list_prose(module: Module) -> Iterator[tuple[int, str]]:
    """Yield each line of docstrings and comments with its number."""
    for node in module.nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from enumerate(text.split("\n"), node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def list_words_gone(module: Module) -> Iterator[str]:
    """Yield lines of prose with a word for which tests have another."""
    if module.path.as_posix() in RULES or not GONE.search(module.source):
        return
    for number, line in list_prose(module):
        if found := GONE.search(QUOTED.sub("", line)):
            yield f"{module.path.as_posix()}:{number}: {found[0]}"


def test_prose_of_tests_names_who_acts() -> None:
    modules = load_modules(ROOT / "tests")

    assert [found for module in modules for found in list_words_gone(module)] == []


@pytest.mark.parametrize(
    ("source", "findings"),
    [
        ('"""A pod.\n\nNobody waits."""', ["a.py:3: Nobody"]),
        ("a = b  # as the pod is told", ["a.py:1: told"]),
        ("# who asks again", ["a.py:1: asks"]),
        ("# a pod, or another one", ["a.py:1: another one"]),
        ("a = 'nobody'  # told that it stays, `ask`", []),
    ],
)
def test_a_word_that_is_gone_is_found(tmp_path: Path, source: str, findings: list[str]) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text(source)

    found = [each for module in load_modules(tmp_path / "p") for each in list_words_gone(module)]
    assert found == [f"p/{each}" for each in findings]
