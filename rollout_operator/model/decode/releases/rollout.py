"""JSON of a Rollout → `ReleaseRollout`, or why it is refused.

A status that cannot be read makes the whole object unreadable: taken for empty it would be that of
a first deployment, which no gate holds back. An absent field and null are the same.
"""

import re
from datetime import timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model import names
from rollout_operator.model.decode.installation import WireSelector
from rollout_operator.model.decode.releases.head import (
    ReadHead,
    parse_selector,
    read_body,
    read_head,
)
from rollout_operator.model.decode.wire import JsonBytes, Wire
from rollout_operator.model.errors import DecodeError, InvalidInput
from rollout_operator.model.releases.rollout import (
    CheckSelector,
    RefusedRelease,
    ReleaseIntents,
    ReleaseRollout,
    ReleaseSpec,
)
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.model.units import parse_duration, quote

KIND: Final = "Rollout"

# Registries are not called more often than this, whatever a Rollout says.
_LEAST_INTERVAL: Final = timedelta(seconds=5)
_DURATION: Final = re.compile(r"([0-9]+(\.[0-9]+)?(ms|s|m|h))+")
# As the registries of OCI images have it.
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _PolicyRef(Wire):
    name: str = ""
    namespace: str | None = None


class _Checks(WireSelector):
    selector: WireSelector | None = None
    namespace_selector: WireSelector | None = None


class _Spec(Wire):
    releases_image_policy: _PolicyRef
    wanted_version: str | None = None
    version_history_limit: _Count | None = None
    available_releases_retention_days: _Count | None = None
    available_releases_min_count: _Count | None = None
    bake_time: str | None = None
    deploy_timeout: str | None = None
    health_check_selector: _Checks | None = None
    release_update_interval: str | None = None
    suspend: bool | None = None


class _WithSpec(Wire):
    spec: _Spec


class _Announced(Wire):
    releases_image_policy: _PolicyRef


class _WithAnnounced(Wire):
    spec: _Announced


class _WithStatus(Wire):
    status: ReleaseStatus | None = None


_SPEC: Final = msgspec.json.Decoder(_WithSpec)
_ANNOUNCED: Final = msgspec.json.Decoder(_WithAnnounced)
_STATUS: Final = msgspec.json.Decoder(_WithStatus)


def decode_rollout(raw: JsonBytes) -> ReleaseRollout | RefusedRelease:
    """Return a Rollout, or why it cannot be obeyed.

    Raises DecodeError naming object, field and value where metadata or status cannot be read.
    """
    read = read_head(KIND, raw)
    status = read_body(KIND, raw, _STATUS).status or ReleaseStatus()
    try:
        spec = _convert_spec(read_body(KIND, raw, _SPEC).spec)
    except (DecodeError, InvalidInput) as error:
        # A DecodeError names its object already.
        own = "" if isinstance(error, DecodeError) else f"{KIND} {read.head.key}: "
        problem = f"{own}{error}"
        return RefusedRelease(
            head=read.head,
            problem=problem,
            status=status,
            labels=read.labels,
            announced=_read_announced(raw, read, status),
        )
    return ReleaseRollout(
        head=read.head,
        spec=spec,
        intents=_read_intents(read),
        status=status,
        waits_for_flux=read.annotation(names.WAIT_FOR_FLUX) != "false",
        labels=read.labels,
    )


def _read_announced(raw: JsonBytes, read: ReadHead, status: ReleaseStatus) -> ReleaseRollout | None:
    try:
        policy = read_body(KIND, raw, _ANNOUNCED).spec.releases_image_policy
    except DecodeError:
        return None
    spec = ReleaseSpec(policy_name=policy.name, policy_namespace=policy.namespace or "")
    return ReleaseRollout(head=read.head, spec=spec, status=status, labels=read.labels)


def is_tag(text: str) -> bool:
    """Return whether a registry can have such a tag."""
    return _TAG.fullmatch(text) is not None


def _read_intents(read: ReadHead) -> ReleaseIntents:
    return ReleaseIntents(
        force_deploy=read.annotation(names.FORCE_DEPLOY),
        bypass_gates=read.annotation(names.BYPASS_GATES),
        unblock_failed=read.annotation(names.UNBLOCK_FAILED),
        retry=read.annotation(names.RETRY),
        deploy_message=read.annotation(names.DEPLOY_MESSAGE),
        deployment_message=read.annotation(names.DEPLOYMENT_MESSAGE),
        deploy_user=read.annotation(names.DEPLOY_USER),
    )


def _convert_spec(wire: _Spec) -> ReleaseSpec:
    policy, default = wire.releases_image_policy, ReleaseSpec(policy_name="")
    days = wire.available_releases_retention_days
    if wire.wanted_version is not None and not is_tag(wire.wanted_version):
        raise InvalidInput(f"spec.wantedVersion: {quote(wire.wanted_version)} is no tag")
    return ReleaseSpec(
        policy_name=policy.name,
        policy_namespace=policy.namespace or "",
        wanted_version=wire.wanted_version,
        history_limit=wire.version_history_limit or default.history_limit,
        # More days than there are since the year 1 are as good as all.
        retention=default.retention if days is None else timedelta(days=min(days, 10**6)),
        least_available=wire.available_releases_min_count or default.least_available,
        bake_time=_parse_duration(wire.bake_time, "bakeTime"),
        deploy_timeout=_parse_duration(wire.deploy_timeout, "deployTimeout"),
        checks=_convert_checks(wire.health_check_selector),
        update_interval=max(
            _parse_duration(wire.release_update_interval, "releaseUpdateInterval")
            or default.update_interval,
            _LEAST_INTERVAL,
        ),
        is_suspended=bool(wire.suspend),
    )


def _convert_checks(wire: _Checks | None) -> CheckSelector | None:
    """Return the selector, also from where kuberik's examples write it (RELB-02)."""
    if wire is None:
        return None
    path = "spec.healthCheckSelector"
    is_direct = wire.match_labels is not None or wire.match_expressions is not None
    if is_direct and wire.selector is not None:
        raise InvalidInput(f"{path}: it has labels both by themselves and below selector")
    inner, inner_path = (wire, path) if is_direct else (wire.selector, f"{path}.selector")
    spaces = wire.namespace_selector
    return CheckSelector(
        selector=None if inner is None else parse_selector(inner, inner_path),
        namespaces=None if spaces is None else parse_selector(spaces, f"{path}.namespaceSelector"),
    )


def _parse_duration(text: str | None, name: str) -> timedelta | None:
    if text is None:
        return None
    if not _DURATION.fullmatch(text):
        raise InvalidInput(f"spec.{name}: {quote(text)} is no duration such as 1h30m")
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise InvalidInput(f"spec.{name}: {error}") from error
