"""What a package index shows of us."""

import os
import re
import shutil
import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

from tests.code_rules import ROOT
from tests.test_hygiene import repository_files
from tests.test_packaging import PROJECT

pytestmark = pytest.mark.thorough

HOME: Final = "https://github.com/rollout-operator/rollout-operator"
BUILD: Final = (
    "import sys; from setuptools import build_meta as hooks; "
    "print(getattr(hooks, sys.argv[1])(sys.argv[2]))"
)


def build(hook: str, target: Path, checkout: Path) -> Path:
    """Run one hook of the build, as an installer does, and return what it has made."""
    ended = subprocess.run(
        [sys.executable, "-c", BUILD, hook, target],
        cwd=checkout,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=True,
        text=True,
    )
    return target / ended.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what is in the repository: a build writes beside its sources."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to it is unknown")
    copy = tmp_path_factory.mktemp("checkout")
    for path in repository_files():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return copy


@pytest.fixture(scope="module")
def metadata(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Message:
    made = build("prepare_metadata_for_build_wheel", tmp_path_factory.mktemp("wheel"), checkout)
    return Parser().parsestr((made / "METADATA").read_text())


def test_the_licence_is_the_whole_apache_licence() -> None:
    """D-77: word for word, from the title to the appendix."""
    text = (ROOT / "LICENSE").read_text()

    assert text.lstrip().startswith("Apache License")
    assert all(f"\n   {number}. " in text for number in range(1, 10))
    assert text.rstrip().endswith("limitations under the License.")


def test_the_metadata_say_what_an_index_shows(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Author"]
    assert metadata["Summary"]
    assert "kubernetes" in metadata["Keywords"].split(",")
    assert len(metadata.get_all("Classifier", [])) >= 10


def test_every_address_is_of_one_home(metadata: Message) -> None:
    urls = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))

    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues", "Security"}
    assert [url for url in urls.values() if not url.startswith(HOME)] == []


def test_the_pythons_that_are_named_are_those_that_are_wanted(metadata: Message) -> None:
    """The oldest is the one that is required, and the image's is one of them."""
    name = "Programming Language :: Python :: "
    named = [
        each.removeprefix(name)
        for each in metadata.get_all("Classifier", [])
        if re.fullmatch(rf"{name}3\.\d+", each)
    ]
    launcher = (ROOT / "image" / "rollout-operator").read_text()

    assert metadata["Requires-Python"] == f">={named[0]}"
    assert any(f"python{version} " in launcher.splitlines()[0] for version in named)
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{named[0].replace('.', '')}"


def test_links_of_the_readme_lead_somewhere_from_an_index(metadata: Message) -> None:
    """An index shows the README without the files beside it."""
    targets = re.findall(r"\]\(([^)\s]+)\)", str(metadata.get_payload()))

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert targets
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
