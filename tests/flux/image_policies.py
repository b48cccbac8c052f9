"""What image policies of Flux select, by the libraries that their controller stands on.

The controller's own module is not to be had. `python -m tests.flux.image_policies` builds the
program beforehand. Marked `controlplane` is what needs it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.world.api import Json
from tests.world.gobuild import GoProgram

TAG_POLICY: Final = GoProgram(
    title="the selection of tags by image policies (some seconds)",
    sources=Path(__file__).parent / "tagpolicy",
    parts=("tagpolicy",),
)


class Selection(msgspec.Struct, frozen=True, rename="camel"):
    """An image policy, by fields of its spec, and lists of tags."""

    policy: Json
    filter_tags: Json | None
    lists: Sequence[Sequence[str]]


def select(selections: Sequence[Selection]) -> list[list[str]]:
    """Return which tag is selected from each list, empty for none."""
    return msgspec.json.decode(TAG_POLICY.answer(selections), type=list[list[str]])


if __name__ == "__main__":
    sys.stdout.write(f"{TAG_POLICY.locate()}\n")
