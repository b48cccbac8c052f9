"""What no linter knows: a pure core, circles of imports, broad catches, tasks without a parent.

Who may import whom stands in `pyproject.toml`, and `lint-imports` checks it.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture import DOCUMENT, render_architecture, replace_drawing
from tests.code_rules import Module, dotted, list_calls, list_imports, load_lab, load_package

PURE = {"model", "planning"}
PURE_MODULES = {"gates/model.py", "gates/plan.py"}
# A time zone by its name is a file of the machine.
IMPURE = {"asyncio", "time", "random", "os", "socket", "ssl", "logging", "zoneinfo"}
# Files and the clock of the machine need no import to get at.
IMPURE_CALLS = {"open", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
# Where anything may arrive and the show must go on: the worker of a queue, and the answer to a
# review.
CATCH_ALL = {"controllers/worker.py", "web/dispatch.py"}
# Parents themselves: both cancel what they have started when they are stopped.
TASK_MAKERS = {"aio/tasks.py", "apiserver/deletions.py"}


def list_impure(modules: Iterable[Module]) -> Iterator[str]:
    """Yield what modules of the core import or call, and must not."""
    for module in modules:
        is_folder = not PURE.isdisjoint((module.layer, module.folder))
        if not is_folder and _below_top(module) not in PURE_MODULES:
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


def list_broad_catches(module: Module) -> Iterator[str]:
    """Yield catches of Exception outside of the two places, and of BaseException anywhere."""
    may_catch = _below_top(module) in CATCH_ALL
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            names = _caught(node.type)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
            names = [dotted(argument) for argument in node.args]
        else:
            continue
        if "BaseException" in names or ("Exception" in names and not may_catch):
            yield module.at(node, f"catches {', '.join(names)}")


def _caught(kind: ast.expr | None) -> list[str]:
    if kind is None:
        return ["BaseException"]
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return [dotted(each).removeprefix("builtins.") for each in kinds]


def list_orphan_tasks(module: Module) -> Iterator[str]:
    """Yield tasks without a parent: started neither in a task group nor where parents are made."""
    if _below_top(module) in TASK_MAKERS:
        return
    groups = _task_groups(module)
    for call, name in list_calls(module):
        owner, _, what = name.rpartition(".")
        if what in {"create_task", "ensure_future"} and owner not in groups:
            yield module.at(call, f"{name}()")


def _task_groups(module: Module) -> set[str]:
    """Return the names that `async with asyncio.TaskGroup()` gives."""
    return {
        dotted(item.optional_vars)
        for node in module.nodes
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if item.optional_vars is not None
        and isinstance(item.context_expr, ast.Call)
        and dotted(item.context_expr.func) == "asyncio.TaskGroup"
    }


def _below_top(module: Module) -> str:
    return Path(*module.path.parts[1:]).as_posix()


def test_both_packages_keep_the_rules() -> None:
    rules = (list_broad_catches, list_orphan_tasks)
    modules = [*load_package(), *load_lab()]

    assert [one for module in modules for rule in rules for one in rule(module)] == []


def test_the_picture_is_that_of_the_imports() -> None:
    """Repair it by `python -m tests.architecture`."""
    document = DOCUMENT.read_text()
    drawing = render_architecture([*load_package(), *load_lab()])
    assert replace_drawing(document, drawing) == document


def test_the_core_is_pure() -> None:
    """D-02: a decision is a function of its snapshot."""
    assert [*list_impure(load_package())] == []


@pytest.mark.parametrize("load", [load_package, load_lab])
def test_no_modules_import_each_other_in_a_circle(load: Callable[[], Sequence[Module]]) -> None:
    assert list_circle(load()) == ()
