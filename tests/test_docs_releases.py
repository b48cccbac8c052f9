"""The page on releases: what stands in it can be applied, and is true of the code."""

import re
from typing import Any, Final

import msgspec
import pytest
import yaml

from rollout_operator.model import names
from rollout_operator.model.decode.flux import (
    decode_image_policy,
    decode_image_repository,
    decode_kustomization,
    decode_oci_repository,
)
from rollout_operator.model.decode.releases import decode_rollout
from rollout_operator.model.releases import ReleaseRollout
from rollout_operator.planning.candidates import FIELDS
from rollout_operator.planning.describe_releases import REMEDIES
from tests.code_rules import ROOT

PAGE: Final = (ROOT / "docs/releases.md").read_text()
HEAD: Final = {"namespace": "prod", "uid": "u", "resourceVersion": "1"}
PREFIX: Final = "rollout.kuberik.com/"


def _read_samples() -> dict[str, bytes]:
    """Return the objects of the page by kind, as the API server would have them."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    found: list[dict[str, Any]] = [one for block in blocks for one in yaml.safe_load_all(block)]
    return {
        one["kind"]: msgspec.json.encode({**one, "metadata": {**one["metadata"], **HEAD}})
        for one in found
    }


def test_the_samples_can_be_obeyed() -> None:
    """RELB-41: and mean each other."""
    samples = _read_samples()
    rollout = decode_rollout(samples["Rollout"])
    assert isinstance(rollout, ReleaseRollout)
    assert rollout.spec.has_bake
    policy = decode_image_policy(samples["ImagePolicy"])
    repository = decode_image_repository(samples["ImageRepository"])
    assert policy.head.name == rollout.spec.policy_name
    assert policy.repository.name == repository.head.name
    source = decode_oci_repository(samples["OCIRepository"])
    applied = decode_kustomization(samples["Kustomization"])
    assert source.rollouts == {"tag": rollout.head.name}
    assert applied.rollouts == {"app_version": rollout.head.name}
    assert source.problems + applied.problems == ()


@pytest.mark.parametrize("annotation", [*FIELDS, names.WAIT_FOR_FLUX])
def test_each_annotation_is_explained(annotation: str) -> None:
    if annotation != names.DEPLOYMENT_MESSAGE:
        assert f"`{annotation.removeprefix(PREFIX)}`" in PAGE


def test_what_an_installation_takes_is_there() -> None:
    """REL-119, REL-120: the kinds, and a component for an overlay."""
    install = PAGE.partition("## Install")[2].partition("\n## ")[0]
    (folder,) = re.findall(r"kubectl apply -k (\S+)", install)
    assert (ROOT / folder / "kustomization.yaml").exists()
    components = re.findall(r"^\| `(releases[a-z-]*)`", install, re.MULTILINE)
    for one in components:
        assert (ROOT / "manifests/components" / one / "kustomization.yaml").exists()
    there = {one.name for one in (ROOT / "manifests/components").glob("releases*")}
    assert {*components} == there


def test_each_reason_is_explained_with_its_remedy() -> None:
    """D-75: as the page and the commands have it."""
    table = PAGE.partition("### What holds a release")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", table, re.MULTILINE)
    assert len(rows) == len(REMEDIES)
    assert {reason: remedy.strip() for reason, remedy in rows} == REMEDIES
