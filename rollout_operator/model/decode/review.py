"""Bytes of an AdmissionReview → `Review`: what decides, and nothing else.

Decides what is no review (DecodeError: the caller gets a 400) and what is a review of an object
that cannot be judged (`Unusable`: each hook has its own rule). A large body is cut to an excerpt
first. v1 and v1beta1 do not differ in what is read here. The answer of another replica to a review
is read here, too.
"""

import json
from typing import Final, Generic, TypeVar

import msgspec

from rollout_operator.model.decode.objects import only
from rollout_operator.model.decode.wire import (
    ANNOTATIONS,
    EVICTION,
    LABELS,
    REVIEW,
    SMALL,
    Buffer,
    Int32,
    Ordinals,
    Owner,
    Required,
    Strings,
    Wire,
    clip,
    one_line,
    show_value,
    split_problem,
)
from rollout_operator.model.names import DecodeError, Uid
from rollout_operator.model.scaling import MAX_USER, Review, Scalable, Unusable, Version

KIND: Final = "AdmissionReview"
_NOTHING: Final = msgspec.Raw(b"null")
_VERSIONS: Final = {version.value: version for version in Version}
_EVICTION: Final = "eviction"
_SCALE: Final = ("autoscaling/v1", "Scale")
# All have `metadata` and `spec.replicas`: one shape reads any of them.
_KNOWN: Final = frozenset(
    {_SCALE, ("apps/v1", "StatefulSet"), ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")}
)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Resource(Wire):
    resource: str = ""


class _UserInfo(Wire):
    username: str | None = None


class _Request(Wire):
    uid: Required
    resource: _Resource | None = None
    sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    operation: str | None = None
    dry_run: bool | None = None
    user_info: _UserInfo | None = None


class _Head(Wire):
    api_version: str = ""
    kind: str = ""


class _Preconditions(Wire):
    uid: str | None = None


class _Options(Wire):
    dry_run: list[str] | None = None
    preconditions: _Preconditions | None = None


class _Eviction(Wire):
    delete_options: _Options | None = None


class _NamedOwner(Owner):
    kind: str = ""
    name: str = ""


class _OwnedHead(Wire):
    owner_references: list[_NamedOwner] | None = None


class _Owned(Wire):
    metadata: _OwnedHead


class _ObjectHead(Wire):
    name: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: Strings = None
    annotations: Strings = None


class _Spec(Wire):
    replicas: Int32 | None = None
    service_name: str | None = None
    ordinals: Ordinals | None = None


class _Object(Wire):
    api_version: str = ""
    kind: str = ""
    metadata: _ObjectHead | None = None
    spec: _Spec | None = None


class _AnyRequest(_Request):
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING


class _KnownRequest(_Request):
    object: _Object | None = None
    old_object: _Object | None = None


_R = TypeVar("_R", bound=_Request)


class _Review(Wire, Generic[_R]):
    api_version: str = ""
    kind: str = ""
    request: _R | None = None


_ANY: Final = msgspec.json.Decoder(_Review[_AnyRequest])
_KNOWN_OBJECTS: Final = msgspec.json.Decoder(_Review[_KnownRequest])
_HEAD: Final = msgspec.json.Decoder(_Head)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_DELETION: Final = msgspec.json.Decoder(_Eviction)
_OWNED: Final = msgspec.json.Decoder(_Owned)


def decode_review(body: Buffer, *, keeps: bool = False) -> Review:
    """Return the question that `body` holds; nothing of it refers to `body`.

    With `keeps` it holds what was decoded, from which another replica decodes the same.

    Raises DecodeError, with the text for the caller, where it is no review with a UID.
    """
    size = len(memoryview(body))
    try:
        small = bytes(body) if size <= SMALL else REVIEW.excerpt(body)
    except _BROKEN as error:
        raise _undecodable(_describe(b"", str(error))) from error
    review = _decode(small)
    return msgspec.structs.replace(review, sent=small) if keeps else review


def is_dry_run(eviction: bytes) -> bool:
    """Return whether an Eviction changes nothing by its own `deleteOptions`.

    The review does not say so: its `dryRun` is that of the request only.
    """
    return bool(_read_options(eviction).dry_run)


def find_wanted_uid(eviction: bytes) -> str:
    """Return the UID of the only pod that an Eviction may hit, empty if it may hit any."""
    preconditions = _read_options(eviction).preconditions
    return (preconditions.uid or "") if preconditions is not None else ""


def decode_owner(pod: bytes) -> tuple[str, str] | None:
    """Return kind and name of the controlling owner of a pod, None where it has none.

    The pod is read live only where no StatefulSet controls it: the cache cannot know.
    """
    try:
        owners = _OWNED.decode(pod).metadata.owner_references or ()
    except _BROKEN:
        return None
    owner = next((owner for owner in owners if owner.controller), None)
    return None if owner is None else (one_line(owner.kind), one_line(owner.name))


def _read_options(eviction: bytes) -> _Options:
    try:
        return _DELETION.decode(eviction).delete_options or _Options()
    except _BROKEN:
        return _Options()


def _decode(body: bytes) -> Review:
    """Read a review in one go where both objects are what we know, as nearly all are."""
    try:
        wire = _KNOWN_OBJECTS.decode(body)
    except _BROKEN:
        return _decode_apart(body)
    version, request = _VERSIONS.get(wire.api_version), wire.request
    if version is None or wire.kind != KIND or request is None:
        return _decode_apart(body)
    old, new = request.old_object, request.object
    if old is None or new is None or not (_is_known(old) and _is_known(new)):
        return _decode_apart(body)
    name = _name_object(new) or _name_object(old)
    return _compose(version, request, name, _scalable(old), _scalable(new))


def _decode_apart(body: bytes) -> Review:
    """Read a review one part after the other, so that what cannot be read can be named."""
    try:
        wire = _ANY.decode(body)
    except _BROKEN as error:
        _refuse_other_kind(body)
        raise _undecodable(_describe(body, str(error))) from error
    version = _VERSIONS.get(wire.api_version)
    if version is None or wire.kind != KIND:
        raise _other_kind(wire.api_version, wire.kind)
    request = wire.request
    if request is None:
        raise _undecodable("request: absent")
    old, old_name = _decode_object(request.old_object, "request.oldObject")
    new, new_name = _decode_object(request.object, "request.object")
    review = _compose(version, request, new_name or old_name, old, new)
    if isinstance(new, Unusable):
        return msgspec.structs.replace(review, body=_keep(request))
    return review


def _compose(
    version: Version,
    request: _Request,
    name: str,
    old: Scalable | Unusable,
    new: Scalable | Unusable,
) -> Review:
    return Review(
        version=version,
        uid=request.uid,
        operation=request.operation or "",
        resource=request.resource.resource if request.resource is not None else "",
        subresource=request.sub_resource or "",
        namespace=request.namespace or "",
        name=request.name or name,
        dry_run=bool(request.dry_run),
        user=_name_user(request.user_info),
        old=old,
        new=new,
    )


def _decode_object(raw: msgspec.Raw, field: str) -> tuple[Scalable | Unusable, str]:
    """Return one of the two objects, and the name that it gives itself."""
    try:
        wire = _OBJECT.decode(raw)
    except _BROKEN as error:
        return _explain(raw, field, str(error)), ""
    if not _is_known(wire):
        return Unusable(f"{field}: {_unsupported(wire.api_version, wire.kind)}"), _name_object(wire)
    return _scalable(wire), _name_object(wire)


def _is_known(wire: _Object) -> bool:
    return (wire.api_version, wire.kind) in _KNOWN


def _name_object(wire: _Object) -> str:
    return (wire.metadata.name if wire.metadata is not None else None) or ""


def _scalable(wire: _Object) -> Scalable:
    head, spec = wire.metadata or _ObjectHead(), wire.spec or _Spec()
    if (wire.api_version, wire.kind) == _SCALE:
        return Scalable(
            kind=wire.kind,
            uid=Uid(head.uid or ""),
            resource_version=head.resource_version or "",
            replicas=spec.replicas or 0,
        )
    return Scalable(
        kind=wire.kind,
        uid=Uid(head.uid or ""),
        resource_version=head.resource_version or "",
        replicas=spec.replicas,
        labels=only(LABELS, head.labels),
        annotations=only(ANNOTATIONS, head.annotations),
        has_annotations=head.annotations is not None,
        service_name=spec.service_name or "",
        first_ordinal=spec.ordinals.start if spec.ordinals is not None else 0,
    )


def _keep(request: _AnyRequest) -> bytes:
    """Return what the other hooks read of an object; a review of an Eviction may wait with it."""
    if request.sub_resource != _EVICTION:
        return bytes(request.object)
    try:
        return EVICTION.excerpt(request.object)
    except _BROKEN:  # nested nearly too deeply: it holds no options that can be read
        return b""


def _name_user(info: _UserInfo | None) -> str:
    return clip(info.username or "", MAX_USER) if info is not None else ""


def _explain(raw: msgspec.Raw, field: str, problem: str) -> Unusable:
    """Return why an object cannot be read; slow, but objects under review rarely break."""
    body = bytes(raw)
    if body.strip() == b"null":
        return Unusable(f"{field}: absent")
    try:
        head = _HEAD.decode(body)
    except _BROKEN:
        head = None
    # Another kind of object may well have other fields: its kind is the better reason.
    if head is not None and (head.api_version, head.kind) not in _KNOWN:
        return Unusable(f"{field}: {_unsupported(head.api_version, head.kind)}")
    return Unusable(_describe(body, problem, field))


def _refuse_other_kind(body: bytes) -> None:
    """Raise DecodeError where a body that is no review says what else it is."""
    try:
        head = _HEAD.decode(body)
    except _BROKEN:
        return
    if head.kind != KIND or head.api_version not in _VERSIONS:
        raise _other_kind(head.api_version, head.kind)


def _other_kind(api_version: str, kind: str) -> DecodeError:
    if not kind:
        return _undecodable("kind: absent")
    if not api_version:
        return _undecodable("apiVersion: absent")
    if api_version.count("/") > 1:
        return _undecodable(f"apiVersion: unexpected {one_line(api_version)}")
    return DecodeError(f"Unsupported group version kind: {_gvk(api_version, kind)}")


def _undecodable(why: str) -> DecodeError:
    return DecodeError(f"Request could not be decoded: {why}")


def _unsupported(api_version: str, kind: str) -> str:
    return f"unsupported group version kind {_gvk(api_version, kind)}" if kind else "kind: absent"


def _gvk(api_version: str, kind: str) -> str:
    # Go writes the core group as an empty name: `/v1, Kind=Pod`.
    version = api_version if "/" in api_version else f"/{api_version}"
    return f"{one_line(version)}, Kind={one_line(kind)}"


def _describe(body: bytes, problem: str, field: str = "") -> str:
    """Return `field.path: what is wrong: the value`, from a message of msgspec."""
    text, path = split_problem(problem)
    text, path = text.replace("`", ""), path.lstrip(".")
    shown = _value_at(body, path)
    name = ".".join(part for part in (field, path) if part)
    value = f": {shown}" if shown else ""
    return f"{one_line(name)}: {text}{value}" if name else f"{text}{value}"


def _value_at(body: bytes, path: str) -> str:
    """Return the scalar at a path such as `spec.replicas`, cut; empty where there is none.

    What lies beside the path is skipped: a stranger must not have it built for an error.
    """
    if not path:
        return ""
    raw = msgspec.Raw(body)
    try:
        for step in path.split("."):
            raw = _FIELDS.decode(raw).get(step, _NOTHING)
        text = bytes(raw).strip()
        value: object = None if text.startswith((b"{", b"[")) else json.loads(text)
    except (*_BROKEN, ValueError):
        return ""
    if not isinstance(value, str | int | float):
        return ""
    return show_value(value)


class _Response(Wire):
    uid: Required
    allowed: bool


class _Answer(Wire):
    kind: Required
    api_version: Required
    response: _Response


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def decode_allowed(body: bytes, review: Review) -> bool:
    """Return whether the answer in `body` allows what `review` requests.

    Raises DecodeError where it is no answer to that.
    """
    try:
        wire = _ANSWER.decode(body)
    except _BROKEN as error:
        raise DecodeError(str(error)) from error
    answered = wire.kind, wire.api_version, wire.response.uid
    if answered != (KIND, review.version, review.uid):
        raise DecodeError("it answers another question")
    return wire.response.allowed
