"""The picture and the table in `docs/architecture.md`, from the package.

`python -m tests.architecture` writes them anew; `tests/test_layers.py` compares.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.code_rules import PACKAGE, ROOT, Module, list_imports, load_lab, load_package

DOCUMENT: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- drawn by `python -m tests.architecture` -->\n"
END: Final = "<!-- end of what is drawn -->\n"


def render_architecture(modules: Iterable[Module]) -> str:
    """Return the picture of the operator's layers in Mermaid, and the table of all folders."""
    modules = [module for module in modules if module.name not in ("__main__", "")]
    operator = [module for module in modules if module.path.parts[0] == PACKAGE.name]
    return f"\n{_render_picture(operator)}\n{_render_table(modules)}\n"


def replace_drawing(document: str, drawing: str) -> str:
    """Return the document with another drawing. Raises ValueError where it has no place for one."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN!r} and {END!r} in {DOCUMENT.name}")
    return f"{head}{begin}{drawing}{end}{tail}"


def reduce_arrows(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows that no longer way replaces. The graph has no circles."""
    beyond: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in beyond:
            beyond[name] = {far for near in graph[name] for far in {near, *reach(near)}}
        return beyond[name]

    return [
        (source, target)
        for source in sorted(graph)
        for target in sorted(graph[source])
        if not any(target in reach(other) for other in graph[source] - {target})
    ]


def _render_picture(modules: Iterable[Module]) -> str:
    folders: dict[str, set[str]] = {}
    graph: dict[str, set[str]] = {}
    for module in modules:
        folders.setdefault(module.layer, set()).add(module.folder)
        graph.setdefault(module.layer, set())
        for _, name in list_imports(module):
            top, *rest = name.split(".")
            if top == PACKAGE.name and rest and (PACKAGE / rest[0]).is_dir():
                graph[module.layer].add(rest[0])
        graph[module.layer].discard(module.layer)
    lines = ["```mermaid", "flowchart TD"]
    for layer in sorted(graph):
        inner = ", ".join(sorted(folders[layer] - {""}))
        lines.append(f'  {layer}["<b>{layer}</b>{f"<br/>{inner}" if inner else ""}"]')
    lines += [f"  {source} --> {target}" for source, target in reduce_arrows(graph)]
    return "\n".join([*lines, "```", ""])


def _render_table(modules: Iterable[Module]) -> str:
    lines = ["| folder | modules | what stands there |", "| --- | --- | --- |"]
    rooms: dict[Path, list[Module]] = {}
    for module in modules:
        if len(module.path.parts) > 2:
            rooms.setdefault(module.path.parent, []).append(module)
    for folder, inside in sorted(rooms.items()):
        (package,) = [one for one in inside if one.path.stem == "__init__"]
        others = ", ".join(f"`{one.path.stem}`" for one in inside if one is not package)
        subject = (ast.get_docstring(package.tree) or "").partition("\n")[0]
        name = folder.as_posix().removeprefix(f"{PACKAGE.name}/")
        lines.append(f"| `{name}` | {others or '-'} | {subject} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Write what is drawn into the document; 1 where that changed it."""
    old = DOCUMENT.read_text()
    new = replace_drawing(old, render_architecture([*load_package(), *load_lab()]))
    DOCUMENT.write_text(new)
    return int(new != old)


if __name__ == "__main__":
    sys.exit(main())
