"""Pytest plugin: `pytest -k test_some_name` reads only the files in which the name stands.

Collecting all tests takes four seconds. Words that do not begin with `test_` may be part of the id
of a parameter, which no file need hold as it is: with one of those, and with `not`, pytest collects
all tests. `conftest.py` loads this.
"""

import re
from pathlib import Path

import pytest

_NAME = re.compile(r"test_\w+")


def list_names(expression: str) -> tuple[str, ...]:
    """Return the names in an expression of -k, none where a test without them may be meant."""
    words = [word for word in re.findall(r"[^\s()]+", expression) if word not in ("and", "or")]
    return tuple(map(str.lower, words)) if all(map(_NAME.fullmatch, words)) else ()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of tests with none of the names in it; None: others decide."""
    names = list_names(config.option.keyword)
    if not names or collection_path.suffix != ".py":
        return None
    text = f"{collection_path}\n{collection_path.read_text()}".lower()
    return None if any(name in text for name in names) else True
