"""Webhook configurations in the real API server: written, waited for, and always removed.

They are cluster-scoped: their names carry the namespace, and a selector keeps them to it. The API
server calls the operator by URL, or through a Service as the shipped manifests have it; or a TLS
server of the tests.
"""

import asyncio
import base64
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any, Final, NoReturn, Self

import aiohttp
import msgspec
from aiohttp import web

from tests.world.api import (
    MUTATING_HOOKS,
    SERVICES,
    STATEFULSETS,
    VALIDATING_HOOKS,
    Answer,
    Api,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import ZONE_BUDGETS, DryRun, evict, zone_budget
from tests.world.pki import Pki

INJECT_LABEL: Final = "grafana.com/inject-rollout-operator-ca"
NAMESPACE_LABEL: Final = "grafana.com/namespace"
NO_DOWNSCALE: Final = "no-downscale"
PREPARE_DOWNSCALE: Final = "prepare-downscale"
POD_EVICTION: Final = "pod-eviction"
ZPDB_VALIDATION: Final = "zpdb-validation"
# Those that write something, which they must not for a dry run.
WRITERS: Final = (PREPARE_DOWNSCALE, POD_EVICTION)
EVICTION_TIMEOUT: Final = timedelta(seconds=5)
BUDGET_HOOKS: Final = (POD_EVICTION, ZPDB_VALIDATION)
SETS: Final = ("statefulsets", "statefulsets/scale")
WORKLOADS: Final = (
    *SETS,
    *("deployments", "deployments/scale", "replicasets", "replicasets/scale"),
)
WAIT_LIMIT: Final = timedelta(seconds=60)
POLL: Final = timedelta(milliseconds=50)
REMOVE_LIMIT: Final = timedelta(seconds=10)
# Calls less those without an answer: rejections for another reason than a review's own verdict,
# and calls that an ignored failure let pass.
ANSWER_METRICS: Final = {"request_total{": 1, "rejection_count{": -1, "fail_open_count{": -1}


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Which hooks are wanted, and how they are to be called."""

    port: int
    """Where the operator, or what stands for it, serves TLS on loopback."""
    hooks: Sequence[str] = (NO_DOWNSCALE, PREPARE_DOWNSCALE)
    """The ends of the paths below `/admission/`, and of the configurations' names."""
    resources: Sequence[str] = SETS
    """Of the hooks about replicas."""
    labels: Mapping[str, str] | None = None
    """Of the configurations; None are those that want our CA."""
    failure_policy: str = "Fail"
    timeout: timedelta = timedelta(seconds=10)
    """Of evictions it is never more than is shipped."""
    service: str = ""
    """Name of a Service to call through, created here; empty means by URL.

    The certificate must then prove `<service>.<namespace>.svc`, otherwise `localhost`.
    """
    ca_bundle: bytes = b""
    """PEM; empty leaves it to the operator."""


class Hooks:
    """The configurations of one registration. Leaving the block removes them, come what may."""

    def __init__(self, api: Api, namespace: str, wanted: Registration) -> None:
        self.namespace = namespace
        self.wanted = wanted
        self._api = api

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._remove)
            await self._create()
            stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._remove()

    def name(self, hook: str) -> str:
        """Return the name of a configuration; its webhook is called `<name>.grafana.com`."""
        return f"{hook}-{self.namespace}"

    def resource(self, hook: str) -> Resource:
        return MUTATING_HOOKS if hook == PREPARE_DOWNSCALE else VALIDATING_HOOKS

    async def fetch(self, hook: str) -> Json:
        """Return a configuration as it is now. Raises ApiError."""
        return await self._api.get(self.resource(hook), "", self.name(hook))

    # Waits

    async def wait_injected(self, limit: timedelta = WAIT_LIMIT) -> list[bytes]:
        """Wait until every configuration has a caBundle and return them. Raises TimeoutError."""
        found: list[str] = []

        async def is_injected() -> str:
            found.clear()
            for hook in self.wanted.hooks:
                webhooks = (await self.fetch(hook))["webhooks"]
                found.extend(each["clientConfig"].get("caBundle", "") for each in webhooks)
            return "" if all(found) else f"no caBundle yet: {self.wanted.hooks} have {found}"

        await _poll(is_injected, limit)
        return [base64.b64decode(bundle) for bundle in found]

    async def wait_called(self, name: str) -> None:
        """Wait until the API server calls every hook and gets answers. Raises TimeoutError.

        A configuration works only some moments after it was written. For proof the StatefulSet
        `name`, which must have a replica at least, is scaled down in dry runs, or its first pod
        is evicted, or a budget created, in such as well.
        """
        for hook in sorted(self.wanted.hooks, key=lambda each: each != PREPARE_DOWNSCALE):
            webhook = f"{self.name(hook)}.grafana.com"
            before = await self._count_answers(webhook)

            async def is_called(
                hook: str = hook, webhook: str = webhook, before: int = before
            ) -> str:
                answer = await self._probe(hook, name)
                if await self._count_answers(webhook) > before:
                    return ""
                return f"{webhook} is not called; the last probe got {answer}"

            await _poll(is_called, WAIT_LIMIT)

    async def _probe(self, hook: str, name: str) -> Answer:
        if hook == POD_EVICTION:
            return await evict(self._api, self.namespace, f"{name}-0", dry_run=DryRun.QUERY)
        if hook == ZPDB_VALIDATION:
            return await self._api.exchange(
                "POST",
                ZONE_BUDGETS.path(self.namespace),
                body=zone_budget("probe", {"probe": "none"}),
                query={"dryRun": "All"},
            )
        found = await self._api.get(STATEFULSETS, self.namespace, name)
        return await self._api.exchange(
            "PATCH",
            STATEFULSETS.path(self.namespace, name),
            body={"spec": {"replicas": found["spec"]["replicas"] - 1}},
            query={"dryRun": "All"},
            content_type="application/merge-patch+json",
        )

    async def _count_answers(self, webhook: str) -> int:
        """Return how often the API server has had an answer of a webhook, by its own metrics."""
        async with self._api.session.get("/metrics") as page:
            lines = (await page.text()).splitlines()
        mine = [line for line in lines if f'name="{webhook}"' in line]
        return sum(
            sign * int(float(line.rpartition(" ")[2]))
            for start, sign in ANSWER_METRICS.items()
            for line in mine
            if line.startswith(f"apiserver_admission_webhook_{start}")
            and 'error_type="no_error"' not in line
        )

    # Writing

    async def _create(self) -> None:
        if self.wanted.service:
            service = _service(self.wanted.service, self.wanted.port)
            await self._api.create(SERVICES, self.namespace, service)
        for hook in self.wanted.hooks:
            resource = self.resource(hook)
            await self._api.create(resource, "", self.configuration(hook))

    async def _remove(self) -> None:
        async with asyncio.timeout(REMOVE_LIMIT.total_seconds() * len(self.wanted.hooks)):
            for hook in self.wanted.hooks:
                await _remove(self._api, self.resource(hook), self.name(hook))

    def configuration(self, hook: str) -> Json:
        wanted = self.wanted
        is_mutating = self.resource(hook) is MUTATING_HOOKS
        limit = EVICTION_TIMEOUT if hook == POD_EVICTION else wanted.timeout
        ours = {INJECT_LABEL: "true", NAMESPACE_LABEL: self.namespace}
        labels = ours if wanted.labels is None else dict(wanted.labels)
        webhook: Json = {
            "name": f"{self.name(hook)}.grafana.com",
            "clientConfig": self._client_config(hook),
            "rules": [RULES.get(hook) or _rule("apps", ["UPDATE"], *wanted.resources)],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "failurePolicy": wanted.failure_policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "NoneOnDryRun" if hook in WRITERS else "None",
            "timeoutSeconds": int(min(wanted.timeout, limit).total_seconds()),
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{'Mutating' if is_mutating else 'Validating'}WebhookConfiguration",
            "metadata": {"name": self.name(hook), "labels": labels},
            "webhooks": [webhook],
        }

    def _client_config(self, hook: str) -> Json:
        wanted, path = self.wanted, f"/admission/{hook}"
        config: Json = {"url": f"https://localhost:{wanted.port}{path}"}
        if wanted.service:
            service = {"namespace": self.namespace, "name": wanted.service, "path": path}
            config = {"service": service | {"port": wanted.port}}
        if wanted.ca_bundle:
            config["caBundle"] = base64.b64encode(wanted.ca_bundle).decode()
        return config


