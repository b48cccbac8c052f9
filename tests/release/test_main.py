"""The whole of a release: what is made, and that its checksums hold."""

import subprocess
from pathlib import Path

import pytest
import yaml

from release.__main__ import find_differences, make_release
from release.checksums import NAME
from release.source import Source
from tests.kustomize import render
from tests.rendered import MANIFESTS, by_name, container_of

IMAGE = "registry.example.org/rollout-operator:1.2.3"


@pytest.mark.controlplane  # for kubectl, which is built like it
def test_one_file_is_the_overlay_with_the_image_of_the_release(
    source: Source, tmp_path: Path
) -> None:
    """DEP-84: and made again from a clone it has the same bytes."""
    steps = ("chart", "install", "sbom")
    made = make_release(source, tmp_path, steps, IMAGE)
    wanted = by_name(render(MANIFESTS / "overlays" / "install"))
    container_of(wanted)["image"] = IMAGE

    loaded = list(yaml.safe_load_all((tmp_path / "install.yaml").read_text()))
    assert by_name(loaded) == wanted
    assert len(loaded) == len(wanted)
    assert [path.name for path in made][-1] == NAME
    subprocess.run(["sha256sum", "--check", "--strict", NAME], cwd=tmp_path, check=True)
    if source.revision and not source.revision.endswith("-dirty"):
        assert find_differences(source, tmp_path, steps, IMAGE) == []


def test_an_earlier_release_goes_and_nothing_else(source: Source, tmp_path: Path) -> None:
    """What another version has left would be signed with this one."""
    (tmp_path / "notes").touch()
    make_release(source, tmp_path, ("sbom",), IMAGE)
    (old,) = (path for path in tmp_path.glob("*.json"))

    make_release(source, tmp_path, (), IMAGE)

    assert not old.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"notes", NAME}
