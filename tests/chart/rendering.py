"""The chart as real helm renders it, and what tests check of the result."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.code_rules import ROOT
from tests.rendered import NAMESPACE
from tests.world.helm import HELM

CHART: Final = ROOT / "charts" / "rollout-operator"
# As everything is called in manifests/.
RELEASE: Final = "rollout-operator"
# Not what it takes, but what a machine may take on which much else runs.
HELM_LIMIT_SECONDS: Final = 600

Values = Mapping[str, Any]


def walk(values: Values, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values by their paths, sections before what is in them."""
    for key, value in values.items():
        yield f"{path}{key}", value
        if isinstance(value, dict):
            yield from walk(value, f"{path}{key}.")


class ChartError(Exception):
    """Helm refused; the text is what it printed."""


def run_helm(*words: str | Path, stdin: str = "") -> str:
    """Return what helm prints. Raises ChartError with what it printed on stderr."""
    done = subprocess.run(
        [HELM.locate(), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=HELM_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ChartError(f"{done.stdout}{done.stderr}")
    return done.stdout


def render_all(
    values: Values, *, release: str = RELEASE, namespace: str = NAMESPACE, chart: Path = CHART
) -> list[dict[str, Any]]:
    """Return all objects for these values, hooks too. Raises ChartError."""
    words = ("template", release, chart, "--namespace", namespace, "--values", "-")
    text = run_helm(*words, stdin=yaml.safe_dump(dict(values)))
    found = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    return [item for one in found for item in (one["items"] if one["kind"] == "List" else [one])]


def is_hook(one: Mapping[str, Any]) -> bool:
    """Return whether helm creates an object beside the release."""
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def render_chart(values: Values, **where: Any) -> list[dict[str, Any]]:
    """Return the objects of the release for these values. Raises ChartError."""
    return [one for one in render_all(values, **where) if not is_hook(one)]
