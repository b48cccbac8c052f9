"""Flux's own source-controller and kustomize-controller, built from their Go modules.

`python -m tests.flux.controllers` builds them beforehand. No test of the suite needs them: they
take minutes to build. Their definitions of kinds come from the same modules.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from tests.world.api import Json
from tests.world.childproc import Child, free_ports, start_program
from tests.world.gobuild import BuildError, GoProgram, locate_go
from tests.world.manifests import read_manifests
from tests.world.world import World

_SOURCES: Final = Path(__file__).parent
_CRDS: Final = Path("config", "crd")


class FluxController(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    minutes: str
    flags: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Return the Go module, whose root is the program."""
        return f"github.com/fluxcd/{self.name}"

    @property
    def program(self) -> GoProgram:
        return GoProgram(
            title=f"{self.name} of Flux ({self.minutes} on two cores)",
            sources=_SOURCES,
            parts=(self.name,),
            package=self.module,
            salt=self.name,
        )


SOURCE: Final = FluxController(name="source-controller", minutes="seven minutes")
KUSTOMIZE: Final = FluxController(
    name="kustomize-controller",
    minutes="two more minutes",
    # A Kustomization whose source has nothing yet is tried again after this time.
    flags=("--requeue-dependency=5s",),
)
CONTROLLERS: Final = (SOURCE, KUSTOMIZE)


@cache
def read_kinds() -> Sequence[Json]:
    """Return the definitions of kinds as the modules have them. Raises BuildError."""
    folders = [Path(_describe_module(one.module)["Dir"]) / _CRDS for one in CONTROLLERS]
    return [crd for folder in folders for crd in read_manifests(folder)]


def read_version(controller: FluxController) -> str:
    """Return the version that is built, such as `v1.2.3`. Raises BuildError."""
    return str(_describe_module(controller.module)["Version"])


@contextmanager
def running(world: World) -> Iterator[Sequence[Child]]:
    """Run all of them on the namespace of a world, with the rights of its administrator."""
    folder = world.folder / "controllers"
    folder.mkdir()
    config = world.plane.kubeconfig(folder / "kubeconfig", world.api.token)
    storage = free_ports(1)[0]
    more = {
        SOURCE.name: (
            f"--storage-path={folder}",
            f"--storage-addr=127.0.0.1:{storage}",
            f"--storage-adv-addr=127.0.0.1:{storage}",
        )
    }
    env = {
        "KUBECONFIG": str(config),
        "RUNTIME_NAMESPACE": world.namespace,
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    children = []
    try:
        for one in CONTROLLERS:
            metrics, health = free_ports(2)
            command: list[str | Path] = [
                one.program.locate(),
                "--watch-all-namespaces=false",
                f"--metrics-addr=127.0.0.1:{metrics}",
                f"--health-addr=127.0.0.1:{health}",
                *one.flags,
                *more.get(one.name, ()),
            ]
            log = folder / f"{one.name}.log"
            children.append(Child(one.name, start_program(command, log, env), log))
        yield children
    finally:
        for child in reversed(children):
            child.kill()


@cache
def _describe_module(module: str) -> Json:
    """Return what Go knows of a module that is required, with the folder of its sources."""
    done = subprocess.run(
        [locate_go(), "mod", "download", "-json", module],
        cwd=_SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"go mod download {module}: {done.stdout}{done.stderr}")
    described: Json = json.loads(done.stdout)
    return described


if __name__ == "__main__":
    sys.stdout.write("".join(f"{one.program.locate()}\n" for one in CONTROLLERS))
