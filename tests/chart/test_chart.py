"""The chart as a whole: values that are null, hooks, notes, a parent chart, and what lint finds."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rollout_operator.cli.main import get_command
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Config
from tests.chart.rendering import (
    CHART,
    RELEASE,
    ChartError,
    is_hook,
    render_all,
    render_chart,
    run_helm,
    walk,
)
from tests.code_rules import ROOT
from tests.rendered import NAMESPACE, by_name, container_of

pytestmark = pytest.mark.controlplane

SECURITY: Final = (ROOT / "SECURITY.md").read_text()
DEFAULTS: Final = yaml.safe_load((CHART / "values.yaml").read_text())
EVERYTHING: Final = {
    key: {"enabled": True}
    for key in (
        *("multiAZRollout", "mirroring", "serviceMonitor", "prometheusRule", "dashboard"),
        *("releases", "healthChecks", "zoneTracker"),
    )
} | {
    "webhooks": {"clientCertificates": {"enabled": True}},
    "networkPolicy": {
        "enabled": True,
        **{key: ["10.0.0.0/8"] for key in ("fromApiServer", "toApiServer", "nodes")},
    },
}
# Refused by their names where they are null: values.txt has each.
NEEDED: Final = {
    *("image.repository", "podSecurityContext.seccompProfile.type", "releases.metadata"),
    *("zoneTracker.configMapName", "webhooks.port", "webhooks.certificate.source"),
    *("webhooks.selfSignedCertSecretName", "webhooks.clientCertificates.configMapName"),
    *("webhooks.clientCertificates.clientName", "networkPolicy.monitoringNamespace"),
}
# Kubernetes has a default for each, or does without.
LEFT_OUT: Final = re.compile(
    r"\.(\w+Seconds|failureThreshold|replicas|revisionHistoryLimit|imagePullPolicy|failurePolicy"
    r"|runAs(User|Group)|(requests|limits)\.\w+|labels\.grafana_dashboard)$"
)


def render_nulls(paths: list[str]) -> str:
    """Return what helm prints where all is on, and these values are null."""
    nulls = [word for path in paths for word in ("--set", f"{path}=null")]
    return run_helm(
        "template", RELEASE, CHART, "--values=-", *nulls, stdin=yaml.safe_dump(EVERYTHING)
    )


def test_a_key_without_a_value_is_an_empty_one() -> None:
    """DEP-43: `podAnnotations:` with nothing behind it is null, which takes the default away."""
    on = {"networkPolicy.fromApiServer", "networkPolicy.toApiServer", "networkPolicy.nodes"}
    empty = {path for path, value in walk(DEFAULTS) if value in ({}, [])} - on

    assert {"podAnnotations", "multiAZRollout.watchNamespaces"} <= empty
    assert render_nulls(sorted(empty)) == render_nulls([])


@pytest.mark.parametrize(
    "path",
    [
        *(path for path, value in walk(DEFAULTS) if isinstance(value, dict) and value),
        *("hostNetwork", "serviceAccount.create"),
    ],
)
def test_dep82_a_section_without_a_value_is_left_out_or_refused_by_its_name(path: str) -> None:
    """DEP-82: `releases:` with nothing behind it was an error of the template."""
    told = ""
    try:
        run_helm("template", RELEASE, CHART, "--set", f"{path}=null")
    except ChartError as error:
        told = str(error)
    assert not told or f"): {path}: null, or missing in values of another" in told


def test_dep82_any_other_value_may_be_null() -> None:
    plain = {path for path, value in walk(DEFAULTS) if not isinstance(value, dict | list | bool)}
    others = plain - NEEDED
    objects = yaml.load_all(render_nulls(sorted(others)), yaml.CSafeLoader)
    leaves = [leaf for one in objects if one for leaf in _list_leaves(one)]

    assert len(others) > 40
    assert [place for place, value in leaves if value is None and not LEFT_OUT.search(place)] == []
    texts = [value for place, value in leaves if "dashboard" not in place]
    broken = re.compile(r"<nil>|^-[\w.-]+=$|^:|/:")
    assert [each for each in texts if isinstance(each, str) and broken.search(each)] == []


def _list_leaves(part: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from _list_leaves(value, f"{place}.{key}")
        else:
            yield f"{place}.{key}", value


def test_dep82_lint_finds_nothing(tmp_path: Path) -> None:
    """DEP-82: neither of the defaults nor of all that can be switched on."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(EVERYTHING))
    for words in ((), ("--values", str(values))):
        assert "1 chart(s) linted, 0 chart(s) failed" in run_helm("lint", "--strict", CHART, *words)


