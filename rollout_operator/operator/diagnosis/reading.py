"""The reads of one snapshot for `doctor`, and what could not be read.

A part that may not be read is recorded, and is no failure.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from rollout_operator.kube.api import DryRunner, PodProxy, Reader, Resource, Writer
from rollout_operator.model.diagnosis.installation import Source
from rollout_operator.model.errors import Denied, NotFound, OperatorError

T = TypeVar("T")
Decoder = Callable[[msgspec.Raw], T]


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
        self, source: Source, resource: Resource, decode: Decoder[T]
    ) -> tuple[T, ...]:
        """Return all objects of a kind; empty where the cluster does not know the kind."""
        objects: list[T] = []
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
