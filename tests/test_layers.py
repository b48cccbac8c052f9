"""What import-linter cannot say of imports: the core is pure, and no modules import in a circle.

Who may import whom stands in `pyproject.toml`, and `lint-imports` checks it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.code_rules import (
    PACKAGE,
    Module,
    list_calls,
    list_imports,
    load_lab,
    load_modules,
    load_package,
)

NAME = PACKAGE.name
PURE = {"model", "planning"}
# A time zone by its name is a file of the machine.
IMPURE = {"asyncio", "time", "random", "os", "socket", "ssl", "logging", "zoneinfo"}
# Files and the clock of the machine need no import to get at.
IMPURE_CALLS = {"open", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def list_impure(modules: Iterable[Module]) -> Iterator[str]:
    """Yield what modules of the core import or call, and must not."""
    for module in modules:
        if module.layer not in PURE:
            continue
        for node, name in list_imports(module):
            if name.partition(".")[0] in IMPURE:
                yield module.at(node, name)
        for call, name in list_calls(module):
            if name in IMPURE_CALLS:
                yield module.at(call, f"{name}()")


def list_circle(modules: Iterable[Module]) -> Sequence[str]:
    """Return modules that import each other in a circle, first and last the same; else nothing."""
    known = {module.name: module for module in modules}
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, module in known.items():
        for _, imported in list_imports(module):
            top, *below = imported.split(".")
            parts = below if top == module.path.parts[0] else []
            # A module, or else a name out of it.
            targets = [".".join(parts), ".".join(parts[:-1])]
            graph[name].update([one for one in targets if one in known and one != name][:1])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def test_the_core_is_pure() -> None:
    """D-02: a decision is a function of its snapshot."""
    assert [*list_impure(load_package())] == []


@pytest.mark.parametrize("load", [load_package, load_lab])
def test_no_modules_import_each_other_in_a_circle(load: Callable[[], Sequence[Module]]) -> None:
    assert list_circle(load()) == ()


@pytest.mark.parametrize(
    ("file", "source", "finding"),
    [
        ("planning/a.py", "def b():\n    import time", ":2: time"),
        ("model/decode/a.py", "from os.path import join", ":1: os.path.join"),
        ("model/a.py", "now = datetime.now(UTC)", ":1: datetime.now()"),
        ("model/a.py", "open('b')", ":1: open()"),
        ("web/a.py", "import time; open('b')", None),
    ],
)
def test_impure_code_is_found(tmp_path: Path, file: str, source: str, finding: str | None) -> None:
    _write(tmp_path / NAME / file, source)

    found = [*list_impure(load_modules(tmp_path / NAME))]
    assert found == ([f"{NAME}/{file}{finding}"] if finding else [])


def test_a_circle_is_found(tmp_path: Path) -> None:
    _write(tmp_path / NAME / "aio/a.py", f"from {NAME}.aio.b import c")
    _write(tmp_path / NAME / "aio/b.py", f"from {NAME}.aio import a")

    assert {*list_circle(load_modules(tmp_path / NAME))} == {"aio.a", "aio.b"}


def _write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
