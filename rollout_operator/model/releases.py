"""A Rollout of `kuberik.com`, what holds it back, and by which rules its releases are decided.

It says which releases go where; annotations of it are what a person requests. `Rollout` is the name
of the API's kind. Here it is a release rollout: a rollout replaces pods.

A schedule of releases: in which hours of a local calendar versions may be deployed.

How a schedule is read from the API's object is written in `model.decode.releases`; when it
is active, and which gates it wants for its Rollouts, is decided in `planning.releases.schedules`.

`status` of a Rollout, as kuberik's users read it; the operator reads all of it to decide.

What stands in it is decided in `planning.releases`. Fields without a value are left out.

Names of images: `ghcr.io/team/app:1.2.3@sha256:...`, read as container engines read them.

Decides which part of a name is the registry, what is meant where it names none, and which names no
registry can hold. What is refused here is never sent anywhere: a name that passes has nothing in
it that leads out of the path of a URL. Parsers raise InvalidInput, which quotes the name.

Releases that an image policy announced, what their images say, and which may come next.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum, unique
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.names import InvalidInput, Uid
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.units import quote

DOCKER_HUB: Final = "docker.io"
# It answers under another name than the names of images have.
_DOCKER_HUB_HOST: Final = "registry-1.docker.io"
DOCKER_HUB_ALIASES: Final = (DOCKER_HUB, "index.docker.io", _DOCKER_HUB_HOST)
"""The names under which people write down credentials of Docker Hub."""

_LONGEST_NAME: Final = 255
_LONGEST_HOST: Final = 253
_LARGEST_PORT: Final = 65535
# Nothing that is a reference is longer: host, port, name, tag and a digest of 512 bits.
_LONGEST: Final = 1024

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_COMPONENT: Final = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Repository(msgspec.Struct, frozen=True):
    """Where the versions of one image are kept."""

    registry: str
    """Host in small letters, with its port where the name has one."""
    name: str

    @property
    def host(self) -> str:
        """Return which host is called, with its port where the name has one."""
        return _DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}"


class ImageReference(msgspec.Struct, frozen=True):
    """One image; without a tag and a digest any of its repository."""

    repository: Repository
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


class _Split(NamedTuple):
    registry: str
    name: str


def parse_reference(text: str) -> ImageReference:
    """Return the image that a text names. Raises InvalidInput."""
    rest, at, digest = text.partition("@")
    # A colon before the last slash is that of a port.
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
    """Return the repository that a text names without tag and digest. Raises InvalidInput."""
    reference = parse_reference(text)
    if reference.tag is not None or reference.digest is not None:
        raise InvalidInput(f"{quote(text)} is no name of a repository: it has a tag or a digest")
    return reference.repository


def check_tag(text: str) -> str:
    """Return a tag as it is. Raises InvalidInput for what is none."""
    if not _TAG.fullmatch(text):
        raise InvalidInput(f"{quote(text)} is no tag: up to 128 of letters, digits, `_`, `.`, `-`")
    return text


def check_digest(text: str) -> str:
    """Return a digest as it is. Raises InvalidInput for what is none that can be verified."""
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


def _split(text: str) -> _Split:
    """Return the registry and the rest. A first part that looks like no host is of Docker Hub."""
    first, slash, rest = text.partition("/")
    if "://" in text:
        raise InvalidInput("it has no scheme such as https://")
    host = first.lower()
    is_host = slash and (set(host) & set(".:[") or host == "localhost")
    return _Split(host, rest) if is_host else _Split(DOCKER_HUB, text)


def _check_registry(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or len(match["host"]) > _LONGEST_HOST:
        raise InvalidInput(f"{quote(text)} is no host")
    if match["port"] is not None and not 1 <= int(match["port"]) <= _LARGEST_PORT:
        raise InvalidInput(f"{match['port']} is no port")
    return text


Instant = Annotated[datetime, Meta(tz=True)]


@unique
class PolicyOrder(StrEnum):
    """By what an image policy chooses among tags: the keys of its `spec.policy`."""

    SEMVER = "semver"
    ALPHABETICAL = "alphabetical"
    NUMERICAL = "numerical"


class TagOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How an image policy compares tags: the tag that it selects is the greatest, or the least."""

    by: PolicyOrder
    is_descending: bool = False
    """Whether the least is the newest; versions are never selected so."""
    pattern: str = ""
    """Tags that it matches nowhere are not selected."""
    extract: str = ""
    """What of a match is compared, by its groups; empty for the tag."""
    problem: str = ""
    """Why Flux compares no tag by it; names object, field and value."""


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One release, by the tag of its image, as the API's `VersionInfo` has it."""

    tag: str
    digest: str | None = None
    version: str | None = None
    """What the image says of itself, as are revision and time."""
    revision: str | None = None
    created: Instant | None = None


