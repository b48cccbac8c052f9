"""A kustomization as `kubectl kustomize` renders it."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.code_rules import ROOT
from tests.world.kubectl import KUBECTL

# Not what it takes, but what a machine may take on which much else runs.
LIMIT_SECONDS: Final = 600
_SHIPPED: Final = ROOT / "manifests"

# Parsed YAML: whatever the file says.
Object = dict[str, Any]


class KustomizeError(Exception):
    """The folder does not render; the text is what kubectl printed."""


def render(folder: Path) -> list[Object]:
    """Return the objects that a folder renders to. Raises KustomizeError."""
    build = _build_shipped if folder.is_relative_to(_SHIPPED) else _build
    return list(yaml.load_all(build(folder), yaml.CSafeLoader))


def _build(folder: Path) -> str:
    command = [str(KUBECTL.locate()), "kustomize", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise KustomizeError(done.stderr)
    return done.stdout


# What is shipped stays as it is, and many tests read it.
_build_shipped: Final = cache(_build)
