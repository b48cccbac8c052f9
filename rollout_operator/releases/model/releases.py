"""A Rollout of `kuberik.com`, its status, gates and schedules, and the names of its images.

`Rollout` is the name of the API's kind; in code it is a release rollout, since a rollout replaces
pods. `model.decode` reads it, `planning.releases` and `planning.schedules` decide. A
status field without a value is left out.

Names of images are read as container engines read them. A name that passes cannot escape from the
path of a URL; a refused name is never sent.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum, unique
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model import names
from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.names import InvalidInput, Uid
from rollout_operator.model.objects import LabelSelector, WatchedHead
from rollout_operator.model.units import quote

DOCKER_HUB: Final = "docker.io"
# The host that serves it.
_DOCKER_HUB_HOST: Final = "registry-1.docker.io"
# Names under which credentials of Docker Hub are stored.
DOCKER_HUB_ALIASES: Final = (DOCKER_HUB, "index.docker.io", _DOCKER_HUB_HOST)
_LONGEST_NAME: Final = 255
_LONGEST_HOST: Final = 253
_LARGEST_PORT: Final = 65535
# Host, port, name, tag and a digest of 512 bits are shorter.
_LONGEST: Final = 1024
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_COMPONENT: Final = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
Instant = Annotated[datetime, Meta(tz=True)]
SCHEDULE: Final = "RolloutSchedule"
CLUSTER_SCHEDULE: Final = "ClusterRolloutSchedule"
INTENTS: Final = (
    names.RETRY,  # any value: a failed release is tried once more
    names.FORCE_DEPLOY,  # a tag to deploy, if it was announced
    names.BYPASS_GATES,  # a tag for which gates do not count
    names.UNBLOCK_FAILED,  # `true`: a failed release does not stop the next one
    names.DEPLOY_MESSAGE,
    names.DEPLOYMENT_MESSAGE,  # the message, under its name in kuberik's documents
    names.DEPLOY_USER,
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In the order in which `date.weekday` counts them."""
MINUTES_OF_DAY: Final = 24 * 60


class Repository(msgspec.Struct, frozen=True):
    """All versions of one image."""

    registry: str
    """Host in lower case, with its port if given."""
    name: str

    @property
    def host(self) -> str:
        """Return the host that is called, with its port if given."""
        return _DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}"


class ImageReference(msgspec.Struct, frozen=True):
    """An image by tag, digest or both; without either, any image of the repository."""

    repository: Repository
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


@unique
class PolicyOrder(StrEnum):
    """How an image policy chooses: the keys of its `spec.policy`."""

    SEMVER = "semver"
    ALPHABETICAL = "alphabetical"
    NUMERICAL = "numerical"


class TagOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How an image policy compares tags."""

    by: PolicyOrder
    is_descending: bool = False
    """Whether the least is the newest; never for versions."""
    pattern: str = ""
    """Only tags that it matches are selected."""
    extract: str = ""
    """What of a match is compared, by its groups; empty for the tag."""
    problem: str = ""
    """Why Flux cannot use it; names object, field and value."""


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release, by the tag of its image; `VersionInfo` in the API."""

    tag: str
    digest: str | None = None
    version: str | None = None
    """From the image, as are revision and time."""
    revision: str | None = None
    created: Instant | None = None


