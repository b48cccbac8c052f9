"""List all objects of a kind once, for commands that people type."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from rollout_operator.kube.api import ApiClient, Resource
from rollout_operator.model.decode.broken import decode_or_salvage
from rollout_operator.model.objects import Unreadable

_PAGE: Final = 500

Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class Lister:
    """Lists objects by one client."""

    client: ApiClient
    version: str | None
    """None for what is stored, "0" for what the API server has cached."""

    async def list_all(
        self,
        resource: Resource,
        namespace: str,
        decode: Callable[[msgspec.Raw], Decoded],
        selector: str = "",
    ) -> list[Decoded | Unreadable]:
        """Return all objects, those that cannot be decoded among them. Raises ApiError."""
        objects: list[Decoded | Unreadable] = []
        token = ""
        while True:
            page = await self.client.fetch_page(
                resource,
                namespace,
                selector=selector,
                limit=_PAGE,
                token=token,
                resource_version=self.version,
            )
            objects.extend(decode_or_salvage(resource.kind, decode, raw) for raw in page.items)
            token = page.next_token
            if not token:
                return objects
