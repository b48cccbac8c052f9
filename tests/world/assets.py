"""Find the programs of the control plane, or build them.

Looked for first in the folder that KUBEBUILDER_ASSETS names, then as `gobuild` does.
`python -m tests.world.assets` does the same and prints the folder.
"""

import os
import sys
from pathlib import Path
from typing import Final

from tests.world.gobuild import Announce, BuildError, GoProgram

PARTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager")

# Without a version stamped in, the API server calls itself v0.0.0 and clients refuse it.
VERSION: Final = (1, 36, 3)
_STAMP: Final = "-X k8s.io/component-base/version."
CONTROL_PLANE: Final = GoProgram(
    title="the control plane (about four minutes on two cores)",
    sources=Path(__file__).parent.parent / "controlplane",
    parts=PARTS,
    flags=f"-s -w {_STAMP}gitVersion=v{VERSION[0]}.{VERSION[1]}.{VERSION[2]} "
    f"{_STAMP}gitMajor={VERSION[0]} {_STAMP}gitMinor={VERSION[1]}",
    salt=repr(VERSION),
)


class NoControlPlaneError(RuntimeError):
    """No programs were found and none could be built; the text says what was tried."""


def locate_assets(announce: Announce = sys.stderr.write) -> Path:
    """Return a folder that holds the three programs, building them if need be.

    Raises NoControlPlaneError.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        return _checked(Path(named))
    try:
        return CONTROL_PLANE.find(announce)
    except BuildError as error:
        parts = ", ".join(PARTS)
        raise NoControlPlaneError(
            f"{error}; or let KUBEBUILDER_ASSETS name a folder with {parts}"
        ) from error


def _checked(folder: Path) -> Path:
    if not CONTROL_PLANE.is_whole(folder):
        raise NoControlPlaneError(f"KUBEBUILDER_ASSETS: {folder} lacks one of {', '.join(PARTS)}")
    return folder


if __name__ == "__main__":
    sys.stdout.write(f"{locate_assets()}\n")
