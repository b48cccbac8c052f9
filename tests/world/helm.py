"""helm: the one on PATH, or built from its own Go module like kubectl.

`python -m tests.world.helm` builds it beforehand where there is none.
"""

import sys
from pathlib import Path
from typing import Final

from tests.world.gobuild import GoProgram

_MODULE: Final = "helm.sh/helm/v3"
# What a released one has, too: its version, and the Kubernetes that `helm template` renders for.
_NAMES: Final = {
    f"{_MODULE}/internal/version.version": "v3.21.4",
    f"{_MODULE}/pkg/chartutil.k8sVersionMajor": "1",
    f"{_MODULE}/pkg/chartutil.k8sVersionMinor": "36",
    f"{_MODULE}/pkg/lint/rules.k8sVersionMajor": "1",
    f"{_MODULE}/pkg/lint/rules.k8sVersionMinor": "36",
}
_FLAGS: Final = " ".join(("-s -w", *(f"-X {name}={value}" for name, value in _NAMES.items())))
HELM: Final = GoProgram(
    title="helm (two minutes on two cores)",
    sources=Path(__file__).parent.parent / "helm",
    parts=("helm",),
    # The command is `main` of its module and cannot be imported: go.mod names it as a tool.
    package=f"{_MODULE}/cmd/helm",
    flags=_FLAGS,
    salt=_FLAGS,
    may_be_on_path=True,
)


if __name__ == "__main__":
    sys.stdout.write(f"{HELM.locate()}\n")
