"""JSON of any object that releases depend on → `WatchedObject`."""

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import msgspec

from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.releases.rollout import ReleaseHead


class Headed(Protocol):
    """A decoded object that knows its own identity."""

    @property
    def head(self) -> ReleaseHead: ...


_Headed = TypeVar("_Headed", bound=Headed)


def watch_as(decode: Callable[[JsonBytes], _Headed]) -> Callable[[JsonBytes], WatchedObject]:
    """Return what reads an object to be followed. It raises as `decode`."""

    def decode_watched(raw: JsonBytes) -> WatchedObject:
        decoded = decode(raw)
        head = decoded.head
        # Writes of fields that are not read here would else be news.
        still = msgspec.structs.replace(head, resource_version="")
        return WatchedObject(
            namespace=head.namespace,
            name=head.name,
            uid=head.uid,
            resource_version=head.resource_version,
            decoded=msgspec.structs.replace(cast(msgspec.Struct, decoded), head=still),
        )

    return decode_watched
