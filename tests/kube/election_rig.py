"""One process that takes part in the election, over a Lease in memory, on virtual time."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.election import Election
from rollout_operator.model.lease import Identity, Times
from rollout_operator.model.names import ADDRESS, ApiError, Conflict, NotFound, Refused
from rollout_operator.telemetry.metrics import Metrics
from tests.virtual_time import VirtualClock

SECOND = timedelta(seconds=1)
HERE = "10.0.0.1:8444"
THERE = "10.0.0.2:8444"
HIGHEST = 2**31 - 1


class StoredLease:
    """One Lease, merged as an API server does it; implements `LeaseApi`."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {}
        self.fail: ApiError | TimeoutError | None = None
        """Raised by every call while set."""
        self.fail_writes: ApiError | TimeoutError | None = None
        self.calls = 0
        self._version = 0

    def put(self, holder: str, address: str | None = THERE, **spec: object) -> None:
        """Have another process hold it, or a person write it."""
        metadata = {"name": "lease", "namespace": "prod", "annotations": {ADDRESS: address}}
        self._store({"metadata": metadata, "spec": {"holderIdentity": holder, **spec}})

    @property
    def address(self) -> object:
        return self.body["metadata"].get("annotations", {}).get(ADDRESS)

    @property
    def holder(self) -> object:
        """Return the holder, None where there is no Lease."""
        return self.body.get("spec", {}).get("holderIdentity")

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes:
        self._check(is_write=False)
        if not self.body:
            raise NotFound("no lease")
        return json.dumps(self.body).encode()

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        self._check()
        if self.body:
            raise Conflict("it exists")
        return self._store(body)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *rest: object,
        **how: object,
    ) -> bytes:
        self._check()
        assert isinstance(patch, dict)
        if not self.body:
            raise NotFound("no lease")
        metadata = patch["metadata"]
        assert isinstance(metadata, dict)
        if metadata["resourceVersion"] != self.body["metadata"]["resourceVersion"]:
            raise Conflict("it was changed")
        spec = patch["spec"]
        assert isinstance(spec, dict)
        if spec.get("leaseTransitions", 0) > HIGHEST:
            raise Refused("cannot unmarshal number into a field of type int32", status=422)
        return self._store(patch)

    def _check(self, *, is_write: bool = True) -> None:
        self.calls += 1
        fail = self.fail or (self.fail_writes if is_write else None)
        if fail is not None:
            raise fail

    def _store(self, patch: Mapping[str, object]) -> bytes:
        self._version += 1
        self.body = _merge(self.body, patch)
        self.body["metadata"]["resourceVersion"] = str(self._version)
        return json.dumps(self.body).encode()


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        if isinstance(value, Mapping):
            merged[key] = _merge(merged.get(key) or {}, value)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


class Rig:
    """One process that takes part."""

    def __init__(
        self,
        address: str = HERE,
        lease: StoredLease | None = None,
        name: str = "me",
        times: Times | None = None,
    ) -> None:
        self.times = times or Times()
        self.lease = StoredLease() if lease is None else lease
        self.clock = VirtualClock()
        self.election = self.elect(Identity(name=name, life="1", address=address))

    def elect(self, me: Identity) -> Election:
        """Return the part of a process that has not begun yet."""
        return Election(
            self.lease,
            namespace="prod",
            name="lease",
            me=me,
            clock=self.clock,
            metrics=Metrics(),
            times=self.times,
        )

    def find_leader(self) -> tuple[str, str] | None:
        """Return holder and address of the process that acts, as far as this one knows."""
        lease = self.election.leader
        return None if lease is None else (lease.holder, lease.address)

    async def run_for(self, span: timedelta) -> None:
        try:
            async with asyncio.timeout(span.total_seconds()):
                await self.election.run()
        except TimeoutError:
            return
