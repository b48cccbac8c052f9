"""List all objects of a kind once, for commands that people type.

`doctor` reads most kinds of a namespace: there a part that may not be read is recorded, and is no
failure.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from rollout_operator.kube.api import DryRunner, PodProxy, Reader, Resource, Writer
from rollout_operator.model.decode.broken import decode_or_salvage
from rollout_operator.model.diagnosis.installation import Source
from rollout_operator.model.errors import Denied, NotFound, OperatorError
from rollout_operator.model.objects import Unreadable

Decoded = TypeVar("Decoded")
Decoder = Callable[[msgspec.Raw], Decoded]


class Lister(msgspec.Struct, frozen=True):
    """Lists objects by one client."""

    client: Reader
    version: str | None
    """None for what is stored, "0" for what the API server has cached."""

    async def list_all(
        self,
        resource: Resource,
        namespace: str,
        decode: Decoder[Decoded],
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
                token=token,
                resource_version=self.version,
            )
            objects.extend(decode_or_salvage(resource.kind, decode, raw) for raw in page.items)
            token = page.next_token
            if not token:
                return objects


class ExaminingClient(Reader, Writer, DryRunner, PodProxy, Protocol):
    """The requests to the API server."""

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows; None before its first answer."""
        ...


@dataclass(slots=True)
class Reading:
    """The reads of one snapshot, and what could not be read."""

    client: ExaminingClient
    namespace: str
    unread: dict[Source, str] = field(default_factory=dict)
    unknown: set[Resource] = field(default_factory=set)
    """Kinds that the API server does not know."""

    @contextmanager
    def recording(self, source: Source) -> Iterator[None]:
        """Record an error inside the block as a part that could not be read."""
        try:
            yield
        except OperatorError as error:
            self.record(source, error)

    def record(self, source: Source, error: OperatorError) -> None:
        """Record why a part could not be read; where it is not allowed, the call says all."""
        denied = isinstance(error, Denied) and error.call
        self.unread[source] = f"may not {denied}" if denied else f"{error}"

    async def list_all(
        self, source: Source, resource: Resource, decode: Decoder[Decoded]
    ) -> tuple[Decoded, ...]:
        """Return all objects of a kind; empty where the cluster does not know the kind."""
        objects: list[Decoded] = []
        namespace = self.namespace if resource.is_namespaced else ""
        with self.recording(source):
            token = ""
            while True:
                try:
                    page = await self.client.fetch_page(resource, namespace, token=token)
                except NotFound:
                    self.unknown.add(resource)
                    break
                objects += [decode(raw) for raw in page.items]
                token = page.next_token
                if not token:
                    break
        return tuple(objects)
