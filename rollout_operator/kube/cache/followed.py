"""A kind that comes and goes, in whichever version the cluster serves.

Requests the versions in their order, follows the first that is there, and begins anew when that is
gone. What is known of a kind that went is forgotten. What its absence means is left to the callers.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import Reader, Resource
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.optional import RETRY
from rollout_operator.kube.cache.store import WatchedStore
from rollout_operator.model.errors import ApiError, Denied, NotFound
from rollout_operator.model.objects import AnyWatched
from rollout_operator.telemetry.logs import log

# A definition is installed, or a role changed, by a person who waits for it.
CHECK_INTERVAL: Final = timedelta(seconds=10)

OnWatched = Callable[[AnyWatched | None, AnyWatched | None], None]


class KindSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the objects of a kind come from."""

    resources: Sequence[Resource]
    """The kind in its versions, the preferred version first."""
    namespace: str
    client: Reader
    make_informer: Callable[[Resource], Informer[AnyWatched]]
    """Makes what fills the store from one version."""


class FollowedKind:
    """The objects of a kind in one namespace, for as long as `run` runs."""

    def __init__(self, source: KindSource, store: WatchedStore) -> None:
        self.store = store
        self._source = source
        self._informer: Informer[AnyWatched] | None = None
        self._resource: Resource | None = None
        self._error: ApiError | None = None
        self._callbacks: list[OnWatched] = []
        self._on_news: list[Callable[[], None]] = []

    @property
    def kind(self) -> str:
        """Return the name of the kind."""
        return self._source.resources[0].kind

    @property
    def resource(self) -> Resource | None:
        """Return the version that is followed; None where there is none."""
        return self._resource

    @property
    def is_absent(self) -> bool:
        """Return whether the cluster does not have this kind."""
        return isinstance(self._error, NotFound)

    @property
    def is_forbidden(self) -> bool:
        """Return whether the role does not allow listing it."""
        return isinstance(self._error, Denied)

    @property
    def refusal(self) -> Denied | None:
        """Return why it may not be listed any more, though it could be."""
        error = None if self._informer is None else self._informer.last_error
        return error if isinstance(error, Denied) else None

    @property
    def is_awaited(self) -> bool:
        """Return whether nothing is known yet, not even what stands in the way."""
        informer = self._informer
        if informer is None:
            return self._error is None
        return not informer.has_synced and informer.last_error is None

    @property
    def lack(self) -> str | None:
        """Say why the objects are not known, None where they are, or where there are none."""
        informer = self._informer
        if self.is_absent or (informer is not None and informer.has_synced):
            return None
        error = self._error or (informer and informer.last_error)
        return f"{self.kind}: {error or 'no answer yet'}"

    @property
    def age(self) -> timedelta:
        """Return the age of the newest proof that the cache is live; zero without a cache."""
        informer = self._informer
        return timedelta(0) if informer is None or not informer.has_synced else informer.age

    def on_change(self, callback: OnWatched) -> None:
        """Call back with (old, new) after each change that decides; None is absence."""
        self._callbacks.append(callback)

    def on_news(self, callback: Callable[[], None]) -> None:
        """Call back when the kind may be listed now, or the reason why it may not has changed."""
        self._on_news.append(callback)

    async def run(self, clock: Clock) -> NoReturn:
        """Follow the kind until cancelled."""
        while True:
            if (resource := await self._find_served()) is None:
                self._forget()
                is_known = isinstance(self._error, NotFound | Denied)
                await clock.sleep(CHECK_INTERVAL if is_known else RETRY)
                continue
            informer = self._source.make_informer(resource)
            informer.on_change(self._notify)
            self._resource, self._informer = resource, informer
            log.info("Following a kind", kind=self.kind, version=resource.version)
            await race(informer=informer.run(), absence=_wait_absent(informer, clock))

    async def _find_served(self) -> Resource | None:
        """Return the first version that can be listed; None leaves the reason in `_error`."""
        for resource in self._source.resources:
            try:
                await self._source.client.fetch_page(
                    resource, self._source.namespace, limit=1, resource_version="0"
                )
            except ApiError as error:
                self._record(error)
                if not isinstance(error, NotFound):
                    return None
            else:
                self._set_error(None)
                return resource
        return None

    def _record(self, error: ApiError) -> None:
        if type(error) is not type(self._error):
            write_log = log.info if isinstance(error, NotFound) else log.warn
            write_log("Kind is not followed", kind=self.kind, err=error)
        self._set_error(error)

    def _set_error(self, error: ApiError | None) -> None:
        is_news = type(error) is not type(self._error)
        self._error = error
        for callback in self._on_news if is_news else ():
            callback()

    def _forget(self) -> None:
        """Forget what is known where the cluster says that there is nothing, and only there."""
        if not self.is_absent or self._informer is None:
            return
        self._informer = self._resource = None
        for old, new in self.store.replace_all(()):
            self._notify(old, new)

    def _notify(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for callback in self._callbacks:
            callback(old, new)


async def _wait_absent(informer: Informer[AnyWatched], clock: Clock) -> None:
    """Wait until the cluster says that what is followed is not there any more."""
    while not isinstance(informer.last_error, NotFound):
        await clock.sleep(CHECK_INTERVAL)
