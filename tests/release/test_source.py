"""What belongs to a release: the repository's files, with modes and times of the commit."""

import subprocess
from pathlib import Path

import pytest

from release.source import copy_source, read_source

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit, and a file beside it."""
    root = tmp_path / "it"
    (root / "rollout_operator").mkdir(parents=True)
    (root / "rollout_operator" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (root / "pyproject.toml").touch()
    (root / "run").touch(mode=0o700)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*GIT, *words], cwd=root, check=True)
    (root / "notes").touch()
    return root


def test_only_files_of_the_repository_count(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEP-27."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    source = read_source(checkout)
    shown = subprocess.run(
        [*GIT, "log", "-1", "--format=%H %ct"], cwd=checkout, capture_output=True, check=True
    ).stdout.split()

    assert source.files == ("pyproject.toml", "rollout_operator/__init__.py", "run")
    assert (source.version, source.revision) == ("1.2.3", shown[0].decode())
    assert source.epoch == int(shown[1])


def test_a_change_shows_in_the_revision(checkout: Path) -> None:
    (checkout / "run").write_text("changed")

    assert read_source(checkout).revision.endswith("-dirty")


def test_copies_have_the_modes_of_git_and_the_time_of_the_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEP-27."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    copy_source(read_source(checkout), tmp_path / "copy")
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]

    assert {path.stat().st_mtime for path in files} == {86400}
    modes = {path.name: path.stat().st_mode & 0o777 for path in files}
    assert modes == {"__init__.py": 0o644, "pyproject.toml": 0o644, "run": 0o755}


def test_an_unpacked_distribution_is_a_source_too(checkout: Path) -> None:
    subprocess.run(["rm", "-r", checkout / ".git"], check=True)
    (checkout / "dist").mkdir()
    (checkout / "dist" / "old").touch()
    source = read_source(checkout)

    assert source.revision == ""
    assert ("notes" in source.files, "dist/old" in source.files) == (True, False)
