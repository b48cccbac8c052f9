"""The Lease of an election on the API server: how it is read, made and changed.

Decides which fields a write has. Each names the version that was read, so that of two writers one
learns that it was not the first.
"""

from datetime import datetime, timedelta
from typing import Final, Protocol

from rollout_operator.kube.api import LEASES, JsonObject, Patcher, Resource
from rollout_operator.model.decode.lease import decode_lease
from rollout_operator.model.errors import NotFound
from rollout_operator.model.lease import LEASE_DURATION, Identity, Lease
from rollout_operator.model.names import ADDRESS

# Of a Lease without a holder: the API server takes no zero.
_SHORTEST: Final = timedelta(seconds=1)


class LeaseApi(Patcher, Protocol):
    """The part of the API client that a Lease needs; errors as in `kube.api`."""

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes: ...

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes: ...


class LeaseStore:
    """One Lease; calls raise ApiError, and InvalidInput where it cannot be read."""

    def __init__(self, client: LeaseApi, *, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def read(self) -> Lease | None:
        """Return the Lease as it is now, None where there is none."""
        try:
            return decode_lease(await self._client.fetch(LEASES, self._namespace, self._name))
        except NotFound:
            return None

    async def take(self, lease: Lease | None, holder: Identity, now: datetime) -> Lease:
        """Make `holder` the holder; return the Lease as written.

        `lease` is what was read, None makes a new one. Raises Conflict where it has changed since.
        """
        spec = _render_spec(holder.holder, LEASE_DURATION, now)
        spec["acquireTime"] = spec["renewTime"]
        spec["leaseTransitions"] = 0 if lease is None else lease.count_transitions(holder.holder)
        if lease is None:
            return await self._create(holder, spec)
        return await self._patch(lease, holder.address, spec)

    async def renew(self, lease: Lease, holder: Identity, now: datetime) -> Lease:
        """Write that `holder` still holds it. Raises Conflict where it has changed since."""
        spec = _render_spec(holder.holder, LEASE_DURATION, now)
        return await self._patch(lease, holder.address, spec)

    async def release(self, lease: Lease, now: datetime) -> None:
        """Write that nobody holds it. Raises Conflict where it has changed since."""
        await self._patch(lease, "", _render_spec("", _SHORTEST, now))

    async def _create(self, holder: Identity, spec: JsonObject) -> Lease:
        metadata: JsonObject = {"name": self._name, "namespace": self._namespace}
        if holder.address:
            metadata["annotations"] = {ADDRESS: holder.address}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": LEASES.kind}
        made = await self._client.create(
            LEASES, self._namespace, {**kind, "metadata": metadata, "spec": spec}
        )
        return decode_lease(made)

    async def _patch(self, lease: Lease, address: str, spec: JsonObject) -> Lease:
        metadata: JsonObject = {"resourceVersion": lease.version}
        if address or lease.address:  # that of another holder, or as somebody else wrote it
            metadata["annotations"] = {ADDRESS: address or None}
        patch: JsonObject = {"metadata": metadata, "spec": spec}
        return decode_lease(await self._client.patch(LEASES, self._namespace, self._name, patch))


def _render_spec(holder: str, duration: timedelta, now: datetime) -> JsonObject:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": int(duration.total_seconds()),
        "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
    }
