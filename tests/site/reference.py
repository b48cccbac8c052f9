"""What documents say of custom resources and of reasons: `python -m tests.site.reference`.

The page of custom resources is made of their definitions, which the chart has copies of.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from rollout_operator.model.outcome import Code
from tests.code_rules import ROOT

SOURCE: Final = ROOT / "manifests/crds"
CHART: Final = ROOT / "charts/rollout-operator/charts/crds/crds"
PAGE: Final = ROOT / "docs/reference/crds.md"
MONITORING: Final = ROOT / "docs/monitoring.md"
KINDS: Final = (
    *("zoneawarepoddisruptionbudgets", "replicatemplates", "multiazrollouts"),
    "health-checks/rollouthealthchecks",
)
Schema = dict[str, Any]


def render_page() -> str:
    """Return the page: each kind with its fields, columns and rules."""
    head = [
        "# Custom resources",
        "",
        "<!-- made by `python -m tests.site.reference`, checked by a test -->",
        "",
        "The definitions are in [manifests/crds](../../manifests/crds). [Budgets](../budgets.md),",
        "[scaling](../scaling.md), [MultiAZRollout](../multi-az-rollouts.md) and"
        " [health checks](../health-checks.md) say what the kinds are for.",
    ]
    kinds = [line for name in KINDS for line in _render_kind(_read(name))]
    return "\n".join([*head, *kinds, ""])


def fill_reasons(page: str) -> str:
    """Return a page with what the code says in the rows of its reasons; the last cell is theirs."""
    codes = {str(code): code for code in Code}

    def fill(row: re.Match[str]) -> str:
        if (code := codes.get(row[1])) is None:
            return row[0]
        told = zip((code.meaning, code.remedy), map(str.strip, row.group(2, 3)), strict=True)
        cells = [cell if cell.replace("`", "") == text else text for text, cell in told]
        return " | ".join([f"| `{code}`", *cells, row[4].lstrip()]).replace("|  |", "| |")

    return re.sub(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|(.*)$", fill, page, flags=re.MULTILINE)


def _read(name: str) -> Schema:
    definition = yaml.safe_load((SOURCE / f"{name}.yaml").read_text())
    spec: Schema = definition["spec"]
    return spec


def _render_kind(spec: Schema) -> Iterator[str]:
    (version,) = spec["versions"]
    names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
    yield from ("", f"## {names['kind']}", "", schema["description"], "")
    yield f"- Version: `{spec['group']}/{version['name']}`, {spec['scope'].lower()}"
    yield f"- kubectl: `{names['plural']}`, `{'`, `'.join(names['shortNames'])}`"
    yield f"- Categories: `{'`, `'.join(names['categories'])}`"
    yield f"- Subresources: `{'`, `'.join(version['subresources'])}`"
    yield from ("", "| field | type | meaning |", "| --- | --- | --- |")
    for part in ("spec", "status"):
        yield from _render_fields(schema["properties"][part], part)
    yield from ("", "| column | | meaning |", "| --- | --- | --- |")
    for column in version["additionalPrinterColumns"]:
        wide = "with `-o wide`" if column.get("priority") else ""
        reported = column.get("description") or f"`{column['jsonPath']}`"
        yield f"| {column['name']} | {wide} | {reported} |"


def _render_fields(schema: Schema, path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        own = f"{path}.{name}"
        required = ", required" if name in schema.get("required", []) else ""
        yield f"| `{own}` | {_name_type(field)}{required} | {_describe(field)} |"
        yield from _render_fields(field, own)
        yield from _render_fields(field.get("items", {}), f"{own}[]")


def _name_type(field: Schema) -> str:
    """Return the type of a field, with its bounds and default."""
    least, most = field.get("minimum"), field.get("maximum")
    is_either = field.get("x-kubernetes-int-or-string", False)
    said = ["integer or string" if is_either else field["type"]]
    if least is not None:
        said.append(f"{least} to {most}" if most is not None else f"{least} or more")
    if "enum" in field:
        said.append(" or ".join(f"`{each}`" for each in field["enum"]))
    if "default" in field:
        default = field["default"]
        shown = default if isinstance(default, str) else json.dumps(default)
        said.append(f"default `{shown}`")
    return ", ".join(said)


def _describe(field: Schema) -> str:
    rules = [rule["message"] for rule in field.get("x-kubernetes-validations", [])]
    refused = f" Refused: {'; '.join(rules)}." if rules else ""
    return f"{field.get('description', '')}{refused}".strip().replace("|", "\\|")


if __name__ == "__main__":
    # Of kinds in folders people apply the definitions themselves.
    for copied in CHART.glob("*.yaml"):
        copied.write_text((SOURCE / copied.name).read_text())
    PAGE.write_text(render_page())
    MONITORING.write_text(fill_reasons(MONITORING.read_text()))
