"""kubectl: the one on PATH, or built from source like the control plane.

`python -m tests.world.kubectl` builds it beforehand where there is none.
"""

import sys
from pathlib import Path
from typing import Final

from tests.world.gobuild import GoProgram

KUBECTL: Final = GoProgram(
    title="kubectl (two minutes on two cores)",
    sources=Path(__file__).parent.parent / "kubectl",
    parts=("kubectl",),
    may_be_on_path=True,
)


if __name__ == "__main__":
    sys.stdout.write(f"{KUBECTL.locate().parent}\n")
