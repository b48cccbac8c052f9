"""Words that tests do without: in docstrings and comments, in names, and in ids of cases."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_rules import ROOT, Module, load_modules

# A sentence has a subject that acts: the API server, another replica, the kubelet, a tenant. Pods
# are called, clients request, failures are reported. In lower case, as the text is searched.
GONE = re.compile(
    r"\b_*(whoever|(no|some|any|every)body|(some|any|every)one|(un)?ask(s|ed|ing|ers?)?(_\w+)?"
    r"|(?<!cannot )tells?(?! (all |its )?pods that)|telling|told(?! (yet |again |pods )?that)"
    r"|keepers?|withdr(awn|aws?|awal|ew)|(tak|giv)(en?|es|ing) (it |them |that )?back"
    r"|(live|last|next|first|each|every|two|old) looks?(?! (up|like|at)|-)"
    r"|(another|the (other|next)) one(?=[,.;:)]|$))\b",
)
# Grants are released, downscales reverted, pods un-prepared, objects read or reconciled.
NAMES = re.compile(
    r"(?<![a-zA-Z])((un)?ask(s|ed|ers?|ing)?|tells?|telling|told|keepers?|withdr[a-z]+|whom|whoever"
    r"|(no|some|any|every)body|(some|any|every)one|(tak|giv)(e|es|en|ing)_(it_|them_)?back"
    r"|looked(?=_(at|for|after|through))|(?<=_)who)(?![a-z])|(Asked|Told|Keeper)(?![a-z])"
)
CASE = re.compile(r"\bdef (\w+)|\bid=f?\"([^\"]*)\"")
QUOTED = re.compile(r"`[^`]*`")
# They name the words that are gone.
RULES = {"tests/test_house_rules.py", "tests/test_house_words.py"}


def list_prose(module: Module) -> Iterator[tuple[int, str]]:
    """Yield each line of docstrings with its number, and of comments where a word may be gone."""
    for node in module.nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from enumerate(text.split("\n"), node.lineno)
    if not any("#" in line and GONE.search(line) for line in module.source.splitlines()):
        return  # to find its comments takes longer than all else
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def list_words_gone(module: Module) -> Iterator[str]:
    """Yield functions, ids of cases, lines of prose and variables with such a word.

    Modules without one are not parsed for it.
    """
    path, source = module.path.as_posix(), module.source
    if path in RULES:
        return
    for case in CASE.finditer(source):
        if found := NAMES.search(case[1] or "") or GONE.search((case[2] or "").lower()):
            number = source.count("\n", 0, case.start()) + 1
            yield f"{path}:{number}: {found[0]}"
    if not GONE.search(source.lower()):
        return
    for number, line in list_prose(module):
        if found := GONE.search(QUOTED.sub("", line).lower()):
            yield f"{path}:{number}: {found[0]}"
    for node, name in module.definitions:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NAMES.search(name):
            yield module.at(node, name)


def test_tests_name_what_acts() -> None:
    modules = load_modules(ROOT / "tests")

    assert [found for module in modules for found in list_words_gone(module)] == []


@pytest.mark.parametrize(
    ("source", "findings"),
    [
        ('"""A pod.\n\nNobody waits."""', ["a.py:3: nobody"]),
        ("a = b  # as the pod is told", ["a.py:1: told"]),
        ("# who asks again", ["a.py:1: asks"]),
        ("# on a live look, and taken back", ["a.py:1: live look"]),
        ("# a pod, or another one", ["a.py:1: another one"]),
        ("a = 'nobody'  # told that it stays, `ask`", []),
        ("def test_who_acts(asked): ...", ["a.py:1: who", "a.py:1: asked"]),
        ("def test_a_pod_that_is_looked_at(): ...", ["a.py:1: looked"]),
        ("def is_taken_back(): asked_uid = 1", ["a.py:1: taken_back", "a.py:1: asked_uid"]),
        ('param(1, id="nobody waits")', ["a.py:1: nobody"]),
        ('param(1, id="told that it stays")\ndef a_look_up(task, is_looked_up): ...', []),
    ],
)
def test_a_word_that_is_gone_is_found(tmp_path: Path, source: str, findings: list[str]) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text(source)

    found = [each for module in load_modules(tmp_path / "p") for each in list_words_gone(module)]
    assert found == [f"p/{each}" for each in findings]
