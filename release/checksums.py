"""SHA256SUMS: what `sha256sum --check` reads, and what a signature is for."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NAME: Final = "SHA256SUMS"


def sha256_of(path: Path) -> str:
    """Return the digest of a file, as hexadecimal digits."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_checksums(folder: Path, files: Iterable[Path]) -> Path:
    """Write the digests of files in `folder`, in the order of their names."""
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in sorted(files)]
    written = folder / NAME
    written.write_text("".join(lines))
    return written


def remove_earlier(folder: Path) -> None:
    """Remove what an earlier release has written there, and nothing else."""
    earlier = folder / NAME
    if earlier.exists():
        for line in earlier.read_text().splitlines():
            (folder / line.split()[1]).unlink(missing_ok=True)
        earlier.unlink()
