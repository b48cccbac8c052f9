"""Verbs that say what a function of the package returns."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_rules import Module, load_modules, load_package

# By the verb that a name begins with: what its return annotation holds.
RETURNED = {
    "find": re.compile(r"\bNone\b"),
    "list": re.compile(r"\b(list|tuple|Sequence|Iterator|Iterable|AsyncIterator)\b"),
    "assess": re.compile(r"\bNone\b|Verdict\b|Finding\b"),
}


def list_false_verbs(module: Module) -> Iterator[str]:
    """Yield functions whose name promises what their annotation does not return."""
    for node in module.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
            continue
        if node.name == "_list":
            continue  # the request of an informer, and it stores what is returned
        verb = node.name.lstrip("_").partition("_")[0]
        if verb in RETURNED and not RETURNED[verb].search(ast.unparse(node.returns)):
            yield module.at(node, node.name)


def test_a_verb_says_what_is_returned() -> None:
    assert [found for module in load_package() for found in list_false_verbs(module)] == []


@pytest.mark.parametrize(
    ("source", "is_false"),
    [
        ("def find_pod() -> Pod | None: ...", False),
        ("def _find_pod() -> Pod: ...", True),
        ("async def list_pods() -> tuple[Pod, ...]: ...", False),
        ("def list_pods() -> Mapping[str, Pod]: ...", True),
        ("def assess_pod() -> Refusal | None: ...", False),
        ("def assess_pod() -> HealthVerdict: ...", False),
        ("def assess_pod() -> bool: ...", True),
        ("def listen() -> Server: ...", False),
    ],
)
def test_a_verb_that_says_something_else_is_found(
    tmp_path: Path, source: str, is_false: bool
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text(source)

    found = [each for module in load_modules(tmp_path / "p") for each in list_false_verbs(module)]
    assert bool(found) is is_false
