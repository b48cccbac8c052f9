"""The dashboard for Grafana: `python -m tests.dashboard` writes the file that is shipped.

What it shows stands in `dashboard.yaml`: rows of panels, each with a sentence that says what to
look for. Here it is laid out and put into Grafana's words.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final

import msgspec
import yaml

from tests.rendered import MANIFESTS, MONITORING

PATH: Final = MANIFESTS / "components" / MONITORING / "dashboard.json"
PANELS: Final = Path(__file__).with_suffix(".yaml")
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# All panels are eight units high; a row of the grid is 24 wide.
WIDTH: Final = 24
HEIGHT: Final = 8
# Of one installation, or all; an empty cluster label matches as well.
HERE: Final = 'cluster=~"$cluster", namespace=~"$namespace"'
GROUP: Final = f'{HERE}, rollout_group=~"$rollout_group"'
# Label, the selector of what it is read from, and whether one may choose several.
VARIABLES: Final = (
    ("cluster", "rollout_operator_build_info"),
    ("namespace", 'rollout_operator_build_info{cluster=~"$cluster"}'),
    ("rollout_group", f"rollout_operator_group_reconciles_total{{{HERE}}}"),
)


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel: what it shows, in which unit, and what to look for."""

    title: str
    text: str
    queries: Mapping[str, str]
    """Expressions by their legend."""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    is_stacked: bool = False


def load_rows() -> dict[str, list[Panel]]:
    """Return the panels of each row by its title, with selectors in their expressions."""
    text = PANELS.read_text().replace("<here>", HERE).replace("<group>", GROUP)
    return {row["title"]: [Panel(**one) for one in row["panels"]] for row in yaml.safe_load(text)}


def render_dashboard() -> str:
    dashboard = {
        "uid": "rollout-operator-own",
        "title": "Rollout operator",
        "description": "Rollouts, disruption budgets, downscales and the operator itself.",
        "tags": ["rollout-operator"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_list_variables())},
        "panels": list(_list_panels()),
    }
    return json.dumps(dashboard, indent=2) + "\n"


def list_expressions() -> list[str]:
    """Return all expressions, with Grafana's variables in them."""
    return [query for row in load_rows().values() for one in row for query in one.queries.values()]


def _list_variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    for label, series in VARIABLES:
        yield {
            "name": label,
            "label": label.replace("_", " ").capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": f"label_values({series}, {label})", "refId": label},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _list_panels() -> Iterator[dict[str, Any]]:
    numbers, y = count(1), 0
    for title, row in load_rows().items():
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        yield {"id": next(numbers), "type": "row", "title": title, "gridPos": place, "panels": []}
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            place = {"h": HEIGHT, "w": panel.width, "x": x, "y": y}
            yield _make_panel(panel, next(numbers), place)
            x += panel.width
        y += HEIGHT


def _make_panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {"fillOpacity": 10, "showPoints": "never"}
        custom["stacking"] = {"mode": "normal" if panel.is_stacked else "none"}
    is_moment = panel.kind in {"stat", "bargauge"}
    bounds = {"min": 0, "max": 1} if panel.unit == "percentunit" else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **bounds, "custom": custom},
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if is_moment else {},
        "targets": [
            {
                "refId": letter,
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
                "instant": is_moment,
                "range": not is_moment,
            }
            for letter, (legend, query) in zip(ascii_uppercase, panel.queries.items(), strict=False)
        ],
    }


if __name__ == "__main__":
    PATH.write_text(render_dashboard())
