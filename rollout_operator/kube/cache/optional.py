"""An informer of a kind that a cluster may not have, or a role may not show.

Checks whether the kind is there, quietly and now and then, and runs the informer from the first
list that comes in. What the absence means is left to its callers.
"""

import asyncio
from datetime import timedelta
from typing import Final, Generic, NoReturn

from rollout_operator.aio.backoff import REFUSED_WATCHES
from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import Reader, Resource
from rollout_operator.kube.cache.shares import AnyInformer
from rollout_operator.kube.cache.store import Cached
from rollout_operator.model.errors import ApiError, Denied, NotFound
from rollout_operator.telemetry.logs import log

# At first more often: what is installed with the operator may come a moment after it. Later on a
# definition is installed, or a role changed, by a person. To watch definitions instead would need a
# right in the whole cluster.
CHECK_INTERVAL: Final = REFUSED_WATCHES.most
# After an error that says nothing of the kind.
RETRY: Final = timedelta(seconds=1)


class OptionalInformer(Generic[Cached]):
    """Runs an informer for as long as there is something to follow."""

    def __init__(
        self, informer: AnyInformer[Cached], client: Reader, resource: Resource, namespace: str
    ) -> None:
        self._informer: AnyInformer[Cached] = informer
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._answered = asyncio.Event()
        self._error: ApiError | None = None
        # Whether the newest answer said of the kind why there is nothing to follow.
        self._is_refused = False
        self._refusals = 0

    @property
    def is_absent(self) -> bool:
        """Return whether the cluster does not have this kind, or no longer."""
        return isinstance(self._error or self._informer.last_error, NotFound)

    @property
    def is_forbidden(self) -> bool:
        """Return whether the role does not allow listing it."""
        return isinstance(self._error, Denied)

    @property
    def lack(self) -> str | None:
        """Say why the objects are not known, None where they are, or where there are none."""
        if self._informer.has_synced or self.is_absent:
            return None
        return str(self._error or self._informer.last_error or "no answer yet")

    @property
    def age(self) -> timedelta:
        """Return the age of the newest proof that the cache is live; zero where there is no cache.

        There is none of a kind that was removed: its objects went before it did.
        """
        has_list = self._informer.has_synced and not self.is_absent
        return self._informer.age if has_list else timedelta(0)

    async def wait_answered(self) -> None:
        """Wait until it is known which objects there are, or that none may be listed."""
        await self._answered.wait()

    async def run(self, clock: Clock) -> NoReturn:
        """Follow the kind until cancelled."""
        while not await self._is_there():
            wait = REFUSED_WATCHES.bound(self._refusals) if self._is_refused else RETRY
            await clock.sleep(wait)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name=f"{self._resource.plural} informer")
            await self._informer.wait_synced()
            self._answered.set()
        raise AssertionError("an informer runs until it is cancelled")

    async def _is_there(self) -> bool:
        try:
            await self._client.fetch_page(
                self._resource, self._namespace, limit=1, resource_version="0"
            )
        except ApiError as error:
            self._record(error)
            return False
        self._error = None
        return True

    def _record(self, error: ApiError) -> None:
        self._is_refused = isinstance(error, NotFound | Denied)
        self._refusals += self._is_refused
        if self._answered.is_set() and not self._is_refused:
            log.debug("Kind not checked", kind=self._resource.kind, err=error)
            return  # it says nothing of the kind: what was known stays
        is_news = type(error) is not type(self._error)
        self._error = error
        if self._is_refused:
            self._answered.set()
        if is_news:
            write_log = log.info if isinstance(error, NotFound) else log.warn
            write_log("Kind is not followed", kind=self._resource.kind, err=error)