def test_hooks_run_commands_that_there_are_and_leave_nothing() -> None:
    """DEP-48, DEP-80, DEP-85, DEP-88: SECURITY.md has them deleted where helm could not."""
    hooks = [one for one in render_all({}) if is_hook(one)]
    runs = [one for one in hooks if one["kind"] in ("Job", "Pod")]
    for one in runs:
        assert get_command(one["spec"].get("template", one)["spec"]["containers"][0]["args"][0])
    left = {one["kind"].lower() for one in hooks} - {"job", "pod"}
    labels = ("app.kubernetes.io/part-of=rollout-operator", "app.kubernetes.io/component=hooks")
    (command,) = re.findall(rf"kubectl delete (\S+) --selector {','.join(labels)}", SECURITY)
    assert {*command.split(",")} == left
    # By these the Service, and SECURITY.md, find pods.
    for one in (*hooks, *(each["spec"]["template"] for each in runs if "template" in each["spec"])):
        found = one["metadata"]["labels"]
        assert {*labels} <= {f"{key}={value}" for key, value in found.items()}
        assert found["app.kubernetes.io/name"] == "rollout-operator-hooks"
    assert "evict pods, scale\nStatefulSets and create budgets" in SECURITY


def test_dep88_helm_finds_a_log_for_each_hook_of_the_test() -> None:
    """DEP-88: `helm test --logs` reads that of a pod of the same name, whatever the hook's kind."""
    text = run_helm("template", "a-release", CHART)
    heads = [one["metadata"] for one in yaml.safe_load_all(text) if one and is_hook(one)]
    hooks = [one["name"] for one in heads if one["annotations"]["helm.sh/hook"] == "test"]
    assert hooks == ["a-release-rollout-operator-test"] * 2


POLICIES: Final = "multiAZRollout.enabled=true"
NOTES: Final = {
    "": ("StatefulSets of namespace default that", True),
    f"{POLICIES},multiAZRollout.watchNamespaces={{loki}}": ("of namespace loki, and", True),
    f"{POLICIES},multiAZRollout.watchNamespaces={{loki,mimir}}": (
        "of namespaces loki, mimir, and",
        True,
    ),
    POLICIES: ("of all namespaces, and", False),
    f"{POLICIES},namespaceSelector=null": ("of all namespaces, and", True),
    f"{POLICIES},namespaceSelector.matchExpressions=null": ("of all namespaces, and", False),
    f"{POLICIES},namespaceSelector.matchLabels.a=b": ("of all namespaces, and", True),
    f"{POLICIES},webhooks.enabled=false": ("of all namespaces, and", True),
}


@pytest.mark.parametrize("given", NOTES)
def test_the_notes_say_which_namespaces(given: str, tmp_path: Path) -> None:
    """DEP-87: and warn where webhooks cover fewer."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    notes = (chart / "templates/NOTES.txt").read_text()
    # Helm prints them only where it reaches a cluster.
    text = (
        f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}\nnotes: {{{{ include "notes" . | toJson }}}}'
    )
    (chart / "templates/notes.yaml").write_text(text)
    shown = yaml.safe_load(
        run_helm("template", RELEASE, chart, "--show-only=templates/notes.yaml", "--set", given)
    )["notes"]

    words, is_covered = NOTES[given]
    assert words in " ".join(shown.split())
    assert ("WARNING" in shown) is not is_covered
    assert "\n\n\n" not in shown
    assert shown.startswith("The operator")


def test_dep80_the_kinds_are_installed_unless_they_are_switched_off() -> None:
    """DEP-98, DEP-80: `crds.enabled`, as in grafana's chart."""
    for is_on in (True, False):
        words = ("--include-crds", "--set", f"crds.enabled={is_on}".lower())
        text = run_helm("template", RELEASE, CHART, *words)
        assert text.count("kind: CustomResourceDefinition\nmetadata:\n  name") == 3 * is_on
        assert ("helm.sh/hook: pre-upgrade" in text) is is_on


def test_dep43_a_parent_chart_takes_it_under_an_alias(tmp_path: Path) -> None:
    """DEP-42, DEP-43: by the names that grafana's has there, with its condition."""
    shutil.copytree(CHART, tmp_path / "charts" / "rollout-operator")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    named = {"name": "rollout-operator", "alias": "rollout_operator", "version": version}
    dependency = {**named, "condition": "rollout_operator.enabled"}
    parent = {"apiVersion": "v2", "name": "mimir", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    for is_on in (True, False):
        values = {"global": {"clusterDomain": "x."}, "rollout_operator": {"enabled": is_on}}
        objects = render_all(values, release="mimir", chart=tmp_path)
        names = {one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"}
        assert names == ({"mimir-rollout-operator"} if is_on else set())
        assert not [one for one in objects if "_" in one["metadata"]["name"]]


def test_a_plain_start_needs_no_flag_beyond_the_originals() -> None:
    """DEP-29: with the webhooks off, the namespace is all that is set."""
    objects = by_name(render_chart({"webhooks": {"enabled": False}}))
    assert read_config(container_of(objects)["args"]) == Config(namespace=NAMESPACE)
