"""JSON of a Lease → `model.lease.Lease`. What is absent is empty: others may have made it."""

from datetime import timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.not_ready import clip
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import JsonBytes, Required, Strings, Wire
from rollout_operator.model.lease import LONGEST_LEASE, Lease, read_address
from rollout_operator.model.names import ADDRESS

# Ours are shorter: the name of a pod and a few characters. It is shown in logs, pages and refusals.
MOST_HOLDER: Final = 300


class _Head(Wire):
    name: Required
    namespace: Required
    resource_version: Required
    annotations: Strings = None


class _Spec(Wire):
    holder_identity: str | None = None
    lease_duration_seconds: Annotated[int, Meta(ge=0)] | None = None
    lease_transitions: Annotated[int, Meta(ge=0)] | None = None
    renew_time: str | None = None


class _Lease(Wire):
    metadata: _Head
    spec: _Spec | None = None
    kind: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Lease)


def decode_lease(raw: JsonBytes) -> Lease:
    """Return a Lease. Raises DecodeError naming the Lease, field and value."""
    wire = read_as("Lease", raw, _DECODER)
    spec = wire.spec or _Spec()
    return Lease(
        version=wire.metadata.resource_version,
        holder=clip(spec.holder_identity or "", MOST_HOLDER),
        lasts=_read_span(spec.lease_duration_seconds or 0),
        transitions=spec.lease_transitions or 0,
        renewed=spec.renew_time or "",
        address=read_address((wire.metadata.annotations or {}).get(ADDRESS, "")),
    )


def _read_span(seconds: int) -> timedelta:
    """Return how long a Lease lasts; zero for what none of us writes."""
    return timedelta(seconds=seconds if seconds <= LONGEST_LEASE.total_seconds() else 0)
