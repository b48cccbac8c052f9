"""Slim API objects: the fields that decide, and no more.

They are frozen. Two of them that differ only in `resource_version` decide alike: see
`kube.cache.store.decides`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, TypeAlias, TypeVar

import msgspec

from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    NAMESPACE_LABEL,
    GroupName,
    Revision,
    Uid,
)

# `start` and `replicas` are 32-bit numbers: no ordinal is longer.
_ORDINAL_DIGITS: Final = 10

Decoded = TypeVar("Decoded")


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a group, as the API server shows it."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    is_terminating: bool = False
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Only the keys in `names.STATEFULSET_ANNOTATIONS`."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`: immutable, carried by every pod of the set."""
    strategy: str = "RollingUpdate"
    replicas: int = 1
    """`spec.replicas`; the API's own default where it is absent."""
    first_ordinal: int = 0
    service_name: str = ""
    """`spec.serviceName`, as it is written: whether it is a name is not checked here."""
    is_ordered: bool = True
    """Whether an absent pod is created only once all pods below it are ready, as by default."""
    min_ready_seconds: int = 0
    observed_generation: int = 0
    status_replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    current_revision: Revision = Revision("")
    update_revision: Revision = Revision("")

    @property
    def group(self) -> GroupName | None:
        """Return the rollout group, None where the set belongs to none."""
        return find_group(self.labels)

    def ordinal_of(self, pod: str) -> int | None:
        """Return the ordinal in the name of one of its pods, None where it is no such name."""
        prefix = f"{self.name}-"
        return parse_ordinal(pod[len(prefix) :]) if pod.startswith(prefix) else None

    def find_ordinal(self, pod: str, ordinals: range) -> int | None:
        """Return the ordinal of a pod where that is in the range, None for any other name.

        However long the range is: to look for None in it would mean to walk it.
        """
        ordinal = self.ordinal_of(pod)
        return ordinal if ordinal is not None and ordinal in ordinals else None

    @property
    def ordinals(self) -> range:
        """Return the ordinals that `spec` wants."""
        return range(self.first_ordinal, self.first_ordinal + self.replicas)


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as far as it decides."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    """UID of the controlling owner reference, whatever its kind."""
    created: datetime | None = None
    """`metadata.creationTimestamp`: the API server sets it, and nothing changes it."""
    revision: Revision | None = None
    phase: str = ""
    is_terminating: bool = False
    is_disrupted: bool = False
    """Condition DisruptionTarget: it is evicted, preempted, or its node goes."""
    is_ready: bool = False
    """Phase Running, not terminating, condition Ready, every container ready and running."""
    ready_since: datetime | None = None
    """Last transition of the Ready condition, where `is_ready`."""
    was_ready: bool = False
    """Whether it is not ready now and its own status shows that it has been before."""
    never_ready: bool = False
    """Whether it is not ready now and its own status proves that it has never been."""
    is_crash_looping: bool = False
    """Whether a container of it waits to be started again, because it crashed too often."""
    ip: str = ""
    """`status.podIP`; empty before it has one."""
    labels: Mapping[str, str] = {}
    downscale_record: str = ""
    """The annotation `names.DOWNSCALE_RECORD`, undecoded."""
    ports: tuple[int, ...] = ()
    """The ports of its containers; read only of a pod that carries a record."""
    disruption: str = ""
    """The annotation `names.DISRUPTION_RECORD`, undecoded."""
    why_not_ready: str = ""
    """Why the pod is not ready, in a few words, e.g. `CrashLoopBackOff`; empty where it is."""
    is_starting: bool = False
    """Whether that is what every pod passes through on its way up: others may stay down."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as far as it says in which zone its pods run."""

    name: str
    uid: Uid
    resource_version: str
    labels: Mapping[str, str] = {}
    """Those that were requested."""
    keys: frozenset[str] = frozenset()
    """Which those are: of any other label nothing is known."""
    namespace: str = ""
    """Always empty: the kind belongs to the cluster."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of a webhook configuration."""

    name: str
    ca_bundle: str = ""
    """Base64 of PEM, as it is written; empty where absent."""
    failure_policy: str = "Fail"
    path: str = ""
    """The path that is called, of the Service or of the URL."""
    host: str = ""
    """The name that the called server must prove, in lower case; empty where it is unknown."""


class WebhookConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """A Validating- or MutatingWebhookConfiguration."""

    kind: str
    name: str
    uid: Uid
    resource_version: str
    labels: Mapping[str, str] = {}
    """Only `names.INJECT_CA_LABEL` and `names.NAMESPACE_LABEL`."""
    webhooks: tuple[Webhook, ...] = ()
    namespace: str = ""
    """Always empty: the kind belongs to the cluster."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a list or watch that could not be decoded: known, but not what it says."""

    kind: str
    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    labels: Mapping[str, str] = {}
    error: str
    """Names field and value."""

    @property
    def group(self) -> GroupName | None:
        """Return the rollout group that the labels name, None where they name none."""
        return find_group(self.labels)


class WatchedObject(msgspec.Struct, frozen=True, kw_only=True):
    """Any object that is followed. Two with the same `decoded`, without a version, say the same."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    decoded: object


AnyWatched: TypeAlias = WatchedObject | Unreadable


def list_decoded(
    objects: Iterable[AnyWatched | None], *kinds: type[Decoded]
) -> tuple[Decoded, ...]:
    """Return what the objects say that are there, can be read, and are of these kinds."""
    decoded = (watched.decoded for watched in objects if isinstance(watched, WatchedObject))
    return tuple(each for each in decoded if isinstance(each, kinds))


def parse_ordinal(digits: str) -> int | None:
    """Return the ordinal that a controller writes like this; `01` is none."""
    if not digits.isdecimal() or not digits.isascii() or len(digits) > _ORDINAL_DIGITS:
        return None
    return None if digits[0] == "0" and digits != "0" else int(digits)


def find_group(labels: Mapping[str, str]) -> GroupName | None:
    """Return the rollout group that labels name, None where they name none."""
    name = labels.get(GROUP_LABEL, labels.get(GROUP_LABEL_LONG))
    return None if name is None else GroupName(name)


def list_failure_policies(
    configurations: Iterable[WebhookConfiguration | Unreadable], namespace: str
) -> Iterator[tuple[str, str, str]]:
    """Yield type, name and failure policy of each hook that is labelled for our namespace.

    The type is `ValidatingWebhook` or `MutatingWebhook`. Two configurations may hold hooks of one
    name, which then comes twice.
    """
    for config in configurations:
        if isinstance(config, Unreadable) or config.labels.get(NAMESPACE_LABEL) != namespace:
            continue
        for hook in config.webhooks:
            yield config.kind.removesuffix("Configuration"), hook.name, hook.failure_policy