class AnnouncedReleases(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of releases when the next is looked for."""

    available: tuple[Release, ...]
    """In the order in which they were announced, the oldest first; no tag twice."""
    current: str | None = None
    """The tag that was deployed last. None before the first deployment."""
    latest: str | None = None
    """The tag that the policy selects now. None while it selects none."""
    order: TagOrder | None = None
    """None where the policy says something that is not known here."""


class ReleaseCandidates(msgspec.Struct, frozen=True, kw_only=True):
    """The releases that are newer than the current release, the newest first, before gates."""

    releases: tuple[Release, ...] = ()
    is_path_unknown: bool = False
    """Whether a release may be missing because it cannot be compared with the current tag."""


class ReleaseMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an image. A text that the image does not have is empty."""

    digest: str
    """Of what the tag names: of the index, where the image is for several platforms."""
    artifact_type: str = ""
    version: str = ""
    revision: str = ""
    source: str = ""
    title: str = ""
    description: str = ""
    created: datetime | None = None


@unique
class BakeStatus(StrEnum):
    """What a deployment is at. Never renamed."""

    DEPLOYING = "Deploying"
    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


ACTIVE = frozenset({BakeStatus.DEPLOYING, BakeStatus.IN_PROGRESS})
"""While one of these holds, no other release is deployed by itself."""


@unique
class TriggerKind(StrEnum):
    """Whether a person requested a deployment."""

    USER = "User"
    SYSTEM = "System"


class TriggeredBy(msgspec.Struct, frozen=True, kw_only=True):
    """What requested a deployment. A claim, and no proof."""

    kind: TriggerKind
    name: str


class FailedHealthCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A HealthCheck for which a deployment failed, and its words."""

    name: str
    namespace: str
    message: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One deployment. Only the newest ever changes."""

    version: Release
    timestamp: Instant
    id: int | None = None
    """Absent in entries of earlier releases of kuberik."""
    message: str | None = None
    triggered_by: TriggeredBy | None = None
    bake_status: str | None = None
    """One of `BakeStatus`; anything else counts as over, and not as failed."""
    bake_status_message: str | None = None
    bake_start_time: Instant | None = None
    bake_end_time: Instant | None = None
    failed_health_checks: tuple[FailedHealthCheck, ...] = ()
    last_retry_timestamp: Instant | None = None
    retries: int = 0
    last_retry_by: str | None = None

    @property
    def is_active(self) -> bool:
        """Return whether it is not decided yet how it ends."""
        return self.bake_status in ACTIVE

    @property
    def has_failed(self) -> bool:
        """Return whether its health was found wanting."""
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
    """An annotation that has had its effect, and is to be removed."""

    annotation: str
    value: str


class ReleaseStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All of it. Empty where nothing was written."""

    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    """The newest first."""
    available_releases: tuple[Release, ...] = ()
    """In the order in which they were announced, the oldest first."""
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
        """Return the deployment that is in place."""
        return self.history[0] if self.history else None

    def find_condition(self, kind: str) -> StatusCondition | None:
        """Return a condition by its type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def has_condition(self, kind: str) -> bool:
        """Return whether a condition is true."""
        condition = self.find_condition(kind)
        return condition is not None and condition.status == "True"


class ReleaseHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which object of `kuberik.com` it is, whatever its spec says."""

    name: str
    uid: Uid
    resource_version: str
    namespace: str = ""
    """Empty for an object of the cluster."""
    generation: int = 0
    is_terminating: bool = False

    @property
    def key(self) -> str:
        """Return namespace and name, as every text names an object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ReleaseIntents(msgspec.Struct, frozen=True, kw_only=True):
    """What annotations of a Rollout request once, as they were written; None where absent."""

    force_deploy: str | None = None
    """The tag that is deployed, if it was announced."""
    bypass_gates: str | None = None
    """The tag for which gates do not count."""
    unblock_failed: str | None = None
    """`true` where a failed release does not stop the next release."""
    retry: str | None = None
    """Any value: a failed release is tried once more."""
    deploy_message: str | None = None
    deployment_message: str | None = None
    """The message, by the name that it has in kuberik's documents."""
    deploy_user: str | None = None


class CheckSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Which HealthChecks belong to a Rollout."""

    selector: LabelSelector | None = None
    """None selects none; an empty selector all."""
    namespaces: LabelSelector | None = None
    """None is the Rollout's own namespace alone."""


class ReleaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a Rollout wants. What it leaves out has the default of its field."""

    policy_name: str
    policy_namespace: str = ""
    """Empty for the namespace of the Rollout."""
    wanted_version: str | None = None
    history_limit: int = 10
    retention: timedelta = timedelta(days=7)
    least_available: int = 30
    bake_time: timedelta | None = None
    deploy_timeout: timedelta | None = None
    checks: CheckSelector | None = None
    update_interval: timedelta = timedelta(minutes=1)
    """From one read of the registry to the next."""
    is_suspended: bool = False
    """Whether nothing is deployed. What is deployed goes on baking."""

    @property
    def has_bake(self) -> bool:
        """Return whether a release must show its health before it counts as deployed."""
        return any(
            setting is not None for setting in (self.bake_time, self.deploy_timeout, self.checks)
        )


class ReleaseRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout that can be obeyed."""

    head: ReleaseHead
    spec: ReleaseSpec
    intents: ReleaseIntents = ReleaseIntents()
    status: ReleaseStatus = ReleaseStatus()
    waits_for_flux: bool = True
    """Whether a bake starts only once Flux has fetched and applied the release."""
    labels: Mapping[str, str] = {}


class RefusedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout whose spec cannot be obeyed: nothing is deployed for it."""

    head: ReleaseHead
    problem: str
    """Names object, field and value."""
    status: ReleaseStatus = ReleaseStatus()
    labels: Mapping[str, str] = {}
    announced: ReleaseRollout | None = None
    """What it would be with nothing but its image policy, by which versions go on being announced;
    None where that cannot be read either."""


class LabelledNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Its name and labels."""

    head: ReleaseHead
    labels: Mapping[str, str] = {}


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An owner: an object that takes its dependents with it when it is deleted."""

    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class GateOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a gate comes from, as it says itself."""

    labels: Mapping[str, str] = {}
    """Those by which a schedule knows its gates; no others."""
    pretty_name: str | None = None
    description: str | None = None
    owners: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that keeps it, None where a person keeps it."""
        return next((owner for owner in self.owners if owner.controller), None)


class ReleaseGate(msgspec.Struct, frozen=True, kw_only=True):
    """One gate. People, other controllers and schedules write it; a Rollout only reads it."""

    head: ReleaseHead
    rollout: str
    """The name of a Rollout in the same namespace."""
    is_passing: bool = True
    allowed_versions: tuple[str, ...] | None = None
    """The only tags that may be deployed; an empty list allows none, None all."""
    problem: str = ""
    """Why the rest of it cannot be read; such a gate does not pass."""
    origin: GateOrigin = GateOrigin()


class ReleaseCompat(msgspec.Struct, frozen=True, kw_only=True):
    """Which outcomes are ours; the defaults are what the operator does without a flag."""

    windows_keep_their_day: bool = True
    """Whether the hours after midnight belong to the day on which their window began (RELB-31)."""
    compares_versions: bool = True
    """Whether releases of a policy by version are ordered as versions (RELB-03)."""
    skips_failed: bool = True
    """Whether a release that failed before is not deployed again by itself (RELB-24)."""
    trusts_cancelled: bool = True
    """Whether a healthy release that was superseded leaves its successor judged (RELB-17)."""
    waits_for_flux: bool = True
    """Whether a bake starts only once Flux has applied the release (RELB-16)."""
    fails_with_flux: bool = True
    """Whether a HealthCheck is unhealthy where Flux fails for long (RELB-37)."""
    gates_all_namespaces: bool = True
    """Whether a schedule without a selector of namespaces concerns all (RELB-31)."""


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


SCHEDULE: Final = "RolloutSchedule"
CLUSTER_SCHEDULE: Final = "ClusterRolloutSchedule"
WEEKDAYS: Final = (*("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),)
"""In the order in which `date.weekday` counts them."""
MINUTES_OF_DAY: Final = 24 * 60


@unique
class ScheduleAction(StrEnum):
    """What a schedule does to versions while one of its rules matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class MinuteRange(msgspec.Struct, frozen=True):
    """Hours of a day on the wall clock, in minutes since its midnight, without the end.

    From an end before the start it reaches into the next day; equal times are the whole day.
    """

    start: int
    end: int


class DateRange(msgspec.Struct, frozen=True):
    """Local dates, both included."""

    first: date
    last: date


class ScheduleRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: it matches where all that it restricts does, and always if that is nothing."""

    name: str = ""
    times: MinuteRange | None = None
    weekdays: frozenset[int] = frozenset()
    """As `date.weekday` counts them; empty for every day."""
    dates: DateRange | None = None


class ReleaseSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """What the spec of a schedule says of time. Its rules are alternatives."""

    rules: tuple[ScheduleRule, ...]
    time_zone: str = "UTC"
    """A name of the IANA database, not looked up yet."""
    action: ScheduleAction = ScheduleAction.DENY


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule says at one moment."""

    is_active: bool
    active_rules: tuple[str, ...] = ()
    """Names of the rules that match, as the spec orders them; without those that have none."""
    next_transition: datetime | None = None
    """When `is_active` changes, in UTC. None where it stays as it is."""


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`status` of a schedule. Empty where nothing was written."""

    observed_generation: int = 0
    active: bool = False
    active_rules: tuple[str, ...] = ()
    next_transition: Instant | None = None
    managed_gates: tuple[str, ...] = ()
    """Names; those of a schedule of the cluster with their namespace."""
    matching_rollouts: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ScheduleObject(msgspec.Struct, frozen=True, kw_only=True):
    """A RolloutSchedule or, without a namespace, a ClusterRolloutSchedule."""

    kind: str
    head: ReleaseHead
    schedule: ReleaseSchedule | None = None
    """None where it is invalid: its gates stay as they are, and new gates do not pass."""
    rollouts: LabelSelector | None = None
    """The Rollouts concerned. None where it cannot be read."""
    namespaces: LabelSelector | None = None
    """Of a schedule of the cluster: the namespaces concerned. None where it does not say."""
    pretty_name: str | None = None
    description: str | None = None
    problem: str = ""
    """Names object, field and value, where it is invalid."""
    status: ScheduleStatus = ScheduleStatus()


class GatedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout as far as schedules look at it, whether or not it can be obeyed."""

    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    is_terminating: bool = False


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that one decision on a schedule works on."""

    schedule: ScheduleObject
    now: datetime
    rollouts: tuple[GatedRollout, ...] = ()
    """All that are known."""
    gates: tuple[ReleaseGate, ...] = ()
    """All that are known, whichever schedule keeps them."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces; needed where the schedule selects by them."""
    compat: ReleaseCompat = OURS


class WantedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate as a schedule wants it. Which versions it allows is left to people."""

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
    """Create a gate that is missing."""

    wanted: WantedGate


class CorrectGate(msgspec.Struct, frozen=True, kw_only=True):
    """Change a gate into what is wanted, if it is still the same."""

    head: ReleaseHead
    wanted: WantedGate


class DeleteGate(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a gate whose Rollout is not selected any more, if it is still the same."""

    head: ReleaseHead


GateAction = CreateGate | CorrectGate | DeleteGate


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for a schedule. Its status is rendered once that was tried."""

    state: ScheduleState | None = None
    """None where it is invalid: its gates stay as they are, and new gates do not pass."""
    problem: str = ""
    actions: tuple[GateAction, ...] = ()
    kept: tuple[str, ...] = ()
    """The gates that it has and that stay, by namespace and name."""
    matching: int = 0
    """How many Rollouts it concerns."""
    requeue_after: timedelta | None = None
    """When time alone changes something."""
