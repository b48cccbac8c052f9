"""The wheel and the source distribution: complete, the same each time; the sources' tests run."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

from release.distributions import build_distributions
from release.source import Source
from tests.code_rules import ROOT
from tests.test_packaging import PROJECT

pytestmark = pytest.mark.slow

HOME: Final = "https://github.com/rollout-operator/rollout-operator"
# A few: of the core, of the manifests, and one that wants a repository where there is one.
SOME_TESTS: Final = (
    "tests/planning/test_wording.py",
    "tests/manifests/test_network.py",
    "tests/test_hygiene.py",
)


def test_the_source_distribution_is_the_whole_repository(source: Source, built: list[Path]) -> None:
    """DEP-27: documents, manifests and tests too, and nothing else of a checkout."""
    with tarfile.open(built[1]) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    added = {"PKG-INFO", "setup.cfg"}
    metadata = {name for name in names if name.startswith("rollout_operator.egg-info/")}

    assert names - metadata == {*source.files} | added


def test_tests_run_in_what_is_unpacked(built: list[Path], tmp_path: Path) -> None:
    """Of the unpacked package, and not of this checkout."""
    with tarfile.open(built[1]) as tar:
        tar.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    (tree / "tests" / "test_where.py").write_text(
        f"import rollout_operator\n\n\ndef test_where():\n"
        f"    assert rollout_operator.__file__.startswith({str(tree)!r})\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PYTEST")}

    ended = subprocess.run(
        [*words, *SOME_TESTS, "tests/test_where.py"],
        cwd=tree,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("place", "folder"), [(0, ""), (2, "lab/")], ids=["the operator", "the lab"]
)
def test_a_wheel_holds_the_package_and_says_what_it_is(
    source: Source, built: list[Path], place: int, folder: str
) -> None:
    """DEP-27: each file of the package and no other; the licence; the version."""
    with zipfile.ZipFile(built[place]) as wheel:
        names = set(wheel.namelist())
        (about,) = (name for name in names if name.endswith("/METADATA"))
        metadata = Parser().parsestr(wheel.read(about).decode())
    within = f"{folder}rollout_{'lab' if folder else 'operator'}/"
    package = {name.removeprefix(folder) for name in source.files if name.startswith(within)}

    assert {name for name in names if ".dist-info/" not in name} == package
    assert (metadata["Version"], metadata["License-Expression"]) == (source.version, "Apache-2.0")
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    if not folder:
        _assert_shown(metadata)


def _assert_shown(metadata: Message) -> None:
    """D-77: what an index shows; of the README it shows no file beside it."""
    assert metadata["Author"]
    assert metadata["Summary"]
    assert "kubernetes" in metadata["Keywords"].split(",")
    urls = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))
    assert {*urls} == {"Homepage", "Documentation", "Changelog", "Issues", "Security"}
    assert [url for url in urls.values() if not url.startswith(HOME)] == []
    classifiers = "\n".join(metadata.get_all("Classifier", []))
    oldest, *_ = named = re.findall(r":: Python :: (3\.\d+)", classifiers)
    assert metadata["Requires-Python"] == f">={oldest}"
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    launcher = (ROOT / "image" / "rollout-operator").read_text().splitlines()[0]
    assert any(f"python{version} " in launcher for version in named)
    assert metadata["Description-Content-Type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)\s]+)\)", str(metadata.get_payload()))
    assert targets
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []


def test_all_are_the_same_when_they_are_made_again(
    source: Source, built: list[Path], tmp_path: Path
) -> None:
    """DEP-27."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "scratch").mkdir()

    again = build_distributions(source, tmp_path / "dist", tmp_path / "scratch")

    assert [path.name for path in again] == [path.name for path in built]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]
