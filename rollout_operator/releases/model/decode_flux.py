"""JSON of objects of Flux → what decides of them; annotations that cannot be obeyed are reported.

Versions of one API differ in fields that are not read here, but for the old text of the tag that an
image policy selects. What cannot be read raises DecodeError naming object, field and value.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.objects import (
    ReadHead,
    decode_field_writers,
    read_head,
    watch_as,
)
from rollout_operator.model.decode.wire import JsonBytes, Strings, Wire, one_line, show_value
from rollout_operator.model.names import SUBSTITUTE, TAG_FROM, DecodeError, InvalidInput
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.units import compile_extraction
from rollout_operator.releases.model.decode import (
    decode_gate,
    decode_health_check,
    decode_labelled_namespace,
    decode_rollout,
    decode_schedule,
    read_body,
)
from rollout_operator.releases.model.plan import (
    FIELDS,
    IMAGE_POLICY,
    IMAGE_REPOSITORY,
    KUSTOMIZATION,
    OCI_REPOSITORY,
    TAG,
    AnnotationProblem,
    AnnouncedTag,
    FluxObject,
    FluxProgress,
    FluxReference,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.releases.model.releases import (
    CLUSTER_SCHEDULE,
    SCHEDULE,
    PolicyOrder,
    TagOrder,
    check_digest,
    check_tag,
    parse_reference,
    parse_repository,
)

_FROM: Final = ".from"
_LONGEST_NAME: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Flux refuses a Kustomization with another variable as a whole.
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Named(Wire):
    name: str = ""
    namespace: str | None = None


class _Latest(Wire):
    name: str = ""
    tag: str = ""
    digest: str = ""


class _TagFilter(Wire):
    pattern: str | None = None
    extract: str | None = None


class _Sorting(Wire):
    order: str | None = None


class _PolicyChoice(Wire):
    semver: _Sorting | None = None
    alphabetical: _Sorting | None = None
    numerical: _Sorting | None = None


class _PolicySpec(Wire):
    image_repository_ref: _Named
    policy: _PolicyChoice | None = None
    filter_tags: _TagFilter | None = None


class _PolicyStatus(Wire):
    latest_ref: _Latest | None = None
    latest_image: str | None = None


class _Policy(Wire):
    spec: _PolicySpec
    status: _PolicyStatus | None = None


class _RepositorySpec(Wire):
    image: str
    secret_ref: _Named | None = None
    cert_secret_ref: _Named | None = None
    proxy_secret_ref: _Named | None = None
    provider: str | None = None
    insecure: bool | None = None


class _Repository(Wire):
    spec: _RepositorySpec


class _Condition(Wire):
    type: str = ""
    status: str = ""
    message: str | None = None
    observed_generation: int | None = None


class _Artifact(Wire):
    revision: str = ""


class _Status(Wire):
    # Flux writes -1 before its first reconcile.
    observed_generation: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    conditions: list[_Condition] | None = None
    artifact: _Artifact | None = None
    last_applied_revision: str | None = None


class _Choice(Wire):
    tag: str | None = None
    digest: str | None = None
    semver: str | None = None


class _OciSpec(Wire):
    ref: _Choice | None = None
    suspend: bool | None = None


class _Oci(Wire):
    spec: _OciSpec
    status: _Status | None = None
    api_version: str = "source.toolkit.fluxcd.io/v1"


class _Source(_Named):
    kind: str = ""


class _PostBuild(Wire):
    substitute: Strings = None


class _KustomizationSpec(Wire):
    source_ref: _Source
    post_build: _PostBuild | None = None
    suspend: bool | None = None


class _Kustomization(Wire):
    spec: _KustomizationSpec
    status: _Status | None = None
    api_version: str = "kustomize.toolkit.fluxcd.io/v1"


def decode_image_policy(raw: JsonBytes) -> ImagePolicy:
    head = read_head(IMAGE_POLICY, raw).head
    wire = read_body(IMAGE_POLICY, raw, _Policy)
    place = wire.spec.image_repository_ref
    try:
        latest = _find_latest(wire.status or _PolicyStatus())
    except InvalidInput as error:
        raise DecodeError(f"{IMAGE_POLICY} {head.key}: {error}") from error
    return ImagePolicy(
        head=head,
        repository=FluxReference(
            kind=IMAGE_REPOSITORY, namespace=place.namespace or head.namespace, name=place.name
        ),
        latest=latest,
        order=_read_order(f"{IMAGE_POLICY} {head.key}", wire.spec),
    )


def _read_order(place: str, spec: _PolicySpec) -> TagOrder | None:
    """Return how tags are compared: of several choices Flux takes the first."""
    choice, tags = spec.policy or _PolicyChoice(), spec.filter_tags or _TagFilter()
    choices = zip(PolicyOrder, (choice.semver, choice.alphabetical, choice.numerical), strict=True)
    given = ((kind, sorting) for kind, sorting in choices if sorting is not None)
    if (chosen := next(given, None)) is None:
        return None
    kind, sorting = chosen
    order = "" if kind is PolicyOrder.SEMVER else (sorting.order or "").lower()
    problem = ""
    if order not in {"", "asc", "desc"}:
        value = show_value(sorting.order)
        problem = f"{place}: spec.policy.{kind}.order: {value} is neither asc nor desc"
    pattern, extract = tags.pattern or "", tags.extract or ""
    try:
        if pattern or extract:
            compile_extraction(pattern, extract)
    except InvalidInput as error:
        value = show_value(msgspec.structs.asdict(tags))
        problem = f"{place}: spec.filterTags: {value}: {error}"
    return TagOrder(
        by=kind,
        is_descending=order == "desc",
        pattern=pattern,
        extract=extract,
        problem=problem,
    )


def decode_image_repository(raw: JsonBytes) -> ImageRepository:
    head = read_head(IMAGE_REPOSITORY, raw).head
    spec = read_body(IMAGE_REPOSITORY, raw, _Repository).spec
    try:
        image = parse_repository(spec.image)
    except InvalidInput as error:
        raise DecodeError(f"{IMAGE_REPOSITORY} {head.key}: spec.image: {error}") from error
    return ImageRepository(
        head=head,
        image=image,
        pull_secret=_name_of(spec.secret_ref),
        certificates=_name_of(spec.cert_secret_ref),
        proxy=_name_of(spec.proxy_secret_ref),
        provider=spec.provider or "",
        is_insecure=bool(spec.insecure),
    )


def decode_oci_repository(raw: JsonBytes) -> FluxObject:
    read = read_head(OCI_REPOSITORY, raw)
    wire = read_body(OCI_REPOSITORY, raw, _Oci)
    status = wire.status or _Status()
    choice = wire.spec.ref or _Choice()
    rollout = read.annotations.get(TAG_FROM)
    problem = "" if rollout is None else _explain_bad_name(rollout)
    revision = "" if status.artifact is None else status.artifact.revision
    return FluxObject(
        kind=OCI_REPOSITORY,
        head=read.head,
        api_version=wire.api_version,
        rollouts={} if rollout is None or problem else {TAG: rollout},
        values={name: value for name, value in msgspec.structs.asdict(choice).items() if value},
        writers=decode_field_writers(raw, FIELDS[OCI_REPOSITORY]),
        progress=_convert_progress(status, revision, bool(wire.spec.suspend)),
        problems=(_report(OCI_REPOSITORY, read, TAG_FROM, problem),) if problem else (),
    )


def decode_kustomization(raw: JsonBytes) -> FluxObject:
    read = read_head(KUSTOMIZATION, raw)
    wire = read_body(KUSTOMIZATION, raw, _Kustomization)
    status, source = wire.status or _Status(), wire.spec.source_ref
    keys = sorted(
        annotation for annotation in read.annotations if annotation.startswith(SUBSTITUTE)
    )
    bad = {key: problem for key in keys if (problem := _explain_bad_variable(key, read))}
    rollouts = {_variable(key): read.annotations[key] for key in keys if key not in bad}
    writers = decode_field_writers(raw, FIELDS[KUSTOMIZATION])
    substitute = (wire.spec.post_build or _PostBuild()).substitute or {}
    return FluxObject(
        kind=KUSTOMIZATION,
        head=read.head,
        api_version=wire.api_version,
        source=FluxReference(
            kind=source.kind, namespace=source.namespace or read.head.namespace, name=source.name
        ),
        rollouts=rollouts,
        values={key: value for key, value in substitute.items() if key in {*rollouts, *writers}},
        writers=writers,
        progress=_convert_progress(
            status, status.last_applied_revision or "", bool(wire.spec.suspend)
        ),
        problems=tuple(_report(KUSTOMIZATION, read, key, problem) for key, problem in bad.items()),
    )


def _find_latest(status: _PolicyStatus) -> AnnouncedTag | None:
    latest = status.latest_ref
    try:
        if latest is not None and latest.tag:
            digest = check_digest(latest.digest) if latest.digest else None
            return AnnouncedTag(tag=check_tag(latest.tag), image=latest.name, digest=digest)
    except InvalidInput as error:
        raise InvalidInput(f"status.latestRef: {error}") from error
    return _parse_latest_image(status.latest_image) if status.latest_image else None


def _parse_latest_image(text: str) -> AnnouncedTag:
    """Return what controllers of Flux before 2.3 write (RELB-27)."""
    try:
        reference = parse_reference(text)
    except InvalidInput as error:
        raise InvalidInput(f"status.latestImage: {error}") from error
    if reference.tag is None:
        raise InvalidInput(f"status.latestImage: {show_value(text)} has no tag")
    return AnnouncedTag(tag=reference.tag, image=str(reference.repository), digest=reference.digest)


def _convert_progress(status: _Status, revision: str, is_suspended: bool) -> FluxProgress:
    ready = next(
        (condition for condition in status.conditions or [] if condition.type == "Ready"),
        _Condition(),
    )
    return FluxProgress(
        is_suspended=is_suspended,
        observed_generation=max(status.observed_generation or 0, 0),
        is_ready=ready.status == "True",
        message=(ready.message or "").strip(),
        failed_generation=(ready.observed_generation or 0) if ready.status == "False" else 0,
        revision=revision,
    )


def _name_of(reference: _Named | None) -> str | None:
    return reference.name or None if reference is not None else None


def _explain_bad_name(name: str) -> str:
    if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
        return ""
    return f"{show_value(name)} is no name of a Rollout"


def _explain_bad_variable(key: str, read: ReadHead) -> str:
    if not key.removeprefix(SUBSTITUTE).endswith(_FROM):
        return f"it does not end in {_FROM}, after the name of a variable"
    if not _VARIABLE.fullmatch(_variable(key)):
        return f"{show_value(_variable(key))} is no variable: letters, digits and _"
    return _explain_bad_name(read.annotations[key])


def _variable(key: str) -> str:
    return key.removeprefix(SUBSTITUTE).removesuffix(_FROM)


def _report(kind: str, read: ReadHead, key: str, problem: str) -> AnnotationProblem:
    text = f"{kind} {read.head.key}: annotation {one_line(key)}: {problem}"
    return AnnotationProblem(rollout=read.annotations[key].strip()[:_LONGEST_NAME], text=text)


DECODERS: Final[Mapping[str, Callable[[JsonBytes], WatchedObject]]] = {
    "Rollout": watch_as(decode_rollout),
    "RolloutGate": watch_as(decode_gate),
    "HealthCheck": watch_as(decode_health_check),
    "Namespace": watch_as(decode_labelled_namespace),
    SCHEDULE: watch_as(partial(decode_schedule, SCHEDULE)),
    CLUSTER_SCHEDULE: watch_as(partial(decode_schedule, CLUSTER_SCHEDULE)),
    IMAGE_POLICY: watch_as(decode_image_policy),
    IMAGE_REPOSITORY: watch_as(decode_image_repository),
    OCI_REPOSITORY: watch_as(decode_oci_repository),
    KUSTOMIZATION: watch_as(decode_kustomization),
}
"""Each raises DecodeError."""
