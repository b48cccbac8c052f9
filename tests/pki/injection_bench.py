"""A cluster of a few webhook configurations and an injector on them, on virtual time.

The API applies JSON patches as the real one does as far as they test, add and remove, and shows the
caches each change after `delay`.
"""

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject, Resource
from rollout_operator.kube.store import Configuration, ConfigurationStore
from rollout_operator.model.names import (
    INJECT_CA_LABEL,
    NAMESPACE_LABEL,
    ApiError,
    Conflict,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import Webhook, WebhookConfiguration
from rollout_operator.pki.bundle import BundleInjector, Injection
from rollout_operator.telemetry.metrics import Metrics

HOST = "rollout-operator.ops.svc"
NAMES = (HOST, f"{HOST}.cluster.local")
OURS = {INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"}
PEM = b"-----BEGIN CERTIFICATE-----\nfirst\n-----END CERTIFICATE-----\n"
OTHER_PEM = b"-----BEGIN CERTIFICATE-----\nother\n-----END CERTIFICATE-----\n"


def encoded(pem: bytes) -> str:
    return b64encode(pem).decode()


def configuration(
    name: str = "guard", *bundles: bytes, kind: str = VALIDATING_WEBHOOKS.kind
) -> WebhookConfiguration:
    """Return a labelled configuration with a hook for each bundle, one without where none is."""
    hooks = [
        Webhook(name=f"{name}-{place}.ops", ca_bundle=encoded(pem), host=HOST)
        for place, pem in enumerate(bundles or (b"",))
    ]
    return WebhookConfiguration(
        kind=kind,
        name=name,
        uid=Uid(f"uid-{name}"),
        resource_version="1",
        labels=OURS,
        webhooks=tuple(hooks),
    )


@dataclass
class Cluster:
    """Configurations by plural and name; `stores` are the caches, by plural."""

    first: WebhookConfiguration | None = None
    """Stored before anything else."""
    objects: dict[tuple[str, str], WebhookConfiguration] = field(default_factory=dict)
    stores: dict[str, ConfigurationStore] = field(default_factory=dict)
    writes: list[tuple[float, str, Sequence[JsonObject]]] = field(default_factory=list)
    """When, which and what: all that were requested."""
    errors: deque[ApiError] = field(default_factory=deque)
    """Of the next writes. One left is that of all further ones."""
    is_wiped: bool = False
    """Whether a co-writer takes each bundle away as soon as it is there."""
    is_cached: bool = True
    """Whether the caches learn what is written."""
    bundle: bytes = PEM
    stored: bytes = b""
    """What the next read of the Secret finds, where that is another bundle."""
    read_errors: deque[ApiError] = field(default_factory=deque)
    """Of the next reads of the Secret."""
    metrics: Metrics = field(default_factory=Metrics)
    version: int = 1

    def __post_init__(self) -> None:
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            self.stores[resource.plural] = ConfigurationStore()
        self.injector = BundleInjector(
            self,
            Injection(
                namespace="ops",
                list_configurations=self.list_cached,
                bundle=lambda: self.bundle,
                confirm=self._confirm,
                names=NAMES,
            ),
            self.metrics,
            LoopClock(),
            lambda: 1.0,
        )
        if self.first is not None:
            self.put(self.first)

    async def _confirm(self) -> None:
        if self.read_errors:
            raise self.read_errors.popleft()
        self.bundle = self.stored or self.bundle

    @property
    def times(self) -> list[float]:
        return [at for at, _, _ in self.writes]

    def list_cached(self) -> list[Configuration]:
        return [one for store in self.stores.values() for one in store.list_all()]

    def get(self, name: str = "guard") -> WebhookConfiguration:
        (found,) = [one for (_, key), one in self.objects.items() if key == name]
        return found

    def bundles(self, name: str = "guard") -> list[str]:
        return [hook.ca_bundle for hook in self.get(name).webhooks]

    def put(self, one: WebhookConfiguration, *, is_cached: bool = True) -> None:
        """Store a new version of a configuration."""
        self.version += 1
        one = replace(one, resource_version=str(self.version))
        plural = _plural(one.kind)
        self.objects[plural, one.name] = one
        if is_cached:
            for old, new in self.stores[plural].upsert(one):
                self.injector.on_change(old, new)

    def drop(self, name: str) -> None:
        one = self.get(name)
        self.version += 1
        plural = _plural(one.kind)
        del self.objects[plural, name]
        last = replace(one, resource_version=str(self.version))
        for old, new in self.stores[plural].remove(last):
            self.injector.on_change(old, new)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *_: object,
        **__: object,
    ) -> bytes:
        assert not isinstance(patch, dict)
        assert namespace == ""
        self.writes.append((asyncio.get_running_loop().time(), name, patch))
        await asyncio.sleep(0.001)
        if self.errors:
            raise self.errors.popleft() if len(self.errors) > 1 else self.errors[0]
        held = self.objects.get((resource.plural, name))
        if held is None:
            raise NotFound(f"{name} not found", status=404)
        self.put(apply(held, patch), is_cached=self.is_cached)
        if self.is_wiped:
            self.put(held)
        return b"{}"

    def count(self, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "rollout_operator_ca_bundle_writes_total", {"outcome": outcome}
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the injector to the end of the block."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.injector.run(), name="injector")
            yield
            task.cancel()


def apply(one: WebhookConfiguration, patch: Sequence[JsonObject]) -> WebhookConfiguration:
    """Return the configuration with the patch applied. Raises Conflict where a test fails."""
    hooks = list(one.webhooks)
    for step in patch:
        path, value = str(step["path"]).split("/")[1:], str(step["value"])
        match step["op"], path:
            case "test", ["metadata", "uid"]:
                found: str = one.uid
            case "test", ["metadata", "resourceVersion"]:
                found = one.resource_version
            case "test", ["webhooks", place, "name"]:
                found = hooks[int(place)].name
            case "add", ["webhooks", place, "clientConfig", "caBundle"]:
                hooks[int(place)] = replace(hooks[int(place)], ca_bundle=value)
                continue
            case _:
                raise AssertionError(f"SI-20: {step}")
        if found != value:
            raise Conflict(f"{'/'.join(path)} is {found}, not {value}", status=422)
    return replace(one, webhooks=tuple(hooks))


def _plural(kind: str) -> str:
    resources = (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)
    return next(one.plural for one in resources if one.kind == kind)
