"""What a sequence needs of the world that it is played on, whichever of the two it is.

`real` and `simulated` implement it; `world` gives sequences the words to use it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final, Literal, Protocol

import msgspec
from rollout_lab.model.request import ApiAnswer, ApiRequest

from rollout_operator.kube.api import Discoverer, JsonObject, Reader, Resource, Watcher, Writer

CORE: Final = "v1"
PODS: Final = Resource("", CORE, "pods", "Pod")
CONFIG_MAPS: Final = Resource("", CORE, "configmaps", "ConfigMap")
NAMESPACES: Final = Resource("", CORE, "namespaces", "Namespace", False)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")

HookKind = Literal["Mutating", "Validating"]


class Silence(msgspec.Struct, frozen=True):
    """The hook never answers."""


Verdict = JsonObject | Silence
"""The `response` of a review, to which the right `uid` is added where it has none."""
Decide = Callable[[JsonObject], Awaitable[Verdict]]
"""Given the `request` of a review."""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    name: str
    decide: Decide
    fields: Mapping[str, object] = {}
    """Put over those of the webhook, as `failurePolicy`."""
    operations: tuple[str, ...] = ("UPDATE",)
    resources: tuple[str, ...] = ("configmaps",)
    groups: tuple[str, ...] = ("",)


class Clients(Reader, Watcher, Writer, Discoverer, Protocol):
    """All that a process of the operator does at the API server."""


class Side(Protocol):
    """One of the two worlds, with a namespace of its own for one sequence."""

    namespace: str

    async def call(self, request: ApiRequest) -> ApiAnswer:
        """Send a request as a person would and return what came back."""
        ...

    def watch(
        self, request: ApiRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[JsonObject] | ApiAnswer]:
        """Open a watch: its events with `type` and `object`, or the refusal."""
        ...

    def hook_url(self, path: str) -> tuple[str, str]:
        """Return the URL that a hook has here, and the caBundle to reach it."""
        ...

    def attend(self, path: str, decide: Decide) -> None:
        """Let `decide` answer the reviews that come to `path`."""
        ...

    def clients(self) -> Clients:
        """Return the client of a process of the operator: its own client, or the simulated one."""
        ...

    async def forget_past(self) -> None:
        """Let the API server forget all versions but the newest."""
        ...

    def send_bookmarks(self) -> None:
        """See that open watches get a bookmark soon."""
        ...

    async def pause(self, span: timedelta) -> None:
        """Let time pass, as between two reads of something that others bring about."""
        ...
