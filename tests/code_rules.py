"""The source of both packages as data, and what stands in it: imports and calls.

The rules themselves are in `test_layers.py`.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rollout_operator"
LAB = ROOT / "lab" / "rollout_lab"


@dataclass(frozen=True, kw_only=True)
class Module:
    """One source file. `path` is relative to the folder that holds the top folder."""

    path: Path
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed when a rule requests it first: that takes longer than all rules on text."""
        return ast.parse(self.source, filename=str(self.path))

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All that stands in it, walked through once for all rules."""
        return list(ast.walk(self.tree))

    @property
    def layer(self) -> str:
        """Return the package or top-level module that it belongs to; empty for the top itself."""
        if len(self.path.parts) > 2:
            return self.path.parts[1]
        return "" if self.path.name == "__init__.py" else self.path.stem

    @property
    def folder(self) -> str:
        """Return the folder inside of its layer; empty for a module of the layer itself."""
        return ".".join(self.path.parts[2:-1])

    @property
    def name(self) -> str:
        """Return its dotted name below the top folder."""
        parts = self.path.with_suffix("").parts[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def at(self, node: ast.stmt | ast.expr | ast.excepthandler | ast.arg, what: str) -> str:
        return f"{self.path.as_posix()}:{node.lineno}: {what}"


@cache
def load_package() -> Sequence[Module]:
    """Return all modules of the operator; read once, because that takes longer than a rule."""
    return load_modules(PACKAGE)


@cache
def load_lab() -> Sequence[Module]:
    return load_modules(LAB)


def load_modules(top: Path) -> list[Module]:
    """Return all modules below the folder `top`, in the order of their paths."""
    paths = sorted(top.rglob("*.py"))
    return [Module(path=one.relative_to(top.parent), source=one.read_text()) for one in paths]


def list_imports(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import with the full dotted name of what it brings; relative ones start with `.`.

    Imports inside functions and for type checkers count like all others.
    """
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node, f"{source}.{alias.name}"


def list_calls(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call with the dotted name of what is called, as far as it is one."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            yield node, dotted(node.func)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression; a part that is no name is left empty."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
