"""What image policies of Flux select, by the libraries that their controller stands on.

The controller's own module is not to be had. `python -m tests.flux.image_policies` builds the
program beforehand. Marked `controlplane` is what needs it.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from tests.world.api import Json
from tests.world.gobuild import Announce, GoProgram

TAG_POLICY: Final = GoProgram(
    title="the selection of tags by image policies (some seconds)",
    sources=Path(__file__).parent / "tagpolicy",
    parts=("tagpolicy",),
)
_LIMIT_SECONDS: Final = 120


class Selection(msgspec.Struct, frozen=True, rename="camel"):
    """An image policy, by fields of its spec, and lists of tags."""

    policy: Json
    filter_tags: Json | None
    lists: Sequence[Sequence[str]]


@cache
def locate(announce: Announce = sys.stderr.write) -> Path:
    """Return the program, building it if need be. Raises BuildError."""
    return TAG_POLICY.find(announce) / TAG_POLICY.parts[0]


def select(selections: Sequence[Selection]) -> list[list[str]]:
    """Return which tag is selected from each list, empty for none."""
    done = subprocess.run(
        [locate()],
        input=msgspec.json.encode(selections),
        capture_output=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[list[str]])


if __name__ == "__main__":
    sys.stdout.write(f"{locate()}\n")
