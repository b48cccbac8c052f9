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

VERSION: Final = "v1.37.2"
_STAMP: Final = "-X k8s.io/component-base/version."


def _control_plane(version: str, modules: str = "go") -> GoProgram:
    """Return the programs of a version, which is stamped in.

    Otherwise the API server calls itself v0.0.0, and clients refuse it.
    """
    major, minor, patch = map(int, version.removeprefix("v").split("."))
    return GoProgram(
        title=f"the control plane {major}.{minor} (about four minutes on two cores)",
        sources=Path(__file__).parent.parent / "controlplane",
        parts=PARTS,
        modules=modules,
        flags=f"-s -w {_STAMP}gitVersion={version} "
        f"{_STAMP}gitMajor={major} {_STAMP}gitMinor={minor}",
        salt=repr((major, minor, patch)),
    )


CONTROL_PLANE: Final = _control_plane(VERSION)
# `make prove ARGS=versions` runs tests on these.
OLDER: Final = {
    "1.36": _control_plane("v1.36.3", "go-1.36"),
    "1.31": _control_plane("v1.31.0", "go-1.31"),
}


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
