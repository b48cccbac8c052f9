"""What is said to be tested, and of whom rights are said, is so."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.code_rules import ROOT
from tests.rendered import MANIFESTS
from tests.system.grants import shipped_grants
from tests.test_packaging import PROJECT
from tests.world.manifests import read_manifests

SUPPORT: Final = (ROOT / "docs/support.md").read_text()
READS: Final = {"get", "list", "watch"}
# What a component lets be written, in the words of the page.
WORDS: Final = {
    ("patch", "statefulsets"): "patch StatefulSets",
    ("update", "secrets"): "read and write the one Secret",
    ("patch", "replicatemplates/status"): "write the status of ReplicaTemplates",
    ("patch", "multiazrollouts/status"): "write the status of MultiAZRollouts",
    ("patch", "rollouts"): "patch Rollouts",
    ("patch", "rollouts/status"): "and write their status",
    **dict.fromkeys(
        [(verb, "rolloutgates") for verb in ("create", "patch", "delete")],
        "create, patch and delete RolloutGates",
    ),
    ("patch", "rolloutschedules/status"): "write the status of RolloutSchedules and HealthChecks",
    ("patch", "healthchecks/status"): "HealthChecks",
    ("patch", "clusterrolloutschedules/status"): "write the status and update the finalizers",
    ("update", "clusterrolloutschedules/finalizers"): "the finalizers of ClusterRolloutSchedules",
    ("create", "events"): "write Events everywhere",
    ("patch", "events"): "write Events everywhere",
    ("update", "rolloutschedules/finalizers"): "finalizers of RolloutSchedules",
    ("patch", "ocirepositories"): "patch OCIRepositories",
    ("patch", "kustomizations"): "Kustomizations of Flux",
    ("create", "configmaps"): "create ConfigMaps",
    ("patch", "configmaps"): "and write one",
    ("patch", "validatingwebhookconfigurations"): "patch webhook configurations",
    ("patch", "mutatingwebhookconfigurations"): "patch webhook configurations",
}
SECURITY: Final = (ROOT / "SECURITY.md").read_text()


def name_tested(what: str) -> str:
    """Return the cell of what is tested."""
    (row,) = (line for line in SUPPORT.splitlines() if line.startswith(f"| {what} |"))
    return row.split("|")[2].strip()


def test_kubernetes_is_the_one_that_the_tests_build() -> None:
    module = (ROOT / "tests/controlplane/go.mod").read_text()
    version = re.search(r"k8s\.io/kubernetes v(\d+\.\d+)\.", module)

    assert version is not None
    assert name_tested("Kubernetes").startswith(f"{version[1]}:")


def test_python_is_the_one_that_is_wanted_and_that_of_the_image() -> None:
    wanted = PROJECT["project"]["requires-python"].removeprefix(">=")
    image = re.match(r"#!/usr/bin/python(\S+)", (ROOT / "image/rollout-operator").read_text())

    assert image is not None
    assert name_tested("Python") == f"{wanted}, by the whole gate. The image runs on {image[1]}"
    assert f"| {wanted} or newer |" in SUPPORT


def test_the_version_is_below_one() -> None:
    """D-77."""
    assert (ROOT / "rollout_operator/__init__.py").read_text().count('__version__ = "0.') == 1


def test_nothing_installs_what_no_registry_has() -> None:
    """D-77: until there is a release, of the name there might be another one's package."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    messages = [path for top in ("rollout_operator", "lab") for path in (ROOT / top).rglob("*.py")]
    wanted = {
        (page.name, what)
        for page in (*pages, *messages)
        for what in re.findall(r"pip install ([^`\s]+)", page.read_text())
    }
    assert {"main.py", "tracing.py", "simulate.md"} <= {name for name, _ in wanted}
    assert {each for each in wanted if not each[1].strip("'").startswith(".")} == set()


def test_the_base_reads_no_secret() -> None:
    """SEC-19: as the page about a stolen token says."""
    resources = {resource for rule in _rules() for resource in rule["resources"]}

    assert "none at all in the base" in SECURITY
    assert not resources & {"secrets", "pods/exec", "configmaps"}


def test_a_stolen_token_can_do_what_the_page_says() -> None:
    """SEC-19: each write of the base stands there in words."""
    writes = {
        (resource, verb)
        for rule in _rules()
        for resource in rule["resources"]
        for verb in {*rule["verbs"]} - READS
    }

    assert writes == {
        ("pods", "delete"),
        ("pods", "patch"),
        ("statefulsets/status", "update"),
        ("zoneawarepoddisruptionbudgets/status", "patch"),
        ("leases", "patch"),
        ("leases", "create"),
        ("events", "create"),
        ("events", "patch"),
    }
    for words in (
        "delete any pod of the namespace, and patch any pod",
        "`status.currentRevision` of StatefulSets, the status of budgets, Events, and the Lease",
    ):
        assert words in SECURITY


def test_each_component_that_may_write_stands_beside_what_it_may_write() -> None:
    """SEC-19: for a tenant who checks what the account can do."""
    points = [" ".join(point.split()) for point in re.split(r"\n\n|\n- ", SECURITY)]
    missing = [
        (component, verb, resource)
        for component, verb, resource in _component_writes()
        if not [p for p in points if f"`{component}`" in p and WORDS[verb, resource] in p]
    ]
    assert missing == []


def _component_writes() -> Iterator[tuple[str, str, str]]:
    for role in MANIFESTS.glob("components/*/*role.yaml"):
        component = role.parent.name
        for verb, resource in shipped_grants(f"components/{component}"):
            if verb not in READS:
                yield component, verb, resource


def _rules() -> list[dict[str, Any]]:
    (role,) = [one for one in read_manifests() if one["kind"] == "Role"]
    rules: list[dict[str, Any]] = role["rules"]
    return rules
