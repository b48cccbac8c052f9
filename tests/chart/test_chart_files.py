"""What the chart consists of: values, their schema, their page, and copies of manifests/."""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from rollout_operator import __version__
from tests.chart.rendering import walk
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
    known = dict(_walk_schema(SCHEMA))
    blocks = {path for path, schema in known.items() if "properties" in schema}
    free = {path for path in blocks if known[path].get("additionalProperties") is not False}
    assert (free, known["global"]["additionalProperties"]) == ({"global"}, True)
    # What is no block may have any keys.
    described = {*known} - blocks
    within = tuple(f"{path}." for path in described)
    held = {path for path, _ in walk(VALUES) if not path.startswith(within)}
    assert held - blocks == described - OF_OTHERS


def _walk_schema(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the schema says of each value that the file has to show, by its path."""
    for key, inner in schema.get("properties", {}).items():
        is_webhook = inner.get("$ref", "").endswith("/webhook")
        found = SCHEMA["$defs"]["webhook"] if is_webhook else inner
        yield f"{prefix}{key}", found
        yield from _walk_schema(found, f"{prefix}{key}.")


def test_dep82_each_value_is_described_in_file_and_page() -> None:
    """DEP-82: the page shows the comments of values.yaml; `python -m tests.chart.values_table`."""
    assert list_undescribed() == []
    page = PAGE.read_text()
    assert put_table(page) == page
    assert page.count("| `") > 100
