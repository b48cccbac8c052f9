"""The picture of the architecture is that of the code."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.architecture import DOCUMENT, reduce_arrows, render_architecture, replace_drawing
from tests.code_rules import PACKAGE, load_lab, load_modules, load_package

LAYERS: Final = {"aio", "model", "rollout_operator", "telemetry"}


def test_the_picture_is_that_of_the_imports() -> None:
    document = DOCUMENT.read_text()

    assert (
        replace_drawing(document, render_architecture([*load_package(), *load_lab()])) == document
    )


def test_walks_pass_modules_that_are_there() -> None:
    """A name alone stands in the folder of the one before it, or in one named in the same walk."""
    walks = DOCUMENT.read_text().partition("## Six walks\n")[2].partition("\n## ")[0]
    known = {module.name.replace(".", "/") for module in load_package()}
    folders = set[str]()
    passed = 0
    for line in walks.splitlines():
        folders = set() if line.startswith("**") else folders
        for name in re.findall(r"`([a-z_/]+)`", line):
            folder, _, stem = name.rpartition("/")
            folders.add(folder)
            assert name in known or name in LAYERS or {f"{at}/{stem}" for at in folders} & known, (
                name
            )
            passed += 1

    assert passed > 60


def test_a_new_import_changes_the_picture(tmp_path: Path) -> None:
    package = tmp_path / PACKAGE.name
    for layer in ("model", "aio", "planning"):
        (package / layer).mkdir(parents=True)
        (package / layer / "__init__.py").write_text(f'"""What {layer} is."""\n')
    before = render_architecture(load_modules(package))
    (package / "planning" / "a.py").write_text(f"from {PACKAGE.name}.model import b\n")
    after = render_architecture(load_modules(package))

    assert "planning --> model" not in before
    assert "planning --> model" in after
    assert "| `planning` | `a` | What planning is. |" in after


def test_an_arrow_that_a_longer_way_replaces_is_left_out() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}

    assert reduce_arrows(graph) == [("a", "b"), ("b", "c")]


def test_a_document_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"architecture\.md"):
        replace_drawing("# Architecture\n", "")
