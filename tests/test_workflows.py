"""The forge's workflows do what a developer types, with what is pinned and few rights."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.code_rules import ROOT

GITHUB: Final = ROOT / ".github"
PINNED: Final = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
# Pushes a branch, for which it needs the token that others leave out.
PUSHES: Final = {"update"}
WORKFLOWS: Final = sorted((GITHUB / "workflows").glob("*.yml"))
Mapping = dict[Any, Any]


def read(path: Path) -> Mapping:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


def list_steps(path: Path) -> Iterator[Mapping]:
    for job in read(path)["jobs"].values():
        yield from job["steps"]


def list_targets(path: Path) -> list[str]:
    """Return what a workflow makes, in order."""
    runs = (step.get("run", "") for step in list_steps(path))
    return [target for run in runs for target in re.findall(r"\bmake ([a-z-]+)", run)]


def test_each_stage_of_the_gate_has_its_workflow() -> None:
    assert {path.stem: list_targets(path) for path in WORKFLOWS} == {
        "lint": ["lint", "docs"],
        "fast": ["test-fast"],
        "tests": ["controlplane", "test"],
        "contract": ["prove"],
        "release": ["test", "release"],
        "update": ["lock", "test-fast", "docs", "venv"],
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_what_is_pinned_and_few_rights(path: Path) -> None:
    """A tag can be moved to other code; code of a pull request never runs with rights of ours."""
    workflow, steps = read(path), [*list_steps(path)]
    uses = re.findall(r"uses: (.*)$", path.read_text(), re.MULTILINE)
    more = {name for name, job in workflow["jobs"].items() if "permissions" in job}
    checkouts = {
        step.get("with", {}).get("persist-credentials")
        for step in steps
        if step.get("uses", "").startswith("actions/checkout@")
    }

    assert uses
    assert [each for each in uses if not PINNED.fullmatch(each)] == []
    assert workflow["permissions"] == {"contents": "read"}
    assert more <= {"release", "update", "base"}
    assert "pull_request_target" not in path.read_text()
    assert checkouts == ({None} if path.stem in PUSHES else {False}), "the token stays in it"
    # A branch or title becomes code where it stands in a script; in a variable it does not.
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 90
        assert re.fullmatch(r"ubuntu-\d\d\.04", job["runs-on"])


def test_a_release_is_signed_by_the_identity_of_its_workflow() -> None:
    """No key is kept anywhere; a tag other than the version is refused."""
    workflow = read(GITHUB / "workflows/release.yml")
    runs = "\n".join(step.get("run", "") for step in list_steps(GITHUB / "workflows/release.yml"))

    assert workflow["jobs"]["release"]["permissions"]["id-token"] == "write"
    assert workflow["jobs"]["build"]["needs"] == "gate"
    assert workflow["jobs"]["release"]["needs"] == "build"
    assert "secrets." not in (GITHUB / "workflows/release.yml").read_text()
    assert 'cosign sign --yes "${IMAGE%:*}@$(cat digest)"' in runs
    assert "cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS" in runs
    assert "__version__" in runs


def test_pythons_are_the_oldest_and_that_of_the_image() -> None:
    (fast,) = read(GITHUB / "workflows/fast.yml")["jobs"].values()
    image = (ROOT / "image/rollout-operator").read_text().splitlines()[0]
    oldest, newest = fast["strategy"]["matrix"]["python"]

    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()
    assert f"python{newest} " in image


def test_every_module_of_go_is_kept_up_to_date() -> None:
    updates = read(GITHUB / "dependabot.yml")["updates"]
    modules = {f"/{path.parent.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("go.mod")}
    (gomod,) = (each for each in updates if each["package-ecosystem"] == "gomod")

    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "gomod"}
    assert {*gomod["directories"]} == modules
