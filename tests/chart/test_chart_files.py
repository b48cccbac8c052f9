"""What the chart consists of: values, their schema, their page, and copies of manifests/."""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from rollout_operator import __version__
from tests.chart.values_table import PAGE, list_undescribed, put_table
from tests.code_rules import ROOT

CHART = ROOT / "charts" / "rollout-operator"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# A chart cannot refer to files outside of it.
COPIES = {
    **{
        f"charts/crds/crds/{name}.yaml": f"crds/{name}.yaml"
        for name in ("multiazrollouts", "replicatemplates", "zoneawarepoddisruptionbudgets")
    },
    **{
        f"files/{name}": f"components/monitoring/{name}"
        for name in ("dashboard.json", "prometheusrule.yaml")
    },
}
# Of a parent chart, and of helm for the chart `crds`.
OF_OTHERS = {"enabled", "crds.global"}


def test_copies_are_what_they_are_copies_of() -> None:
    different = {
        f"cp manifests/{original} charts/rollout-operator/{copy}"
        for copy, original in COPIES.items()
        if (CHART / copy).read_text() != (ROOT / "manifests" / original).read_text()
    }
    assert different == set()


def test_versions_are_those_of_the_package() -> None:
    """DEP-83: the image of this version; the chart's own number moves for itself."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    crds = yaml.safe_load((CHART / "charts/crds/Chart.yaml").read_text())
    assert [crds["version"]] == [each["version"] for each in chart["dependencies"]]


def test_dep82_the_schema_has_each_value_and_no_other() -> None:
    """DEP-82, DEP-43: both ways, and nothing is allowed beside them but what is global."""
    described = set(_list_properties(SCHEMA))
    held = set(_list_keys(VALUES, described))
    assert held == described - OF_OTHERS
    assert SCHEMA["properties"]["global"]["additionalProperties"] is True
    open_ones = [path for path in _list_open(SCHEMA) if path != "global"]
    assert open_ones == []


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = SCHEMA["$defs"][name] if name else schema
    return found


def _list_properties(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of values that the file has to show: those of blocks, not of free maps."""
    for key, inner in schema.get("properties", {}).items():
        path = f"{prefix}{key}"
        if "properties" in inner or inner.get("$ref", "").endswith("/webhook"):
            yield from _list_properties(_resolve(inner), f"{path}.")
        else:
            yield path


def _list_open(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the blocks that allow other keys than theirs."""
    for key, inner in schema["properties"].items():
        if "properties" in inner:
            if inner.get("additionalProperties") is not False:
                yield f"{prefix}{key}"
            yield from _list_open(inner, f"{prefix}{key}.")


def _list_keys(values: dict[str, Any], described: set[str], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if path in described or not isinstance(value, dict):
            yield path
        else:
            yield from _list_keys(value, described, f"{path}.")


def test_dep82_each_value_is_described_in_file_and_page() -> None:
    """DEP-82: the page shows the comments of values.yaml; `python -m tests.chart.values_table`."""
    assert list_undescribed() == []
    page = PAGE.read_text()
    assert put_table(page) == page
    assert page.count("| `") > 100