class AnnouncedReleases(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when the next release is looked for."""

    available: tuple[Release, ...]
    """In the order of announcement, oldest first, each tag once."""
    current: str | None = None
    """The tag deployed last."""
    latest: str | None = None
    """The tag that the policy selects now."""
    before: tuple[str, ...] | None = None
    """The tags that were deployed or candidates before; None if unknown."""
    order: TagOrder | None = None
    """None if unknown."""


class ReleaseCandidates(msgspec.Struct, frozen=True, kw_only=True):
    """The releases newer than the current one, newest first, before gates."""

    releases: tuple[Release, ...] = ()
    is_path_unknown: bool = False
    """Whether one may be missing that cannot be compared with the current tag."""


class ReleaseMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an image; absent texts are empty."""

    digest: str
    """Of what the tag names, an index if it is for several platforms."""
    artifact_type: str = ""
    version: str = ""
    revision: str = ""
    source: str = ""
    title: str = ""
    description: str = ""
    created: datetime | None = None


@unique
class BakeStatus(StrEnum):
    """The values are part of the API and never change."""

    DEPLOYING = "Deploying"
    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


# With one of these, no other release is deployed automatically.
_ACTIVE: Final = frozenset({BakeStatus.DEPLOYING, BakeStatus.IN_PROGRESS})


@unique
class TriggerKind(StrEnum):
    USER = "User"
    SYSTEM = "System"


class TriggeredBy(msgspec.Struct, frozen=True, kw_only=True):
    """Who requested a deployment, unverified."""

    kind: TriggerKind
    name: str


class FailedHealthCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A HealthCheck for which a deployment failed, with its message."""

    name: str
    namespace: str
    message: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A deployment. Only the newest ever changes."""

    version: Release
    timestamp: Instant
    id: int | None = None
    """Absent in entries of earlier releases of kuberik."""
    message: str | None = None
    triggered_by: TriggeredBy | None = None
    bake_status: str | None = None
    """A `BakeStatus`; anything else is over, and not failed."""
    bake_status_message: str | None = None
    bake_start_time: Instant | None = None
    bake_end_time: Instant | None = None
    failed_health_checks: tuple[FailedHealthCheck, ...] = ()
    last_retry_timestamp: Instant | None = None
    retries: int = 0
    last_retry_by: str | None = None

    @property
    def is_active(self) -> bool:
        """Return whether its bake is not over."""
        return self.bake_status in _ACTIVE

    @property
    def has_failed(self) -> bool:
        return self.bake_status == BakeStatus.FAILED


class GateSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one gate says of the candidates."""

    name: str
    passing: bool | None = None
    allowed_versions: tuple[str, ...] | None = None
    message: str | None = None
    bypass_gates: bool | None = None


class ExcludedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is not deployed by itself, and why."""

    tag: str
    reason: str


class ConsumedIntent(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that had its effect, to be removed."""

    annotation: str
    value: str


class ReleaseStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Empty if nothing was written."""

    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    """Newest first."""
    available_releases: tuple[Release, ...] = ()
    """In the order of announcement, oldest first."""
    available_releases_count: int = 0
    release_candidates: tuple[Release, ...] = ()
    gated_release_candidates: tuple[Release, ...] = ()
    excluded_releases: tuple[ExcludedRelease, ...] = ()
    gates: tuple[GateSummary, ...] = ()
    artifact_type: str | None = None
    source: str | None = None
    title: str | None = None
    description: str | None = None
    consumed_intents: tuple[ConsumedIntent, ...] = ()

    @property
    def current(self) -> HistoryEntry | None:
        """Return the current deployment."""
        return self.history[0] if self.history else None

    def find_condition(self, kind: str) -> StatusCondition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def has_condition(self, kind: str) -> bool:
        """Return whether a condition is true."""
        condition = self.find_condition(kind)
        return condition is not None and condition.status == "True"


class CheckSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Which HealthChecks belong to a Rollout."""

    selector: LabelSelector | None = None
    """None selects none, an empty selector all."""
    namespaces: LabelSelector | None = None
    """None for the Rollout's own namespace."""


class ReleaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """With defaults filled in."""

    policy_name: str
    policy_namespace: str = ""
    """Empty for the Rollout's own."""
    wanted_version: str | None = None
    history_limit: int = 10
    retention: timedelta = timedelta(days=7)
    least_available: int = 30
    bake_time: timedelta | None = None
    deploy_timeout: timedelta | None = None
    checks: CheckSelector | None = None
    update_interval: timedelta = timedelta(minutes=1)
    """Between reads of the registry."""
    is_suspended: bool = False
    """Whether nothing new is deployed; bakes go on."""

    @property
    def has_bake(self) -> bool:
        """Return whether a release must prove its health before it counts as deployed."""
        return any(
            setting is not None for setting in (self.bake_time, self.deploy_timeout, self.checks)
        )


class ReleaseRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A valid Rollout."""

    head: WatchedHead
    spec: ReleaseSpec
    intents: Mapping[str, str] = {}
    """Its one-time requests: annotations out of `INTENTS`, as written."""
    status: ReleaseStatus = ReleaseStatus()
    waits_for_flux: bool = True
    """Whether a bake starts only once Flux has applied the release."""
    labels: Mapping[str, str] = {}


class RefusedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout whose spec is invalid: nothing is deployed for it."""

    head: WatchedHead
    problem: str
    """Names object, field and value."""
    status: ReleaseStatus = ReleaseStatus()
    labels: Mapping[str, str] = {}
    announced: ReleaseRollout | None = None
    """The Rollout with only its image policy, so that versions are still announced; None if that is
    invalid too."""


class LabelledNamespace(msgspec.Struct, frozen=True, kw_only=True):
    head: WatchedHead
    labels: Mapping[str, str] = {}


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class GateOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a gate comes from, by its own account."""

    labels: Mapping[str, str] = {}
    """Only those by which a schedule knows its gates."""
    pretty_name: str | None = None
    description: str | None = None
    owners: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that keeps it, None for a person."""
        return next((owner for owner in self.owners if owner.controller), None)


class ReleaseGate(msgspec.Struct, frozen=True, kw_only=True):
    """Written by people, other controllers and schedules; a Rollout only reads it."""

    head: WatchedHead
    rollout: str
    """In the same namespace."""
    is_passing: bool = True
    allowed_versions: tuple[str, ...] | None = None
    """The only tags that may be deployed; empty for none, None for all."""
    problem: str = ""
    """Why the rest cannot be read; such a gate does not pass."""
    origin: GateOrigin = GateOrigin()


class ReleaseCompat(msgspec.Struct, frozen=True, kw_only=True):
    """Where outcomes differ from kuberik's; the defaults are ours."""

    windows_keep_their_day: bool = True
    """Whether hours after midnight belong to the day on which their window began (RELB-31)."""
    compares_versions: bool = True
    """Whether releases of a policy by version are ordered as versions (RELB-03)."""
    skips_failed: bool = True
    """Whether a failed release is not deployed again by itself (RELB-24)."""
    trusts_cancelled: bool = True
    """Whether a healthy superseded release leaves its successor judged (RELB-17)."""
    waits_for_flux: bool = True
    """Whether a bake starts only once Flux has applied the release (RELB-16)."""
    fails_with_flux: bool = True
    """Whether a HealthCheck is unhealthy if Flux fails for long (RELB-37)."""
    gates_all_namespaces: bool = True
    """Whether a schedule without a namespace selector applies to all (RELB-31)."""


OURS: Final = ReleaseCompat()
KUBERIK: Final = ReleaseCompat(
    windows_keep_their_day=False,
    compares_versions=False,
    skips_failed=False,
    trusts_cancelled=False,
    waits_for_flux=False,
    fails_with_flux=False,
    gates_all_namespaces=False,
)


@unique
class ScheduleAction(StrEnum):
    """What a schedule does while one of its rules matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class MinuteRange(msgspec.Struct, frozen=True):
    """Local hours of a day, in minutes since midnight, without the end.

    An end before the start is on the next day; equal times are the whole day.
    """

    start: int
    end: int


class DateRange(msgspec.Struct, frozen=True):
    """Local dates, both included."""

    first: date
    last: date


class ScheduleRule(msgspec.Struct, frozen=True, kw_only=True):
    """It matches where all its restrictions do, always without any."""

    name: str = ""
    times: MinuteRange | None = None
    weekdays: frozenset[int] = frozenset()
    """As in `date.weekday`; empty for every day."""
    dates: DateRange | None = None


class ReleaseSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Its rules are alternatives."""

    rules: tuple[ScheduleRule, ...]
    time_zone: str = "UTC"
    """An IANA name, not looked up yet."""
    action: ScheduleAction = ScheduleAction.DENY


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule says at one moment."""

    is_active: bool
    active_rules: tuple[str, ...] = ()
    """Names of the matching rules, in order, of those that have one."""
    next_transition: datetime | None = None
    """When `is_active` changes, in UTC."""


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Empty if nothing was written."""

    observed_generation: int = 0
    active: bool = False
    active_rules: tuple[str, ...] = ()
    next_transition: Instant | None = None
    managed_gates: tuple[str, ...] = ()
    """Names, with the namespace for a schedule of the cluster."""
    matching_rollouts: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ScheduleObject(msgspec.Struct, frozen=True, kw_only=True):
    """A RolloutSchedule or, without a namespace, a ClusterRolloutSchedule."""

    kind: str
    head: WatchedHead
    schedule: ReleaseSchedule | None = None
    """None if it is invalid: its gates stay as they are, and new gates do not pass."""
    rollouts: LabelSelector | None = None
    """None if it cannot be read."""
    namespaces: LabelSelector | None = None
    """Of a schedule of the cluster, if it has one."""
    pretty_name: str | None = None
    description: str | None = None
    problem: str = ""
    """Names object, field and value."""
    status: ScheduleStatus = ScheduleStatus()


class GatedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout as schedules see it, valid or not."""

    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    is_terminating: bool = False


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one decision on a schedule."""

    schedule: ScheduleObject
    now: datetime
    rollouts: tuple[GatedRollout, ...] = ()
    gates: tuple[ReleaseGate, ...] = ()
    """Of all schedules."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces; only if the schedule selects by them."""
    compat: ReleaseCompat = OURS


class WantedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate as a schedule wants it; people choose the versions that it allows."""

    namespace: str
    name: str
    rollout: str
    is_passing: bool
    origin: GateOrigin

    @property
    def key(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"


class CreateGate(msgspec.Struct, frozen=True, kw_only=True):
    wanted: WantedGate


class CorrectGate(msgspec.Struct, frozen=True, kw_only=True):
    """Change a gate, if it is still the same."""

    head: WatchedHead
    wanted: WantedGate


class DeleteGate(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a gate whose Rollout is no longer selected, if it is still the same."""

    head: WatchedHead


GateAction = CreateGate | CorrectGate | DeleteGate


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The status is rendered once the actions were tried."""

    state: ScheduleState | None = None
    """None if the schedule is invalid."""
    problem: str = ""
    actions: tuple[GateAction, ...] = ()
    kept: tuple[str, ...] = ()
    """Existing gates that stay, by namespace and name."""
    matching: int = 0
    """Number of Rollouts that it applies to."""
    requeue_after: timedelta | None = None
    """When something changes by time alone."""


def parse_reference(text: str) -> ImageReference:
    """Parse the name of an image. Raises InvalidInput."""
    rest, at, digest = text.partition("@")
    # A colon before the last slash precedes a port.
    name, colon, tag = rest.rpartition(":") if ":" in rest.rpartition("/")[2] else (rest, "", "")
    try:
        if len(text) > _LONGEST:
            raise InvalidInput(f"longer than {_LONGEST} characters")
        return ImageReference(
            _read_repository(name),
            tag=check_tag(tag) if colon else None,
            digest=check_digest(digest) if at else None,
        )
    except InvalidInput as error:
        raise InvalidInput(f"{quote(text)} is no name of an image: {error}") from error


def parse_repository(text: str) -> Repository:
    """Parse a name without tag and digest. Raises InvalidInput."""
    reference = parse_reference(text)
    if reference.tag is not None or reference.digest is not None:
        raise InvalidInput(f"{quote(text)} is no name of a repository: it has a tag or a digest")
    return reference.repository


def check_tag(text: str) -> str:
    """Return the tag. Raises InvalidInput."""
    if not _TAG.fullmatch(text):
        raise InvalidInput(f"{quote(text)} is no tag: up to 128 of letters, digits, `_`, `.`, `-`")
    return text


def check_digest(text: str) -> str:
    """Return the digest. Raises InvalidInput unless it can be verified."""
    if not _DIGEST.fullmatch(text):
        raise InvalidInput(f"{quote(text)} is no digest by sha256 or sha512")
    return text


def _read_repository(text: str) -> Repository:
    registry, name = _split(text)
    if registry in DOCKER_HUB_ALIASES[:2]:
        registry = DOCKER_HUB
        name = name if "/" in name else f"library/{name}"
    if len(name) > _LONGEST_NAME:
        raise InvalidInput(f"a repository has at most {_LONGEST_NAME} characters")
    for component in name.split("/"):
        if not _COMPONENT.fullmatch(component):
            raise InvalidInput(
                f"{quote(component)} is no part of a repository: small letters and digits, "
                "with single separators between them"
            )
    return Repository(_check_registry(registry), name)


def _split(text: str) -> tuple[str, str]:
    """Return registry and name; Docker Hub where the first part is not a host."""
    first, slash, rest = text.partition("/")
    if "://" in text:
        raise InvalidInput("it has no scheme such as https://")
    host = first.lower()
    is_host = slash and (set(host) & set(".:[") or host == "localhost")
    return (host, rest) if is_host else (DOCKER_HUB, text)


def _check_registry(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or len(match["host"]) > _LONGEST_HOST:
        raise InvalidInput(f"{quote(text)} is no host")
    if match["port"] is not None and not 1 <= int(match["port"]) <= _LARGEST_PORT:
        raise InvalidInput(f"{match['port']} is no port")
    return text
