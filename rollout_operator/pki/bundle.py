"""Keep the CA bundle in our webhook configurations right.

Decides which configurations and hooks are ours, what to change and when to try again. Only
`caBundle` is ever changed, and only if our certificate proves the name that the hook calls: the
bundle may be another server's (D-31).
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WEBHOOK_CONFIGURATIONS, Rewrites, WorkQueue
from rollout_operator.aio.tasks import both
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject, Patcher
from rollout_operator.kube.store import Configuration
from rollout_operator.model.names import (
    INJECT_CA_LABEL,
    NAMESPACE_LABEL,
    Conflict,
    Denied,
    OperatorError,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.objects import Unreadable, Webhook, WebhookConfiguration
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.certificate import matches_name
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Caches report changes; this is for a change that they have missed.
_RESYNC: Final = timedelta(minutes=5)
# Twice a person may have applied an old manifest; the third time it is a habit. Of our writes that
# is the fourth.
_FIGHT: Final = 4
# The first failure is logged, then every tenth.
_REPORTED_EVERY: Final = 10

_RESOURCES: Final = {
    resource.kind: resource for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)
}

_Key = tuple[str, str]


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook configurations that the bundle is written into."""

    namespace: str
    """Ours, as the label of our configurations names it."""
    list_configurations: Callable[[], Iterable[Configuration]]
    """What the caches know now, of both kinds."""
    confirm: Callable[[], Awaitable[None]]
    """Has the bundle be no older than what its Secret holds."""
    names: Sequence[str]
    """DNS names that our certificate proves: a hook that calls another name is not ours."""
    are_known: Callable[[], bool] = lambda: True
    """Whether the caches are filled and live."""


def is_ours(configuration: Configuration, namespace: str) -> bool:
    """Return whether a configuration is to have the CA of the operator in `namespace`."""
    if isinstance(configuration, Unreadable):
        return False
    labels = configuration.labels
    return labels.get(INJECT_CA_LABEL) == "true" and labels.get(NAMESPACE_LABEL) == namespace


def _calls_us(hook: Webhook, names: Sequence[str]) -> bool:
    """Return whether a hook of a labelled configuration calls a server of one of these names."""
    return any(matches_name(name, hook.host) for name in names)


def plan_patch(
    configuration: WebhookConfiguration, bundle: str, namespace: str, names: Sequence[str]
) -> list[JsonObject]:
    """Return the JSON patch that gives our hooks the bundle, in base64; empty for nothing to do.

    It applies to the very version that it was made for and to no other: hooks are found by their
    place, and that may change.
    """
    if not is_ours(configuration, namespace):
        return []
    steps: list[JsonObject] = []
    for place, hook in enumerate(configuration.webhooks):
        if _calls_us(hook, names) and hook.ca_bundle != bundle:
            path = f"/webhooks/{place}/clientConfig/caBundle"
            steps.append(_test(f"/webhooks/{place}/name", hook.name))
            steps.append({"op": "add", "path": path, "value": bundle})
    if not steps:
        return []
    return [
        _test("/metadata/uid", configuration.uid),
        _test("/metadata/resourceVersion", configuration.resource_version),
        *steps,
    ]


def _test(path: str, value: str) -> JsonObject:
    return {"op": "test", "path": path, "value": value}


class _Target(msgspec.Struct):
    """What is known of a configuration."""

    others: set[str] = set()
    """Hosts of hooks that are left alone, as they were reported."""
    failures: int = 0
    """Of the attempts since the last that succeeded."""
    is_denied: bool = False
    """Whether the last attempt was against the role."""
    not_before: timedelta = timedelta(0)


