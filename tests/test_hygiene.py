"""What must not stand in any file of the repository: traces of the machine that it was made on."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_rules import ROOT

# Package hosts by the word they share, so that the list does not find itself.
_HOSTS = "|".join(
    ("py" + "pi", "python" + "hosted", "npm" + "js", "mav" + "en", "proxy.go" + "lang")
)
TRACES = {
    "host of a package registry": re.compile(rf"https?://[a-z0-9.-]*({_HOSTS})[a-z0-9.-]*", re.I),
    "path of a machine": re.compile(
        r"(?<![\w.$}/-])/("
        + "|".join(("ro" + "ot", "wo" + "rk", "ho" + "me", "Us" + "ers"))
        + r")/\w"
    ),
    "folder beside the checkout": re.compile(r"\.\./sha" + r"red\b"),
    "secret key": re.compile("BEGIN [A-Z ]*PRIVATE" + " KEY"),
}
# Checksums of Go modules are no prose.
SKIPPED = {".sum"}


def list_traces(path: Path) -> Iterator[str]:
    """Yield what stands in a text file and must not, with its line."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in TRACES.items():
            if pattern.search(line):
                yield f"{path.name}:{number}: {what}"


def repository_files() -> list[Path]:
    """Return the files that are in the repository, or would be after `git add`."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file() and path.suffix not in SKIPPED]


def test_the_repository_keeps_no_trace_of_a_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to it is unknown")

    assert [trace for path in repository_files() for trace in list_traces(path)] == []
