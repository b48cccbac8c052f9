"""The dashboard of the component `monitoring`: as made, whole, and of what there is."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.dashboard import HEIGHT, PATH, WIDTH, list_expressions, load_rows, render_dashboard
from tests.expressions import FUNCTIONS, assert_balanced, assert_known, functions_of, metrics_of
from tests.rendered import MONITORING, NAMESPACE, by_name, install

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

DASHBOARD: Final[dict[str, Any]] = json.loads(PATH.read_text())
VARIABLES: Final = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
# What Grafana makes lists of, and chooses the time by.
BUILT_IN: Final = {"__rate_interval"}


def test_the_file_is_the_one_that_is_made() -> None:
    assert PATH.read_text() == render_dashboard(), "python -m tests.dashboard"


def test_dep77_the_component_brings_it_where_grafana_finds_it(tmp_path: Path) -> None:
    """DEP-77: in the operator's namespace, by the label that Grafana's sidecar requests."""
    (tmp_path / "folder").mkdir()
    found = by_name(install(tmp_path / "folder", MONITORING))[
        "ConfigMap", "rollout-operator-dashboard"
    ]

    assert found["metadata"]["namespace"] == NAMESPACE
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"] == {"rollout-operator.json": PATH.read_text()}
    assert len(PATH.read_bytes()) < 200_000, "kubectl apply keeps a copy in an annotation"


def test_dep76_what_one_chooses_comes_from_our_own_metrics() -> None:
    """DEP-76: those who run Loki or Tempo alone see no empty lists."""
    assert [*VARIABLES] == ["datasource", "cluster", "namespace", "rollout_group"]
    queries = {
        name: one["query"]["query"] for name, one in VARIABLES.items() if name != "datasource"
    }
    for name, query in queries.items():
        expression, label = query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        assert label == name
        assert_known(expression, set())
    assert {one["allValue"] for one in VARIABLES.values() if "allValue" in one} == {".*"}


@pytest.mark.parametrize("expression", list_expressions())
def test_an_expression_reads_what_there_is(expression: str) -> None:
    """DEP-67, DEP-77: each metric and each label exists, and is of no other exporter."""
    assert_balanced(expression)
    assert functions_of(expression) <= FUNCTIONS
    assert metrics_of(expression)
    assert_known(expression, set())
    used = set(re.findall(r"\$(\w+)", expression))
    assert used <= {*VARIABLES} | BUILT_IN


def test_panels_are_whole_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not fields & taken, panel["title"]
        assert place["x"] + place["w"] <= WIDTH
        assert place["h"] in {1, HEIGHT}
        taken |= fields
    assert len({panel["id"] for panel in panels}) == len(panels)
    titles = [panel["title"] for panel in panels if panel["type"] != "row"]
    assert len(set(titles)) == len(titles)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert panel["targets"]
            assert panel["datasource"]["uid"] == "${datasource}"


def test_a_legend_names_labels_that_are_left() -> None:
    """A label that the expression sums away would be shown as nothing."""
    for panel in (panel for row in load_rows().values() for panel in row):
        for legend, query in panel.queries.items():
            kept = re.findall(r"\bby \(([^)]*)\)", query)
            named = set(re.findall(r"\{\{(\w+)\}\}", legend))
            left = {label for one in kept for label in re.split(r"[,\s]+", one)}
            assert named <= (left or {"namespace", "pod"}), panel.title
