"""The values of the chart as a table: from the comments of values.yaml, which docs/helm.md shows.

`python -m tests.chart.values_table` writes the table into the page.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from tests.code_rules import ROOT

VALUES: Final = ROOT / "charts" / "rollout-operator" / "values.yaml"
PAGE: Final = ROOT / "docs" / "helm.md"
BEGIN, END = "<!-- begin of values -->\n", "<!-- end of values -->\n"
_MARK: Final = "# -- "
# Longer defaults are looked up in the file.
_LONGEST: Final = 40


class Row(msgspec.Struct, frozen=True):
    key: str
    default: Any
    text: str


def list_rows(path: Path = VALUES) -> list[Row]:
    """Return the values that have a comment, in the order of the file."""
    text = path.read_text()
    lines = text.splitlines()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(_walk(root, "", lines))


def list_undescribed() -> list[str]:
    """Return the keys of values without a comment, neither at them nor at what holds them."""
    described = {row.key for row in list_rows(VALUES)}
    return [
        key for key in _leaves(yaml.safe_load(VALUES.read_text())) if not _within(key, described)
    ]


def _leaves(values: Any, prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _within(key: str, described: set[str]) -> bool:
    parts = key.split(".")
    return any(".".join(parts[:count]) in described for count in range(1, len(parts) + 1))


def _walk(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Row]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        described = _comment(lines, key.start_mark.line)
        if described:
            default = yaml.safe_load(yaml.serialize(value))
            yield Row(key=name, default=default, text=described)
        elif isinstance(value, yaml.MappingNode):
            yield from _walk(value, f"{name}.", lines)


def _comment(lines: list[str], line: int) -> str:
    """Return the comment that ends above a line, without its mark; empty where it has none."""
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("# "):
        line -= 1
        found.insert(0, lines[line].lstrip())
        if found[0].startswith(_MARK):
            return " ".join([found[0].removeprefix(_MARK), *(one[2:] for one in found[1:])])
    return ""


def render_table() -> str:
    """Return the table as the page has it."""
    rows = (f"| `{row.key}` | {_show(row.default)} | {row.text} |\n" for row in list_rows())
    return f"| value | default | meaning |\n| --- | --- | --- |\n{''.join(rows)}"


def _show(default: Any) -> str:
    text = json.dumps(default)
    if default in ("", None):
        return ""
    return f"`{text}`" if len(text) <= _LONGEST else "see the file"


def put_table(page: str) -> str:
    """Return the page with the table of now."""
    return re.sub(f"(?s){BEGIN}.*{END}", lambda _: f"{BEGIN}{render_table()}{END}", page)


if __name__ == "__main__":
    PAGE.write_text(put_table(PAGE.read_text()))
