"""What goes into the layers of the image."""

from pathlib import Path

import pytest

from release.image.build import Platform, list_layers
from release.image.debian import BaseError
from release.image.rootfs import architecture_here, write_interpreter


def test_dep27_a_layer_that_names_the_folder_of_its_build_is_refused(tmp_path: Path) -> None:
    """DEP-27: as byte code does that an import has written; other builds have other folders."""
    platform = Platform(
        architecture="amd64", packages=(), base=tmp_path / "base", added=tmp_path / "added"
    )
    for folder in (platform.base, platform.added):
        folder.mkdir()
        (folder / "file").write_text("content")
    first, second = list_layers(platform, epoch=7)
    assert first.content == second.content

    (platform.base / "os.pyc").write_text(f"{tmp_path}/base/os.py")

    with pytest.raises(BaseError, match=f"names {tmp_path}"):
        list_layers(platform, epoch=7)


def test_dep27_the_interpreter_of_a_build_leaves_no_byte_code(tmp_path: Path) -> None:
    """DEP-27: only compileall does, which names the folders of the image."""
    written = write_interpreter(tmp_path, tmp_path / "python").read_text()

    assert "PYTHONDONTWRITEBYTECODE=1" in written
    assert architecture_here() in ("amd64", "arm64")
