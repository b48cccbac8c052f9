"""Pytest plugin: texts that are kept in files, and compared as a whole.

A test that requests `golden` compares with it. `pytest --update-golden` writes the files anew and
shows at the end what changed: that is what is reviewed. `conftest.py` loads this.
"""

import difflib
from pathlib import Path
from typing import Final

import msgspec
import pytest

OPTION: Final = "--update-golden"
_CHANGES: Final = pytest.StashKey[list[str]]()


class Golden(msgspec.Struct, frozen=True):
    """Compares texts with files, or writes the files."""

    updates: bool
    changes: list[str]
    """What was written, as differences."""

    def check(self, path: Path, text: str) -> None:
        """Fail with the differences where the file holds another text, or is not there."""
        kept = path.read_text("utf-8") if path.exists() else ""
        if text == kept:
            return
        change = _compare(path.name, kept, text)
        if not self.updates:
            pytest.fail(f"{change}\nif that is right: pytest {OPTION}", pytrace=False)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        self.changes.append(change)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return what texts are compared with."""
    return Golden(bool(request.config.getoption(OPTION)), request.config.stash[_CHANGES])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="write the golden files anew")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Write in one process: workers would write over each other's changes of a file."""
    if config.getoption(OPTION):
        config.option.numprocesses = 0


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CHANGES] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    changes = config.stash[_CHANGES]
    if config.getoption(OPTION):
        terminalreporter.section(f"golden files written: {len(changes)}")
    for change in changes:
        terminalreporter.write_line(change)


def _compare(name: str, kept: str, text: str) -> str:
    old, new = kept.splitlines(), text.splitlines()
    lines = difflib.unified_diff(old, new, f"{name} as kept", f"{name} now", lineterm="")
    return "\n".join(lines) or f"{name}: another end of lines"
