"""The one file to install from: the overlay `install`, as kustomize renders it."""

import re
import subprocess
from pathlib import Path
from typing import Final

from release.source import Source

OVERLAY: Final = "manifests/overlays/install"
_IMAGE: Final = re.compile(r"^(\s+image: )rollout-operator:\S+$", re.MULTILINE)


def build_install(source: Source, folder: Path, *, kubectl: str, image: str) -> Path:
    """Write install.yaml, in which the operator runs `image`, and return it."""
    rendered = subprocess.run(
        [kubectl, "kustomize", str(source.root / OVERLAY)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    text, count = _IMAGE.subn(rf"\g<1>{image}", rendered)
    assert count == 1, "one container runs the operator's image"
    # Which namespace it is for, and how another one is named, stands in docs/install.md.
    head = f"# rollout-operator {source.version}, kinds and webhooks: see docs/install.md\n"
    written = folder / "install.yaml"
    written.write_text(head + text)
    return written
