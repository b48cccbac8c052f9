"""What an image says of itself, as its registry shows it."""

from datetime import datetime

import msgspec


class ReleaseMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an image. A text that the image does not have is empty."""

    digest: str
    """Of what the tag names: of the index, where the image is for several platforms."""
    artifact_type: str = ""
    version: str = ""
    revision: str = ""
    source: str = ""
    title: str = ""
    description: str = ""
    created: datetime | None = None
