"""Renew what the image is pinned to: `image/renew`. The diff is what a person reviews.

Two things are pinned. The Dockerfile names its base images by tag and digest; the registries say
what the tags are now. image/base.lock names Debian packages; the mirror says which are the newest.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from release.image.debian import (
    ARCHITECTURES,
    LOCK,
    PACKAGES,
    Apt,
    BaseError,
    Package,
    read_base,
    render_base,
)
from release.image.registry import RegistryError, fetch_digest
from release.source import ROOT

_BASE: Final = re.compile(
    r"^(?P<head>ARG (?:BUILD|RUNTIME)=)(?P<name>[^@\s]+)(?P<digest>@\S+)?$", re.MULTILINE
)
_RUNTIME: Final = re.compile(r"^ARG RUNTIME=\S+@(\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'^(ARG RUNTIME_DIGEST=)".*"$', re.MULTILINE)


def renew_dockerfile(path: Path, fetch: Callable[[str], str] = fetch_digest) -> list[str]:
    """Write the digests of today behind the tags; return what changed. Raises RegistryError."""
    text = path.read_text()
    changed: list[str] = []

    def pin(found: re.Match[str]) -> str:
        name, before = found["name"], (found["digest"] or "").removeprefix("@")
        now = fetch(name)
        if now != before:
            changed.append(f"{name}: {before or 'no digest'} -> {now}")
        return f"{found['head']}{name}@{now}"

    pinned = _BASE.sub(pin, text)
    if runtime := _RUNTIME.search(pinned):
        # What the image says of its base.
        pinned = _LABEL.sub(rf'\g<1>"{runtime[1]}"', pinned)
    path.write_text(pinned)
    return changed


def renew_lock(path: Path, newest: Sequence[Package]) -> list[str]:
    """Write the newest packages to the lock; return what changed."""
    before = set(read_base(path)) if path.exists() else set()
    path.write_text(render_base(newest))
    return [f"{one.name} {one.version} {one.architecture}" for one in sorted(set(newest) - before)]


def list_newest() -> list[Package]:
    """Return the newest packages of the base for all platforms. Raises BaseError."""
    with tempfile.TemporaryDirectory(prefix="renew-") as folder:
        return [
            package
            for architecture in ARCHITECTURES
            for package in Apt(Path(folder, architecture), architecture).list_newest(PACKAGES)
        ]


RENEWALS: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "packages": lambda root: renew_lock(root / LOCK, list_newest()),
    "dockerfile": lambda root: renew_dockerfile(root / "Dockerfile"),
}


def main(words: Sequence[str]) -> int:
    """Renew both, or the one that is named; return the exit code."""
    parser = argparse.ArgumentParser(prog="image/renew", description=__doc__)
    parser.add_argument("what", nargs="?", choices=RENEWALS)
    what = parser.parse_args(words).what
    code = 0
    for name, renew in RENEWALS.items():
        if what in (None, name):
            try:
                changed = renew(ROOT)
            except (BaseError, RegistryError) as error:
                sys.stderr.write(f"{name}: {error}\n")
                code = 1
            else:
                sys.stdout.write("\n".join(changed or [f"{name}: nothing is newer"]) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