class BundleInjector:
    """Writes the bundle into every labelled configuration for as long as `run` runs."""

    def __init__(
        self,
        api: Patcher,
        what: Injection,
        metrics: Metrics,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        self._api = api
        self._what = what
        self._clock = clock
        self._rng = rng
        self._bundle = b""
        self._queue: WorkQueue[_Key] = WorkQueue()
        self._rewrites: Rewrites[_Key, str] = Rewrites(clock, WEBHOOK_CONFIGURATIONS)
        self._targets: dict[_Key, _Target] = {}
        self._writes = {
            outcome: metrics.ca_bundle_writes.labels(outcome)
            for outcome in ("written", "conflict", "denied", "unknown", "failed")
        }

    def on_change(self, old: Configuration | None, new: Configuration | None) -> None:
        """Reconcile a configuration that has changed: the callback for the informers."""
        if new is not None and is_ours(new, self._what.namespace):
            self._queue.add(_key(new))

    def publish(self, bundle: bytes) -> None:
        """Write this from now on: the PEM of all CAs to be trusted; nothing is before the first."""
        self._bundle = bundle
        self.wake()

    def wake(self) -> None:
        keys = [_key(configuration) for configuration in self._list_ours()]
        for gone in self._targets.keys() - {*keys}:
            del self._targets[gone]
            self._rewrites.forget(gone)
        for key in keys:
            self._queue.add(key)

    def holds(self, bundle: bytes) -> bool:
        """Return whether every hook of ours in the caches has this bundle and no other.

        True where there is none, unless that is not known. What cannot be decoded does not count:
        it could not be written.
        """
        wanted, names = _encode(bundle), self._what.names
        hooks = (hook for configuration in self._list_ours() for hook in configuration.webhooks)
        return self._what.are_known() and all(
            hook.ca_bundle == wanted for hook in hooks if _calls_us(hook, names)
        )

    async def run(self) -> None:
        await both(self._resync(), self._work())

    async def _resync(self) -> None:
        while True:
            self.wake()
            await self._clock.sleep(_RESYNC)

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            wait = await self._reconcile(key)
            self._queue.done(key)
            if wait:
                self._queue.add_after(key, wait)

    async def _reconcile(self, key: _Key) -> timedelta:
        """Bring one configuration to what it should be; return how soon to try again, if at all."""
        current = next(
            (configuration for configuration in self._list_ours() if _key(configuration) == key),
            None,
        )
        if current is None or not self._bundle:
            return timedelta(0)
        target = self._targets.setdefault(key, _Target())
        self._report_others(target, current)
        if not self._plan(current):
            return timedelta(0)
        left = target.not_before - self._clock.elapsed()
        wait = max(left, self._rewrites.wait_before(key, _encode(self._bundle)))
        if wait > timedelta(0):
            return wait
        try:
            # Another replica may have written what differs, from a Secret that is newer than what
            # this process has read, as after it was frozen. What this reconcile finds is no older
            # than that, and the patch fails where the configuration has changed since.
            await self._what.confirm()
            patch = self._plan(current)
            if not patch:
                return timedelta(0)
            bundle = _encode(self._bundle)
            log.info("Writing CA bundle", **_keys(current))
            await self._api.patch(_RESOURCES[current.kind], "", current.name, patch)
        except OperatorError as error:
            return self._record_failure(current, target, error)
        self._record_success(current, target, bundle)
        return timedelta(0)

    def _plan(self, configuration: WebhookConfiguration) -> list[JsonObject]:
        bundle = _encode(self._bundle)
        return plan_patch(configuration, bundle, self._what.namespace, self._what.names)

    def _report_others(self, target: _Target, configuration: WebhookConfiguration) -> None:
        """Say once which hooks of a labelled configuration are left alone: it may be a mistake."""
        others = {
            hook.host for hook in configuration.webhooks if not _calls_us(hook, self._what.names)
        }
        if others == target.others:
            return
        target.others = others
        if others:
            log.info(
                "Leaving the CA bundle of other servers alone",
                **_keys(configuration),
                hosts=", ".join(sorted(others)),
                names=", ".join(self._what.names),
            )

    def _record_success(
        self, configuration: WebhookConfiguration, target: _Target, bundle: str
    ) -> None:
        key = _key(configuration)
        self._writes["written"].inc()
        target.failures, target.is_denied = 0, False
        self._rewrites.record(key, bundle)
        if self._rewrites.count(key, bundle) == _FIGHT:
            log.warn(
                "Another client keeps changing the CA bundle",
                **_keys(configuration),
                times=_FIGHT - 1,
                hint="metadata.managedFields names who writes clientConfig.caBundle",
            )

    def _record_failure(
        self, configuration: WebhookConfiguration, target: _Target, error: OperatorError
    ) -> timedelta:
        """Record that an attempt failed; return the wait before the next."""
        self._writes[_outcome(error)].inc()
        was_denied, target.is_denied = target.is_denied, isinstance(error, Denied)
        target.failures += 1
        # Only a person can mend a role.
        waits = WEBHOOK_CONFIGURATIONS
        wait = waits.most if target.is_denied else waits.delay(target.failures, self._rng())
        if isinstance(error, TooManyRequests):
            wait = max(wait, error.retry_after or timedelta(0))
        target.not_before = self._clock.elapsed() + wait
        is_news = not was_denied if target.is_denied else target.failures % _REPORTED_EVERY == 1
        if is_news:
            severity = Severity.INFO if isinstance(error, Conflict) else Severity.WARN
            log.at(severity)(
                "CA bundle not written", **_keys(configuration), retry_in=wait, err=error
            )
        return wait

    def _list_ours(self) -> Iterator[WebhookConfiguration]:
        for configuration in self._what.list_configurations():
            if isinstance(configuration, WebhookConfiguration) and is_ours(
                configuration, self._what.namespace
            ):
                yield configuration


def _outcome(error: OperatorError) -> str:
    match error:
        case Conflict():
            return "conflict"
        case Denied():
            return "denied"
        case UnknownOutcome():
            return "unknown"
        case _:
            return "failed"


def _encode(bundle: bytes) -> str:
    return b64encode(bundle).decode()


def _key(configuration: Configuration) -> _Key:
    return configuration.kind, configuration.name


def _keys(configuration: WebhookConfiguration) -> dict[str, object]:
    return {"kind": configuration.kind, "configuration": configuration.name}
