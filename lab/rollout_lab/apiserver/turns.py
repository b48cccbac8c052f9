"""One request while it is being answered, and the admission that it has to pass.

Decides what of a body reaches the rules of its kind, and whether webhooks are called at all. What
they review and what their answers mean is `lab.admission.webhooks`' part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec.structs import replace

from rollout_lab.admission.rules import Attempt
from rollout_lab.admission.webhooks import Admission
from rollout_lab.apiserver.store import By, ObjectKey, ObjectStore
from rollout_lab.model.fields import metadata_of, name_of, timestamp
from rollout_lab.model.request import APPLY_PATCH, ApiRequest, api_version_of, not_modelled
from rollout_lab.schemas.field_owners import APPLY, UPDATE, FieldOwner
from rollout_lab.schemas.kinds import NAMESPACES, ObjectKind
from rollout_lab.schemas.labels import labels_of
from rollout_lab.schemas.refusals import expect, expect_one_of
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject

Operation = Literal["CREATE", "UPDATE", "DELETE"]

_SCALE: Final = ("autoscaling/v1", "Scale")
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}


@dataclass(slots=True, kw_only=True)
class Turn:
    """A request in progress."""

    request: ApiRequest
    kind: ObjectKind
    number: int
    may_wait: bool
    """Whether webhooks can be called: not where the caller needs its answer at once."""
    deadline: timedelta
    """When the server gives the request up, since the world began."""
    place: ObjectKey = field(init=False)
    """Where its object is kept."""

    def __post_init__(self) -> None:
        self.place = ObjectKey(self.kind.resource, self.request.namespace, self.request.name)

    @property
    def is_dry_run(self) -> bool:
        """Return whether nothing may be kept."""
        return self.request.is_dry_run

    @property
    def is_dry_review(self) -> bool:
        """Return whether webhooks learn of a dry run: not where only an Eviction requests it."""
        return self.is_dry_run and not (
            self.request.subresource == "eviction" and self.request.query.get("dryRun") != "All"
        )

    @property
    def by(self) -> By:
        """Return in whose name it writes."""
        return By(self.request.user, self.number)

    @property
    def is_apply(self) -> bool:
        """Return whether it applies fields as their manager."""
        return self.request.verb == "patch" and self.request.content_type == APPLY_PATCH

    def read_config(self) -> JsonObject:
        """Return the fields that an apply brings."""
        body, query = self.request.body, self.request.query
        if not (
            self.kind.tracks_fields and isinstance(body, dict) and not self.request.subresource
        ):
            not_modelled(f"server-side apply of {self.kind.resource.plural}/{self.request.name}")
        expect(bool(query.get("fieldManager")), "fieldManager", query.get("fieldManager"))
        version, kind = self._type()
        expect(body.get("apiVersion") == version, "apiVersion", body.get("apiVersion"))
        expect(body.get("kind") == kind, "kind", body.get("kind"))
        return body

    def writer(self, now: datetime) -> FieldOwner:
        """Return as which field manager it writes."""
        request = self.request
        return FieldOwner(
            manager=request.query.get("fieldManager") or request.user,
            operation=APPLY if self.is_apply else UPDATE,
            api_version=api_version_of(self.kind.resource),
            time=timestamp(now),
            subresource=request.subresource,
        )

    def read_body(self) -> JsonObject:
        """Return the object in the body, of the right kind, with metadata of its own.

        All else in it is the sender's: never change it.
        """
        body = self.request.body
        is_json = self.request.content_type == "application/json"
        if not isinstance(body, dict) or not is_json:
            not_modelled(f"a body that is no JSON object: {body!r}")
        version, kind = self._type()
        expect_one_of((None, "", version), "apiVersion", body.get("apiVersion"))
        expect_one_of((None, "", kind), "kind", body.get("kind"))
        metadata = {**metadata_of(body)}
        return {**body, "metadata": metadata, "apiVersion": version, "kind": kind}

    def check_identity(self, obj: JsonObject) -> None:
        """Set the namespace where it is absent. Raises NotModelled where it is another object."""
        metadata, name, namespace = metadata_of(obj), self.request.name, self.request.namespace
        self.check_namespace(obj)
        expect(metadata.get("name") == name, "metadata.name", metadata.get("name"))
        if namespace:
            metadata["namespace"] = namespace

    def check_namespace(self, obj: JsonObject) -> None:
        """Set the namespace where it is absent. Raises NotModelled where it is another."""
        metadata, namespace = metadata_of(obj), self.request.namespace
        if not namespace:
            metadata.pop("namespace", None)
        else:
            given = metadata.get("namespace")
            expect_one_of((None, "", namespace), "metadata.namespace", given)
            metadata["namespace"] = namespace

    def _type(self) -> tuple[str, str]:
        if self.request.subresource == "scale":
            return _SCALE
        return api_version_of(self.kind.resource), self.kind.resource.kind


class WriteAdmission:
    """The way of all writes through admission."""

    def __init__(self, store: ObjectStore, admission: Admission) -> None:
        self._store = store
        self._admission = admission

    @property
    def has_webhooks(self) -> bool:
        """Return whether there is any webhook, matching or not."""
        store = self._store
        return bool(store.count(VALIDATING_WEBHOOKS) or store.count(MUTATING_WEBHOOKS))

    def attempt(
        self, turn: Turn, operation: Operation, old: JsonObject | None, new: JsonObject | None
    ) -> Attempt | None:
        """Return what webhooks review, None where no webhook reviews it.

        Raises NotModelled where a webhook does and the caller cannot wait for it.
        """
        if not self.has_webhooks:
            return None
        request = turn.request
        attempt = Attempt(
            operation=operation,
            kind=turn.kind,
            subresource=request.subresource,
            namespace=request.namespace,
            name=request.name or name_of(new or {}),
            user=request.user,
            call=turn.number,
            old=old,
            new=new,
            dry_run=turn.is_dry_review,
            options=_options(turn, operation),
            namespace_labels=self._labels(request.namespace),
            deadline=turn.deadline,
        )
        if not self._admission.matches(attempt):
            return None
        if not turn.may_wait:
            target = f"{operation} of {turn.kind.resource.plural}/{attempt.name}"
            not_modelled(f"webhooks on the {target} by {request.user!r}, who cannot wait for them")
        return attempt

    async def mutate(
        self, turn: Turn, operation: Operation, old: JsonObject | None, new: JsonObject
    ) -> JsonObject:
        """Return a new object as mutating webhooks leave it. Raises Refusal."""
        attempt = self.attempt(turn, operation, old, new)
        if attempt is None:
            return new
        mutated = await self._admission.mutate(attempt)
        return new if mutated is None else mutated

    async def validate(
        self, turn: Turn, operation: Operation, old: JsonObject | None, new: JsonObject | None
    ) -> None:
        """Call the validating webhooks. Raises Refusal where one of them denies."""
        attempt = self.attempt(turn, operation, old, new)
        if attempt is not None:
            await self._admission.validate(attempt)

    async def review_deletion(self, turn: Turn, old: JsonObject, options: JsonObject) -> None:
        """Have all webhooks review a deletion. Raises Refusal where one of them denies."""
        attempt = self.attempt(turn, "DELETE", old, None)
        if attempt is not None:
            attempt = replace(attempt, options=options)
            await self._admission.mutate(attempt)
            await self._admission.validate(attempt)

    def _labels(self, namespace: str) -> Mapping[str, str]:
        found = self._store.get(ObjectKey(NAMESPACES, "", namespace)) if namespace else None
        return {} if found is None else labels_of(found)


def _options(turn: Turn, operation: Operation) -> JsonObject:
    kind = _OPTIONS.get(operation, "DeleteOptions")
    options: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    for key in ("fieldManager", "fieldValidation"):
        if value := turn.request.query.get(key):
            options[key] = value
    if turn.is_dry_review:
        options["dryRun"] = ["All"]
    return options
