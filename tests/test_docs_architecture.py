"""The picture of the architecture is that of the code."""

import re
from typing import Final

from tests.architecture import DOCUMENT, render_architecture, replace_drawing
from tests.code_rules import load_lab, load_package

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
