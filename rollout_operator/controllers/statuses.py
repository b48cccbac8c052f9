"""Writes of `status`: one a pass, of whole statuses, over the state of the decision.

A write is refused where the object has changed since, so two processes never record over each
other.
"""

from typing import Generic

import msgspec

from rollout_operator.controllers.own_writes import NewestObjects, Written
from rollout_operator.kube.api import JsonObject, Patcher, Resource
from rollout_operator.model.errors import Conflict, UnknownOutcome


class StatusWriter(Generic[Written]):
    """Writes the statuses of one kind."""

    def __init__(self, client: Patcher, resource: Resource, newest: NewestObjects[Written]) -> None:
        self._client = client
        self._resource = resource
        self._newest: NewestObjects[Written] = newest

    async def write(self, watched: Written, status: msgspec.Struct) -> Written:
        """Write a status over the known state, and return the object that results.

        Raises Conflict where the object has changed since, and as `Patcher.patch`, and DecodeError.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        patch: JsonObject = {"metadata": head, "status": _render_patch(status)}
        try:
            body = await self._client.patch(
                self._resource, watched.namespace, watched.name, patch, subresource="status"
            )
        except (UnknownOutcome, Conflict):
            self._newest.doubt(watched.name)
            raise
        return self._newest.record(body)


def _render_patch(status: msgspec.Struct) -> JsonObject:
    """Return a status as a merge patch: fields that are absent are null, and go."""
    patch: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
    for field in msgspec.structs.fields(status):
        part = getattr(status, field.name)
        if isinstance(part, msgspec.Struct):
            patch[field.encode_name] = _render_patch(part)
        else:
            patch.setdefault(field.encode_name, None)
    return patch