def _rule(group: str, operations: Sequence[str], *resources: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": [*operations],
        "resources": [*resources],
        "scope": "Namespaced",
    }


RULES: Final[Mapping[str, Json]] = {
    POD_EVICTION: _rule("", ["CREATE"], "pods/eviction"),
    ZPDB_VALIDATION: _rule(
        "rollout-operator.grafana.com", ["CREATE", "UPDATE"], "zoneawarepoddisruptionbudgets"
    ),
}


def _service(name: str, port: int) -> Json:
    # The API server takes the external name and the port of the configuration's reference.
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"name": "https", "port": port}],
        },
    }


async def _remove(api: Api, resource: Resource, name: str) -> None:
    """Delete until it is gone: one left over would stop every update of its resources."""
    while True:
        with suppress(aiohttp.ClientError, TimeoutError):  # the API server is away
            try:
                await api.delete(resource, "", name)
            except ApiError as refused:
                if refused.status == 404:
                    return
                if refused.status not in (401, 403, 409, 429) and refused.status < 500:
                    raise
            else:
                return
        await asyncio.sleep(POLL.total_seconds())


async def _poll(missing: Callable[[], Awaitable[str]], limit: timedelta) -> None:
    """Try until nothing is missing. Raises TimeoutError with what is."""
    text = "nothing was requested"
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while text := await missing():  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(POLL.total_seconds())
    except TimeoutError as late:
        raise TimeoutError(f"after {limit}: {text}") from late


CLOSE_LIMIT: Final = timedelta(seconds=1)


class ReviewServer(ABC):
    """Listens on a free port of loopback, for every path. Use with `async with`."""

    def __init__(self, pki: Pki) -> None:
        self.port = 0
        self._pki = pki
        self._over = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @abstractmethod
    async def answer(self, request: web.Request) -> web.Response:
        """Return the answer to one review."""

    async def stay_silent(self) -> NoReturn:
        await self._over.wait()
        raise web.HTTPServiceUnavailable

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{tail:.*}", self.answer)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=CLOSE_LIMIT.total_seconds()
        )
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._pki.cert, self._pki.key)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._over.set()
        if self._runner is not None:
            await self._runner.cleanup()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    request: Json

    @property
    def replicas(self) -> tuple[int, int]:
        old, new = self.request["oldObject"]["spec"], self.request["object"]["spec"]
        return old.get("replicas", 0), new.get("replicas", 0)


class Reviewer(ReviewServer):
    """Says yes to everything, and keeps what came in. Use with `async with`."""

    def __init__(self, pki: Pki) -> None:
        super().__init__(pki)
        self.seen: list[Seen] = []

    async def answer(self, request: web.Request) -> web.Response:
        review: Json = msgspec.json.decode(await request.read())
        self.seen.append(Seen(path=request.path, request=review["request"]))
        response = {"uid": review["request"]["uid"], "allowed": True}
        body = {key: review[key] for key in ("apiVersion", "kind")} | {"response": response}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")
