"""The reference registry of the OCI specification, built from source like the control plane.

`python -m tests.world.registry` builds it beforehand. Marked `controlplane` is what needs it.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.world.childproc import Child, free_ports, start_program
from tests.world.gobuild import Announce, GoProgram

REGISTRY: Final = GoProgram(
    title="the reference registry (half a minute on two cores)",
    sources=Path(__file__).parent.parent / "registry",
    parts=("registry",),
)
USER: Final = "mallory"
PASSWORD: Final = "hidden"
# bcrypt of that password, as cheap as it goes.
_HASH: Final = "$2a$05$DMD4cXps8TDrmkfvC7JVCuNOYI4G.Vx1t2iFIHUHmZpJIoflBKNDq"
_TRIES: Final = 200


@cache
def locate_registry(announce: Announce = sys.stderr.write) -> Path:
    """Return the program, building it if need be. Raises BuildError."""
    return REGISTRY.find(announce) / "registry"


@contextmanager
def serving(folder: Path, auth: str = "") -> Iterator[str]:
    """Serve without TLS and with nothing stored, and yield the host.

    A client needs the password, or what `auth` of its settings says.
    """
    (port,) = free_ports(1)
    users, settings = folder / "users", folder / "registry.yaml"
    users.write_text(f"{USER}:{_HASH}\n")
    by_password = f"htpasswd: {{realm: tests, path: '{users}'}}"
    settings.write_text(
        "version: 0.1\n"
        "log: {level: warn}\n"
        "storage: {inmemory: {}}\n"
        f"http: {{addr: '127.0.0.1:{port}', secret: tests}}\n"
        f"auth: {{{auth or by_password}}}\n"
    )
    env = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    command: list[str | Path] = [locate_registry(), "serve", settings]
    log = folder / "registry.log"
    child = Child("registry", start_program(command, log, env), log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/v2/", child)
        yield f"127.0.0.1:{port}"
    finally:
        child.kill()


def _wait_for(url: str, child: Child) -> None:
    """Return once it answers, be it with a refusal."""
    for _ in range(_TRIES):
        assert child.exit_code is None, child.log.read_text()
        try:
            urlopen(url, timeout=1)
        except HTTPError as error:
            error.close()
            return
        except URLError:
            time.sleep(0.05)
    raise AssertionError(child.log.read_text())


if __name__ == "__main__":
    sys.stdout.write(f"{locate_registry()}\n")
