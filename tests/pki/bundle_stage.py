"""Webhook configurations on virtual time, and an injector that keeps the CA in them.

The API applies JSON patches as the real one does as far as they test and add, and shows the caches
each change at once.
"""

import asyncio
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Final

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
from rollout_operator.pki.bundle import BundleInjector, Injection, plan_patch
from rollout_operator.telemetry.metrics import Metrics
from tests.stories import Steps
from tests.virtual_time import elapsed
from tests.web.client_stage import ERRORS

HOST: Final = "rollout-operator.ops.svc"
NAMES: Final = (HOST, f"{HOST}.cluster.local")
PEMS: Final = {
    name: b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----\n" % name.encode()
    for name in ("first", "other")
} | {"none": b""}
PEMS["other+first"] = PEMS["other"] + PEMS["first"]
ENCODED: Final = {b64encode(pem).decode(): name for name, pem in PEMS.items()}
OUTCOMES: Final = ("written", "conflict", "denied", "unknown", "failed")
KINDS: Final = {one.kind: one.plural for one in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)}


def configuration(name: str, *words: str) -> WebhookConfiguration:
    """Return a configuration that is labelled for us, with a hook for each bundle.

    Words of the form `key=value` change labels, its kind, and the host of its first hook.
    """
    given = dict(word.split("=", 1) for word in words if "=" in word)
    bundles = [word for word in words if word in PEMS] or ["none"]
    hooks = [
        Webhook(name=f"{name}-{place}.ops", ca_bundle=b64encode(PEMS[bundle]).decode(), host=HOST)
        for place, bundle in enumerate(bundles)
    ]
    hooks[0] = replace(hooks[0], host=given.get("host", HOST))
    labels = {INJECT_CA_LABEL: given.get("inject", "true"), NAMESPACE_LABEL: given.get("of", "ops")}
    return WebhookConfiguration(
        kind=MUTATING_WEBHOOKS.kind if "mutating" in words else VALIDATING_WEBHOOKS.kind,
        name=name,
        uid=Uid(given.get("uid", f"uid-{name}")),
        resource_version="1",
        labels={key: value for key, value in labels.items() if value != "absent"},
        webhooks=() if "no-hooks" in words else tuple(hooks),
    )


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


