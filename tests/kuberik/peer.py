"""Kuberik's rollout-controller, built from the sources that `KUBERIK_SOURCE` names."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.world.childproc import Child, free_ports, start_program
from tests.world.gobuild import BuildError, GoProgram
from tests.world.plane import ControlPlane

VARIABLE: Final = "KUBERIK_SOURCE"
_NAME: Final = "rollout-controller"


def build_peer() -> Path:
    """Return the program, building it if need be. Raises BuildError."""
    sources = Path(os.environ.get(VARIABLE) or "")
    if not (sources / "go.mod").exists() or VARIABLE not in os.environ:
        raise BuildError(
            f"{VARIABLE} must name a checkout of https://github.com/kuberik/rollout-controller, "
            f"with go.mod in it: it is {os.environ.get(VARIABLE) or 'not set'}"
        )
    digest = hashlib.sha256()
    for source in sorted(sources.rglob("*.go")):
        digest.update(source.read_bytes())
    program = GoProgram(
        title="kuberik's rollout-controller (three minutes on two cores)",
        sources=sources.resolve(),
        parts=(_NAME,),
        package="./cmd",
        salt=digest.hexdigest(),
    )
    return program.locate()


@contextmanager
def running_peer(program: Path, plane: ControlPlane, folder: Path) -> Iterator[Child]:
    """Run it for all namespaces, with all rights."""
    config = plane.kubeconfig(folder / "peer.conf", plane.api().token)
    (health,) = free_ports(1)
    command: list[str | Path] = [program, f"--health-probe-bind-address=127.0.0.1:{health}"]
    env = {"KUBECONFIG": str(config), "HOME": str(folder), "TMPDIR": str(folder)}
    log = folder / "peer.log"
    child = Child(_NAME, start_program(command, log, env), log)
    try:
        yield child
    finally:
        child.kill()
