"""kubectl: the one on PATH, or built from source like the control plane.

`python -m tests.world.kubectl` builds it beforehand where there is none.
"""

import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.world.gobuild import Announce, GoProgram

KUBECTL: Final = GoProgram(
    title="kubectl (two minutes on two cores)",
    sources=Path(__file__).parent.parent / "kubectl",
    parts=("kubectl",),
)


@cache
def locate_kubectl(announce: Announce = sys.stderr.write) -> Path:
    """Return the folder of the command, building it if need be. Raises BuildError."""
    named = shutil.which("kubectl", path=os.environ.get("PATH", ""))
    return Path(named).parent if named else KUBECTL.find(announce)


if __name__ == "__main__":
    sys.stdout.write(f"{locate_kubectl()}\n")
