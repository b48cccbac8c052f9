"""Read the `scale` subresource of any kind, and say why it shows no number of replicas.

Decides which numbers are valid, and whether a person must change something. When a scale is read,
and for how long an older number holds, is left to `reference`.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import Resource, Served
from rollout_operator.model.decode.objects import place_decoder, read_as
from rollout_operator.model.decode.wire import Int32, JsonBytes, Required, Wire
from rollout_operator.model.errors import ApiError, Denied, InvalidInput, NotFound, Refused
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.scaling import NoScale, Reference, Scale

SCALE: Final = "scale"
_FORBIDDEN: Final = 403


class _Head(Wire):
    name: Required
    resource_version: str = ""


class _Replicas(Wire):
    replicas: Int32 = 0


class _WireScale(Wire):
    metadata: _Head
    spec: _Replicas | None = None
    status: _Replicas | None = None
    kind: str | None = None


_SCALE: Final = msgspec.json.Decoder(_WireScale)


class Shown(msgspec.Struct, frozen=True):
    """A scale, and the version of the object that it is of."""

    scale: Scale
    version: str


def decode_scale(raw: bytes) -> Shown:
    """Return what a `Scale` of autoscaling/v1 shows; a number that is left out is 0.

    Raises DecodeError naming field and value where a number is not whole or not in 0..2^31-1.
    """
    wire = read_as("Scale", raw, _SCALE)
    scale = Scale(
        replicas=wire.spec.replicas if wire.spec else 0,
        status_replicas=wire.status.replicas if wire.status else 0,
    )
    return Shown(scale, wire.metadata.resource_version)


def change_decoder(kind: str) -> Callable[[JsonBytes], WatchedObject]:
    """Return what decodes which version an object of `kind` is, and nothing else of it.

    Whatever changes the object is a change of that. It raises DecodeError.
    """
    decode = place_decoder(kind)

    def decode_change(raw: JsonBytes) -> WatchedObject:
        placed = decode(raw)
        return replace(placed, decoded=placed.resource_version)

    return decode_change


def check_kind(reference: Reference, served: Served | None) -> Resource:
    """Return the resource of a reference. Raises InvalidInput where it can have no scale."""
    if served is None:
        group = f"API group {reference.group!r}" if reference.group else "the core API group"
        raise InvalidInput(f"the API server knows no kind {reference.kind!r} in {group}")
    resource = served.resource
    if SCALE not in served.subresources:
        raise InvalidInput(f"{resource.plural} in {_version(resource)} have no scale subresource")
    if not resource.is_namespaced:
        raise InvalidInput(f"{resource.plural} in {_version(resource)} belong to no namespace")
    return resource


def is_lasting(error: ApiError | InvalidInput) -> bool:
    """Return whether the same read would fail the same way until a person changes something."""
    match error:
        case InvalidInput() | NotFound() | Refused():
            return True
        case Denied(status=status):
            # Other refusals are of a credential that is being replaced, or of a wrong server.
            return status == _FORBIDDEN
        case _:
            return False


def explain(reference: Reference, error: ApiError | InvalidInput, namespace: str) -> NoScale:
    """Return why a reference shows no count."""
    text = f"{error}"
    if isinstance(error, Denied) and error.status == _FORBIDDEN:
        text = f"not allowed in namespace {namespace}: {text}"
    return NoScale(why=f"{reference}: {text}", is_lasting=is_lasting(error))


def _version(resource: Resource) -> str:
    return f"{resource.group}/{resource.version}" if resource.group else resource.version
