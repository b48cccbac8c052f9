"""What no linter knows: the few places of broad catches, tasks without a parent, shared names."""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.code_rules import Module, dotted, list_calls, load_lab, load_package

# Where anything may arrive and the show must go on: the worker of a queue, and the answer to a
# review.
CATCH_ALL = {"controllers/worker.py", "web/dispatch.py"}
# Parents themselves: both cancel what they have started when they are stopped.
TASK_MAKERS = {"aio/tasks.py", "apiserver/garbage.py"}


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


def map_shared_names(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the public classes whose name stands for two things, and where."""
    places: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    return {name: found for name, found in places.items() if len(found) > 1}


def _below_top(module: Module) -> str:
    return Path(*module.path.parts[1:]).as_posix()


Rule = Callable[[Module], Iterator[str]]


def test_both_packages_keep_the_rules() -> None:
    modules = [*load_package(), *load_lab()]
    found = [
        finding
        for module in modules
        for rule in (list_broad_catches, list_orphan_tasks)
        for finding in rule(module)
    ]

    assert found == []
    assert map_shared_names(modules) == {}