class BundleStage(Steps):
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._objects: dict[str, WebhookConfiguration] = {}
        self._caches = {kind: ConfigurationStore() for kind in KINDS}
        self._version = 1
        self._stored = b""
        self._faults: dict[str, list[ApiError]] = {"write": [], "read": []}
        self._is_wiped, self._is_cached = False, True
        self._writes: list[str] = []
        self._shown: dict[str, str] = {}
        self._counted = Counter[str]()
        self._metrics = Metrics()
        self._injector = BundleInjector(
            self,
            Injection(
                namespace="ops",
                list_configurations=self._list_cached,
                confirm=self._confirm,
                names=NAMES,
                are_known=lambda: self._is_cached,
            ),
            self._metrics,
            LoopClock(),
            lambda: 1.0,
        )
        self._injector.publish(PEMS["first"])

    async def do_run(self) -> None:
        self.start(self._injector.run())

    async def do_put(self, name: str, *words: str) -> None:
        """Store a new version; `unseen` by the caches, or `silent`, so that they report nothing."""
        self._put(
            configuration(name, *words),
            is_cached="unseen" not in words,
            is_reported="silent" not in words,
        )

    async def do_drop(self, name: str, *words: str) -> None:
        one = self._objects.pop(name)
        self._version += 1
        if "unseen" not in words:
            last = replace(one, resource_version=str(self._version))
            for old, new in self._caches[one.kind].remove(last):
                self._injector.on_change(old, new)

    async def do_bundle(self, name: str) -> None:
        """Have the certificate controller publish another bundle."""
        self._injector.publish(PEMS[name])

    async def do_secret(self, name: str) -> None:
        """Have the next read of the Secret find another bundle."""
        self._stored = PEMS[name]

    async def do_holds(self, name: str) -> str:
        return "yes" if self._injector.holds(PEMS[name]) else "no"

    async def do_fail(self, what: str, error: str, times: str = "1000000") -> None:
        self._faults[what] = [ERRORS[error]] * int(times)

    async def do_heal(self) -> None:
        self._faults = {"write": [], "read": []}
        self._is_wiped, self._is_cached = False, True

    async def do_wiped(self) -> None:
        """Have another client take each bundle away as soon as it is there."""
        self._is_wiped = True

    async def do_frozen(self) -> None:
        """Have the caches learn nothing of what is written."""
        self._is_cached = False

    async def do_plan(self, *words: str) -> str:
        """Show the patch of a configuration, and what becomes of that."""
        one = configuration("guard", *words)
        patch = plan_patch(one, b64encode(PEMS["first"]).decode(), "ops", NAMES)
        steps = [
            f"{step['op']} {str(step['path']).removeprefix('/')}={ENCODED.get(value, value)}"
            for step in patch
            for value in [str(step["value"])]
        ]
        return "; ".join([self._render(apply(one, patch)), *steps])

    def look(self) -> list[str]:
        return [*self._look_at_writes(), *self._look_at_objects(), *self._look_at_log()]

    def _look_at_writes(self) -> list[str]:
        """Return when each configuration was written, and how that ended for the metrics."""
        times: dict[str, list[str]] = {}
        for write in self._writes:
            at, name = write.split()
            times.setdefault(name, []).append(at)
        self._writes.clear()
        found = [
            f"{name} at {' '.join(at)}" if len(at) < 6 else f"{name} {len(at)} times, last {at[-1]}"
            for name, at in times.items()
        ]
        now = Counter({outcome: self._count(outcome) for outcome in OUTCOMES})
        ended = [f"{number} {outcome}" for outcome, number in (now - self._counted).items()]
        self._counted = now
        return [*found, *([", ".join(ended)] if ended else [])]

    def _look_at_objects(self) -> list[str]:
        now = {name: self._render(one) for name, one in self._objects.items()}
        news = [text for name, text in now.items() if self._shown.get(name) != text]
        self._shown = now
        return news

    def _look_at_log(self) -> list[str]:
        """Return what was logged beside the writes, which are shown already."""
        shown = r'(?:level|msg|hosts|hint|err)=("[^"]*"|\S+)'
        said = Counter(
            " ".join(value.strip('"') for value in re.findall(shown, line))
            for line in self._lines
            if "Writing CA bundle" not in line
        )
        self._lines.clear()
        return [text if number == 1 else f"{text} x{number}" for text, number in said.items()]

    def _render(self, one: WebhookConfiguration) -> str:
        bundles = [ENCODED.get(hook.ca_bundle, hook.ca_bundle) for hook in one.webhooks]
        return f"{one.name} has {' '.join(bundles) or 'no hook'}"

    def _count(self, outcome: str) -> int:
        name = "rollout_operator_ca_bundle_writes_total"
        return int(self._metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0)

    def _list_cached(self) -> list[Configuration]:
        return [one for cache in self._caches.values() for one in cache.list_all()]

    async def _confirm(self) -> None:
        if self._faults["read"]:
            raise self._faults["read"].pop()
        if self._stored:
            self._injector.publish(self._stored)

    def _put(
        self, one: WebhookConfiguration, *, is_cached: bool = True, is_reported: bool = True
    ) -> None:
        self._version += 1
        one = replace(one, resource_version=str(self._version))
        self._objects[one.name] = one
        if is_cached:
            for old, new in self._caches[one.kind].upsert(one):
                if is_reported:
                    self._injector.on_change(old, new)

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
        self._writes.append(f"{elapsed().total_seconds():.1f} {name}")
        await asyncio.sleep(0.001)
        if self._faults["write"]:
            raise self._faults["write"].pop()
        held = self._objects.get(name)
        if held is None or KINDS[held.kind] != resource.plural:
            raise NotFound(f"{name} not found", status=404)
        self._put(apply(held, patch), is_cached=self._is_cached)
        if self._is_wiped:
            self._put(held)
        return b"{}"
