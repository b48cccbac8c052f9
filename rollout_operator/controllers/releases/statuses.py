"""Writes of `status`: one a pass, over the state that was decided by, and of whole statuses.

A write is refused where the object has changed since, so two processes never record over each
other.
"""

from collections.abc import Mapping

import msgspec

from rollout_operator.controllers.releases.own_writes import NewestObjects
from rollout_operator.kube.api import JsonObject, Patcher, Resource
from rollout_operator.model.errors import Conflict, UnknownOutcome
from rollout_operator.model.objects import WatchedObject


class StatusWriter:
    """Writes the statuses of one kind."""

    def __init__(self, client: Patcher, resource: Resource, newest: NewestObjects) -> None:
        self._client = client
        self._resource = resource
        self._newest = newest

    async def write(self, watched: WatchedObject, status: msgspec.Struct) -> WatchedObject:
        """Write a status over the state that is known, and return what came of it.

        Raises Conflict where the object has changed since, and as `Patcher.patch`, and DecodeError.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        patch: JsonObject = {"metadata": head, "status": render_status_patch(status)}
        try:
            body = await self._client.patch(
                self._resource, watched.namespace, watched.name, patch, subresource="status"
            )
        except (UnknownOutcome, Conflict):
            self._newest.doubt(watched.name)
            raise
        return self._newest.record(body)


def render_status_patch(status: msgspec.Struct) -> Mapping[str, object]:
    """Return a status as a merge patch: what is absent is null, and goes."""
    fields: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
    return {**dict.fromkeys(one.encode_name for one in msgspec.structs.fields(status)), **fields}
