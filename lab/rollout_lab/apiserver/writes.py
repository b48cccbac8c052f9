"""Creations, updates and patches: one object, from the request to the store.

Decides the order of steps as the real server takes them, and what happens when another client
writes meanwhile: all of it again on the newest version, admission included. What an object of a
kind must look like is `lab.schemas`' part; deletions are `deletions`'.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from rollout_lab.admission.webhooks import Admission, Attempt, Operation, make_uid
from rollout_lab.apiserver.store import By, ObjectKey, ObjectStore
from rollout_lab.model.fields import (
    child,
    is_terminating,
    metadata_of,
    name_of,
    number,
    text,
    timestamp,
    uid_of,
)
from rollout_lab.model.request import (
    APPLY_PATCH,
    ApiAnswer,
    ApiRefusal,
    ApiRequest,
    api_version_of,
    not_modelled,
)
from rollout_lab.schemas.kinds import NAMESPACES, ObjectKind
from rollout_lab.schemas.metadata import (
    MODIFIED,
    already_exists,
    check_not_negative,
    conflict,
    copy_head,
    expect,
    expect_one_of,
    invalid,
    no_namespace,
    not_found,
    qualified,
    render,
)
from rollout_lab.schemas.patches import (
    APPLY,
    UPDATE,
    FieldOwner,
    apply_fields,
    apply_patch,
    record_apply,
    record_update,
)
from rollout_operator.kube.api import JsonObject

_SCALE: Final = ("autoscaling/v1", "Scale")


@dataclass(slots=True, kw_only=True)
class Turn:
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

    def attempt(
        self,
        operation: Operation,
        old: JsonObject | None,
        new: JsonObject | None,
        options: JsonObject | None = None,
    ) -> Attempt:
        """Return what webhooks review of it; `options` are those of a deletion."""
        request = self.request
        return Attempt(
            operation=operation,
            kind=self.kind,
            subresource=request.subresource,
            namespace=request.namespace,
            name=request.name or name_of(new or {}),
            user=request.user,
            call=self.number,
            old=old,
            new=new,
            dry_run=self.is_dry_review,
            options=self._list_options() if options is None else options,
            may_wait=self.may_wait,
            deadline=self.deadline,
        )

    def _list_options(self) -> JsonObject:
        query = self.request.query
        options: JsonObject = {
            key: query[key] for key in ("fieldManager", "fieldValidation") if query.get(key)
        }
        return {**options, "dryRun": ["All"]} if self.is_dry_review else options

    def _type(self) -> tuple[str, str]:
        if self.request.subresource == "scale":
            return _SCALE
        return api_version_of(self.kind.resource), self.kind.resource.kind


_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read_scale(obj: JsonObject) -> JsonObject:
    """Return the Scale of an object, as the subresource shows it.

    Raises Refusal (500) where a custom resource has no count.
    """
    if "replicas" not in child(obj, "spec"):
        raise _no_count()
    metadata, replicas = child(obj, "metadata"), number(obj, "spec", "replicas")
    status: JsonObject = {"replicas": number(obj, "status", "replicas")}
    # A custom resource has its selector as text.
    selector = render(child(obj, "spec", "selector")) or text(obj, "spec", "labelSelector")
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in _METADATA if key in metadata},
        # Left out by the real server where it is zero.
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def write_scale(obj: JsonObject, scale: JsonObject) -> JsonObject:
    """Return a new version of an object with what a Scale says: its replicas and version.

    Shares all else with `obj`. A Scale without a resourceVersion leaves it out: the write is
    unconditional. Raises NotModelled for what no server would take.
    """
    replicas = child(scale, "spec").get("replicas")
    if replicas is None:
        replicas = 0
    expect(type(replicas) is int, "spec.replicas of a Scale", replicas)
    check_not_negative("Scale.autoscaling", name_of(obj), "spec.replicas", replicas)
    expect(uid_of(scale) in ("", uid_of(obj)), "a Scale of another object", uid_of(scale))
    metadata = {**child(obj, "metadata")}
    metadata.pop("resourceVersion", None)
    version = text(scale, "metadata", "resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    return {**obj, "metadata": metadata, "spec": {**child(obj, "spec"), "replicas": replicas}}


def _no_count() -> ApiRefusal:
    why = 'the spec replicas field ".spec.replicas" does not exist'
    causes: list[JsonObject] = [{"message": why}]
    return ApiRefusal(500, "InternalError", f"Internal error occurred: {why}", causes=causes)


Change = Callable[[JsonObject], Awaitable[JsonObject]]
"""From the version that is there to the version that should be. Raises Refusal."""

_GIVEN_BY_SERVER: Final = (
    *("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("selfLink", "managedFields"),
)
# No vowels and nothing that looks like another letter: what the real server makes names of.
_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_NAME_TRIES: Final = 8
_LONGEST_BASE: Final = 58


class Writes:
    """What may be written, and how."""

    def __init__(
        self,
        store: ObjectStore,
        admission: Admission,
        *,
        now: Callable[[], datetime],
        rng: random.Random,
    ) -> None:
        self.store = store
        self.admission = admission
        self.now = now
        self._rng = rng

    async def create(self, turn: Turn) -> ApiAnswer:
        """Make a new object. Raises Refusal."""
        obj = turn.read_body()
        metadata = metadata_of(obj)
        for key in _GIVEN_BY_SERVER:
            metadata.pop(key, None)
        turn.check_namespace(obj)
        return ApiAnswer(status=201, body=await self._create(turn, obj))

    async def update(self, turn: Turn) -> ApiAnswer:
        """Put an object, its status or its scale in place of what is there."""
        body = turn.read_body()
        turn.check_identity(body)
        uid = text(body, "metadata", "uid")

        async def put(current: JsonObject) -> JsonObject:
            if uid and uid != text(current, "metadata", "uid"):
                raise uid_precondition(turn.place, uid, text(current, "metadata", "uid"))
            return await self._review(turn, current, lambda _: copy_head(body))

        return self._answer(turn, await self.guarantee(turn, put))

    async def patch(self, turn: Turn) -> ApiAnswer:
        """Change parts of an object, its status or its scale."""
        request = turn.request

        if turn.is_apply and self.store.get(turn.place) is None:
            raise _nothing_to_apply_to(turn)

        def patched(current: JsonObject) -> JsonObject:
            if turn.is_apply:
                new = self._applied(turn, current)
            else:
                new = apply_patch(current, request.content_type, request.body)
            turn.check_identity(new)
            return new

        async def change(current: JsonObject) -> JsonObject:
            return await self._review(turn, current, patched)

        return self._answer(turn, await self.guarantee(turn, change))

    async def guarantee(self, turn: Turn, change: Change) -> JsonObject:
        """Store what `change` makes of an object, and again of newer versions until it is stored.

        Returns the object as it is then; in a dry run, as it would be. Raises Refusal.
        """
        place = turn.place
        current = self.store.get(place)
        # The real server begins with what its cache holds: a refusal counts once it is certain
        # that nothing was written meanwhile.
        is_certain = turn.is_dry_run
        while True:
            if current is None:
                raise not_found(place.resource, place.name)
            try:
                new = await change(current)
            except ApiRefusal:
                latest = self.store.get(place)
                if is_certain or latest is current:
                    raise
            else:
                if turn.is_dry_run:
                    return new
                latest = self.store.get(place)
                if latest is current:
                    return self._settle(turn, current, new)
            current, is_certain = latest, True

    async def admit(self, turn: Turn, obj: JsonObject) -> JsonObject:
        """Pass what is created below an object through admission, and return what is left of it."""
        self._check_namespace(turn)
        new = await self.admission.mutate(turn.attempt("CREATE", None, obj))
        await self.admission.validate(turn.attempt("CREATE", None, new))
        return new

    async def _create(self, turn: Turn, obj: JsonObject) -> JsonObject:
        self._check_namespace(turn)
        obj = await self.admission.mutate(turn.attempt("CREATE", None, obj))
        base = text(obj, "metadata", "generateName")
        if name_of(obj) or not base:
            return await self._insert(turn, obj, name_of(obj))
        for _ in range(_NAME_TRIES):
            suffix = "".join(self._rng.choice(_NAME_LETTERS) for _ in range(5))
            name = base[:_LONGEST_BASE] + suffix
            if self.store.get(ObjectKey(turn.kind.resource, turn.request.namespace, name)) is None:
                return await self._insert(turn, obj, name)
        return not_modelled(f"a name made of {base!r} that is not taken")

    async def _insert(self, turn: Turn, obj: JsonObject, name: str) -> JsonObject:
        resource = turn.kind.resource
        place = ObjectKey(resource, turn.request.namespace, name)
        new = copy_head(obj)
        metadata = metadata_of(new)
        expect(bool(name), "metadata.name", name)
        metadata["name"] = name
        metadata["uid"] = make_uid(self._rng)
        metadata["creationTimestamp"] = timestamp(self.now())
        turn.kind.prepare_create(new)
        if turn.kind.tracks_fields:
            owners = record_update({}, new, turn.writer(self.now()))
            metadata_of(new)["managedFields"] = owners
        await self.admission.validate(turn.attempt("CREATE", None, new))
        is_dry_run = turn.is_dry_run
        given = metadata_of(new).pop("resourceVersion", "")
        if given and not is_dry_run:
            text_ = "resourceVersion should not be set on objects to be created"
            raise ApiRefusal(500, "", text_)
        existing = self.store.get(place)
        if existing is not None:
            refusal = already_exists(resource, name)
            if is_terminating(existing):
                raise ApiRefusal(409, refusal.reason, f"object is being deleted: {refusal.message}")
            raise refusal
        return new if is_dry_run else self.store.write(place, new, turn.by)

    def _check_namespace(self, turn: Turn) -> None:
        name = turn.request.namespace
        if not name:
            return
        found = self.store.get(ObjectKey(NAMESPACES, "", name))
        if found is None:
            raise no_namespace(name)
        if is_terminating(found):
            not_modelled(f"a creation in the namespace {name!r}, which is being deleted")

    async def _review(
        self, turn: Turn, current: JsonObject, make: Callable[[JsonObject], JsonObject]
    ) -> JsonObject:
        """Return the version that follows on `current`, with all checks and webhooks passed."""
        is_scale = turn.request.subresource == "scale"
        new = await self._mutated_scale(turn, current, make) if is_scale else make(current)
        if not is_scale:
            new = await self.admission.mutate(turn.attempt("UPDATE", current, new))
        self._check_version(turn, current, new)
        turn.kind.prepare_update(current, new, "" if is_scale else turn.request.subresource)
        if turn.kind.tracks_fields:
            metadata_of(new)["managedFields"] = self._list_owners(turn, current, new)
        if self.admission.has_webhooks:
            shown = (read_scale(current), read_scale(new)) if is_scale else (current, new)
            await self.admission.validate(turn.attempt("UPDATE", *shown))
        return new

    def _applied(self, turn: Turn, current: JsonObject) -> JsonObject:
        is_forced = turn.request.query.get("force") == "true"
        config, writer = turn.read_config(), turn.writer(self.now())
        return apply_fields(current, config, writer, is_forced=is_forced)

    def _list_owners(
        self, turn: Turn, current: JsonObject, new: JsonObject
    ) -> Sequence[Mapping[str, object]]:
        """Return which managers own what once this version is stored."""
        writer = turn.writer(self.now())
        if turn.is_apply:
            return record_apply(current, turn.read_config(), writer)
        return record_update(current, new, writer)

    async def _mutated_scale(
        self, turn: Turn, current: JsonObject, make: Callable[[JsonObject], JsonObject]
    ) -> JsonObject:
        """Return the object with the number of replicas that its new scale says."""
        old = read_scale(current)
        scale = await self.admission.mutate(turn.attempt("UPDATE", old, make(old)))
        return write_scale(current, scale)

    def _check_version(self, turn: Turn, current: JsonObject, new: JsonObject) -> None:
        """Raise Refusal where the new version rests on another version than what is there."""
        resource, name = turn.kind.resource, turn.request.name
        version = text(new, "metadata", "resourceVersion")
        newest = text(current, "metadata", "resourceVersion")
        expect(not version or version.isdigit(), "metadata.resourceVersion", version)
        if version not in ("", "0"):
            if int(version) != int(newest):
                raise conflict(qualified(resource), name, MODIFIED)
        elif turn.kind.allows_blind_update:
            metadata_of(new)["resourceVersion"] = newest
        else:
            why = "must be specified for an update"
            raise invalid(qualified(resource), name, "metadata.resourceVersion", 0, why)

    def _settle(self, turn: Turn, current: JsonObject, new: JsonObject) -> JsonObject:
        """Write what is new; no write where nothing is; take away what its last finalizer held."""
        if _has_no_more_to_wait_for(current, new):
            self.store.remove(turn.place, turn.by)
            return new
        version = metadata_of(current)["resourceVersion"]
        metadata_of(new)["resourceVersion"] = version
        if new == current:
            return current
        return self.store.write(turn.place, new, turn.by)

    def _answer(self, turn: Turn, obj: JsonObject) -> ApiAnswer:
        return ApiAnswer(
            status=200, body=read_scale(obj) if turn.request.subresource == "scale" else obj
        )


def _nothing_to_apply_to(turn: Turn) -> ApiRefusal:
    resource, name = turn.kind.resource, turn.request.name
    uid = text(turn.read_config(), "metadata", "uid")
    if not uid:
        not_modelled(f"an apply that creates {resource.plural}/{name}")
    why = f"the provided object specified uid {uid}, and no existing object was found"
    return conflict(qualified(resource), name, f"uid mismatch: {why}")


def uid_precondition(place: ObjectKey, wanted: str, known: str) -> ApiRefusal:
    """Return the refusal of the store where an object is not the object that was meant."""
    return store_precondition(place, _uid_text(wanted, known))


def store_precondition(place: ObjectKey, why: str) -> ApiRefusal:
    """Return the refusal of the store where a precondition does not hold."""
    parts = ("registry", place.resource.plural, place.namespace, place.name)
    key = "/".join(part for part in parts if part)
    problem = (
        f"StorageError: invalid object, Code: 4, Key: /{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: {why}"
    )
    return conflict(qualified(place.resource), place.name, problem)


def _uid_text(wanted: str, known: str) -> str:
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {known}"


def _has_no_more_to_wait_for(current: JsonObject, new: JsonObject) -> bool:
    """Return whether an object goes away with this update: told to go, and its finalizers gone."""
    if not is_terminating(current) or metadata_of(new).get("finalizers"):
        return False
    return not metadata_of(current).get("deletionGracePeriodSeconds")
