"""The writes of the StatefulSet controller, each one call of the API server."""

from typing import Final

import msgspec

from rollout_lab.controllers.members import (
    POD_INDEX_LABEL,
    POD_NAME_LABEL,
    owner_reference,
    parse_name,
)
from rollout_lab.controllers.revisions import new_revision
from rollout_lab.model.fields import child, name_of, namespace_of, number, text, uid_of
from rollout_lab.model.request import STRATEGIC_PATCH, ApiAnswer, ApiRequest, ApiServer, Verb
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource

CONTROLLER: Final = "statefulset-controller"


class WriteFailed(Exception):
    """The API server did not do it: the set is reconciled again later."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(f"{answer.status} {answer.reason}: {answer.message}")
        self.answer = answer


class SetWrites(msgspec.Struct):
    """Writes for one set. All raise WriteFailed for what the API server refuses."""

    api: ApiServer
    sts: JsonObject
    newest: dict[str, int]
    """The version of its newest write of each kind, by plural: what its cache must have seen."""

    def create_pod(self, pod: JsonObject) -> None:
        """POST a pod."""
        self._record(PODS, self._call("create", PODS, name_of(pod), body=pod))

    def delete_pod(self, name: str) -> None:
        """DELETE the pod of that name, whichever it is by now; none is fine."""
        try:
            self._call("delete", PODS, name)
        except WriteFailed as failed:
            if failed.answer.status != 404:
                raise

    def give_identity(self, pod: JsonObject) -> None:
        """PUT a member back under the labels by which it is known."""
        head = child(pod, "metadata")
        labels: JsonObject = {
            **child(head, "labels"),
            POD_NAME_LABEL: name_of(pod),
            POD_INDEX_LABEL: str(parse_name(pod)[1]),
        }
        body: JsonObject = {**pod, "metadata": {**head, "labels": labels}}
        self._record(PODS, self._call("update", PODS, name_of(pod), body=body))

    def adopt(self, resource: Resource, orphan: JsonObject) -> JsonObject | None:
        """PATCH the set in as controller of an orphan; return it, None where it is gone.

        Not done where the set is on its way out, or another set, in the store itself.
        """
        fresh = self.api.get(STATEFULSETS, namespace_of(self.sts), name_of(self.sts))
        if fresh is None or uid_of(fresh) != uid_of(self.sts):
            raise WriteFailed(_local("the set is gone"))
        if text(fresh, "metadata", "deletionTimestamp"):
            raise WriteFailed(_local("the set has just been deleted"))
        return self._patch_owner(resource, orphan, owner_reference(self.sts))

    def release(self, pod: JsonObject) -> None:
        """PATCH the set out as controller of a pod."""
        self._patch_owner(PODS, pod, {"$patch": "delete", "uid": uid_of(self.sts)})

    def create_revision(self, number_of_it: int, collisions: int) -> tuple[JsonObject, int]:
        """POST a revision of the set's template and return it with the count of collisions.

        A name that is taken by other data counts as a collision, and another hash is tried.
        """
        while True:
            revision = new_revision(self.sts, number_of_it, collisions)
            try:
                body = self._call("create", CONTROLLER_REVISIONS, name_of(revision), body=revision)
            except WriteFailed as failed:
                if failed.answer.reason != "AlreadyExists":
                    raise
                taken = self.api.get(
                    CONTROLLER_REVISIONS, namespace_of(self.sts), name_of(revision)
                )
                if taken is None:
                    raise
                if taken.get("data") == revision["data"]:
                    return taken, collisions
                collisions += 1
            else:
                return body, collisions

    def renumber_revision(self, revision: JsonObject, number_of_it: int) -> JsonObject:
        """PUT a revision with another number and return it."""
        if number(revision, "revision") == number_of_it:
            return revision
        body: JsonObject = {**revision, "revision": number_of_it}
        return self._call("update", CONTROLLER_REVISIONS, name_of(revision), body=body)

    def delete_revision(self, revision: JsonObject) -> None:
        """DELETE a revision."""
        self._call("delete", CONTROLLER_REVISIONS, name_of(revision))

    def replace_status(self, sts: JsonObject, status: JsonObject) -> None:
        """PUT the status of the set, as it was read."""
        body: JsonObject = {**sts, "status": status}
        name = name_of(sts)
        answer = self._call("update", STATEFULSETS, name, subresource="status", body=body)
        self._record(STATEFULSETS, answer)

    def _patch_owner(
        self, resource: Resource, obj: JsonObject, reference: JsonObject
    ) -> JsonObject | None:
        body: JsonObject = {"metadata": {"ownerReferences": [reference], "uid": uid_of(obj)}}
        try:
            patched = self._call("patch", resource, name_of(obj), body=body)
        except WriteFailed as failed:
            if failed.answer.status != 404:
                raise
            return None
        return patched

    def _call(
        self,
        verb: Verb,
        resource: Resource,
        name: str,
        *,
        subresource: str = "",
        body: JsonObject | None = None,
    ) -> JsonObject:
        answer = self.api.call_now(
            ApiRequest(
                verb=verb,
                resource=resource,
                namespace=namespace_of(self.sts),
                name="" if verb == "create" else name,
                subresource=subresource,
                body=body,
                content_type=STRATEGIC_PATCH if verb == "patch" else "application/json",
                user=CONTROLLER,
            )
        )
        if not answer.is_ok:
            raise WriteFailed(answer)
        return answer.body

    def _record(self, resource: Resource, written: JsonObject) -> None:
        version = int(text(written, "metadata", "resourceVersion") or 0)
        self.newest[resource.plural] = max(self.newest.get(resource.plural, 0), version)


def _local(why: str) -> ApiAnswer:
    return ApiAnswer(status=409, body={"reason": "Conflict", "message": why})
