"""The Debian packages of the image's base: which ones, at which version, and their files.

Versions and digests stand in image/base.lock. apt says what is new, and fetches; a folder of its
own keeps it from the packages of this machine. The mirror is the one that this machine uses.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release.checksums import sha256_of

LOCK: Final = "image/base.lock"
SUITE: Final = "trixie"
# The interpreter, what its modules and ours are linked with, certificate authorities, and the name
# of the distribution. No shell, no package manager, nothing that a script of a package would need.
PACKAGES: Final = (
    *("base-files", "ca-certificates", "libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libzstd1"),
    *("libssl3t64", "libexpat1", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1"),
    *("libpython3.13-minimal", "libpython3.13-stdlib", "python3.13-minimal"),
)
ARCHITECTURES: Final = ("amd64", "arm64")
_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES: Final = Path("/etc/apt")
_MIRROR: Final = re.compile(
    r"(?:^URIs:|^deb (?:\[.*?\] )?)\s*(\S+?/debian)/?(?:\s|$)", re.MULTILINE
)
_HEADER: Final = "# The Debian packages of the image's base. Written by image/renew.\n"
_LINE: Final = re.compile(r"^(\S+) (\S+) (\S+) sha256:([0-9a-f]{64})$", re.MULTILINE)


class BaseError(Exception):
    """The base cannot be put together; the text says what a person can do."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Package:
    """One package for one architecture."""

    name: str
    version: str
    architecture: str
    sha256: str

    @property
    def purl(self) -> str:
        """Return what it is everywhere."""
        version = self.version.replace("+", "%2B").replace(":", "%3A")
        name = self.name.replace("+", "%2B")
        return f"pkg:deb/debian/{name}@{version}?arch={self.architecture}&distro={SUITE}"


def read_base(path: Path) -> list[Package]:
    """Return the packages of all architectures that a lock names."""
    return [
        Package(name=name, version=version, architecture=architecture, sha256=digest)
        for name, version, architecture, digest in _LINE.findall(path.read_text())
    ]


def render_base(packages: Iterable[Package]) -> str:
    """Return the text of a lock."""
    lines = (f"{one.name} {one.version} {one.architecture} sha256:{one.sha256}\n"
             for one in sorted(set(packages)))  # fmt: skip
    return _HEADER + "".join(lines)


class Apt:
    """apt for one architecture of the suite, in a folder of its own."""

    def __init__(self, folder: Path, architecture: str) -> None:
        """Write its settings below `folder`, and learn what there is. Raises BaseError."""
        self._folder = folder
        self._architecture = architecture
        for below in ("etc", "lists/partial", "archives/partial"):
            (folder / below).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        mirror = find_mirror()
        suites = {
            SUITE: mirror,
            f"{SUITE}-updates": mirror,
            f"{SUITE}-security": f"{mirror}-security",
        }
        (folder / "etc" / "sources.list").write_text(
            "".join(f"deb [signed-by={_KEYS}] {at} {suite} main\n" for suite, at in suites.items())
        )
        self._run("apt-get", "update", "--quiet")

    def list_newest(self, names: Sequence[str]) -> list[Package]:
        """Return the newest version of each. Raises BaseError."""
        shown = self._run("apt-cache", "show", "--no-all-versions", *names)
        stanzas = [
            dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE))
            for stanza in shown.split("\n\n")
            if stanza.strip()
        ]
        found = [
            Package(
                name=one["Package"],
                version=one["Version"],
                architecture=one["Architecture"],
                sha256=one["SHA256"],
            )
            for one in stanzas
        ]
        if missing := {*names} - {one.name for one in found}:
            raise BaseError(f"{SUITE} has no {', '.join(sorted(missing))}")
        return found

    def fetch(self, packages: Sequence[Package]) -> list[Path]:
        """Download packages at their versions, in no order. Raises BaseError."""
        inside = self._folder / "fetched"
        inside.mkdir()
        wanted = [f"{one.name}={one.version}" for one in packages]
        self._run("apt-get", "download", "--quiet", *wanted, cwd=inside)
        return list(inside.glob("*.deb"))

    def _run(self, program: str, *words: str, cwd: Path | None = None) -> str:
        own = {
            "Dir::Etc": self._folder / "etc",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::parts": "-",
            "Dir::State::lists": self._folder / "lists",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder,
            "APT::Architecture": self._architecture,
            "APT::Architectures": self._architecture,
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
        }
        options = [f"-o{key}={value}" for key, value in own.items()]
        done = subprocess.run(
            [program, *options, *words], cwd=cwd, capture_output=True, check=False, text=True
        )
        if done.returncode:
            last = (done.stderr.strip() or "no word").splitlines()[-1]
            raise BaseError(f"{program} {words[0]}: {last}; image/renew looks for newer versions")
        return done.stdout


def find_mirror(folder: Path = _SOURCES) -> str:
    """Return the address from where this machine has its Debian packages. Raises BaseError."""
    for path in sorted((*folder.glob("sources.list"), *folder.glob("sources.list.d/*"))):
        if found := _MIRROR.search(path.read_text()):
            return found[1]
    raise BaseError(f"{folder} names no mirror of Debian: the base is made on a Debian machine")


def fetch_base(packages: Sequence[Package], cache: Path, scratch: Path) -> dict[Package, Path]:
    """Return the file of each package, from the cache or from the mirror. Raises BaseError."""
    missing = [one for one in packages if not (cache / f"{one.sha256}.deb").exists()]
    cache.mkdir(parents=True, exist_ok=True)
    for architecture in sorted({_wanted(one) for one in missing}):
        wanted = [one for one in missing if _wanted(one) == architecture]
        for path in Apt(scratch / architecture, architecture).fetch(wanted):
            shutil.move(path, cache / f"{sha256_of(path)}.deb")
    files = {one: cache / f"{one.sha256}.deb" for one in packages}
    for one, path in files.items():
        if not path.exists():
            raise BaseError(f"{one.name} {one.version} has another digest than {LOCK} names")
    return files


def _wanted(package: Package) -> str:
    """A package for all architectures is fetched as one of the first."""
    return ARCHITECTURES[0] if package.architecture == "all" else package.architecture
