"""What registries say of releases: asked beside everything else, remembered, and never too often.

A pass waits a moment for what is not known yet, so that most releases are recorded with all that
their image says of itself; a registry that hangs delays no deployment beyond that. A tag is asked
about once, and again after the Rollout's interval where that failed, or where its digest moved.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.controllers.releases.access import read_access
from rollout_operator.controllers.worker import Result
from rollout_operator.kube.api import Reader
from rollout_operator.model.errors import ApiError, InvalidInput
from rollout_operator.model.releases.flux import ImageRepository
from rollout_operator.model.releases.metadata import ReleaseMetadata
from rollout_operator.model.releases.reference import ImageReference
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.errors import RegistryError, ReleaseNotFound
from rollout_operator.telemetry.logs import log

# For so long a pass waits for an answer that is not there yet.
PATIENCE: Final = timedelta(seconds=5)
# Of one Rollout: what its policy selects, what it is pinned to, and what these were before.
MOST_TAGS: Final = 4


@dataclass(frozen=True, slots=True)
class LookUpKey:
    """What is asked: a tag of the images of one ImageRepository, for one Rollout."""

    rollout: str
    tag: str


@dataclass(slots=True, kw_only=True)
class _Asked:
    repository: ImageRepository
    interval: timedelta
    digest: str | None
    """As the image policy has it: another one is another image."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    metadata: ReleaseMetadata | None = None
    is_known: bool = False
    """Whether the registry answered, be it that there is no such tag."""
    due_at: timedelta | None = None
    """When it is asked again; None: never, for as long as it is the same image."""


class Registries(Protocol):
    """What is asked of registries; the real one is `oci.client.RegistryClient`."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        """Return what an image says of itself. Raises InvalidInput and RegistryError."""
        ...


class ReleaseLookUps:
    """Look-ups for the Rollouts of one namespace."""

    def __init__(
        self,
        registries: Registries,
        secrets: Reader,
        clock: Clock,
        wake: Callable[[str, timedelta], None],
    ) -> None:
        """`wake` has a Rollout reconciled after so long: more is known, or may be."""
        self._registries = registries
        self._secrets = secrets
        self._clock = clock
        self._wake = wake
        self.queue: WorkQueue[LookUpKey] = WorkQueue()
        self._asked: dict[str, OrderedDict[str, _Asked]] = {}
        self._problems: dict[str, dict[str, tuple[str, int]]] = {}
        """By Rollout and tag: what was in the way last, and how often in a row."""

    async def fetch(
        self,
        key: LookUpKey,
        repository: ImageRepository,
        interval: timedelta,
        digest: str | None = None,
    ) -> tuple[bool, ReleaseMetadata | None]:
        """Return whether the registry answered, and what it said; None where it has no such tag.

        Waits a moment for the first answer.
        """
        asked = self._find(key)
        if asked is None or (asked.repository.image, asked.digest) != (repository.image, digest):
            asked = _Asked(repository=repository, interval=interval, digest=digest)
            self._remember(key, asked)
            self.queue.add(key)
        elif asked.due_at is not None and self._clock.elapsed() >= asked.due_at:
            asked.repository, asked.interval, asked.due_at = repository, interval, None
            self.queue.add(key)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await asked.answered.wait()
        except TimeoutError:
            # The next caller waits no more: the answer wakes the Rollout.
            asked.answered.set()
        return asked.is_known, asked.metadata

    def forget(self, rollout: str) -> None:
        """Forget a Rollout that is gone."""
        self._asked.pop(rollout, None)
        self._problems.pop(rollout, None)

    def report_problem(self, key: LookUpKey, error: Exception) -> None:
        """Log why nothing can be asked of a release; again only once that changes, or seldom."""
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", rollout=key.rollout, tag=key.tag, err=error)

    async def look_up(self, key: LookUpKey) -> Result:
        """Ask a registry once."""
        asked = self._find(key)
        if asked is None:
            return Result()
        image = ImageReference(asked.repository.image, tag=key.tag)
        try:
            access = await read_access(self._secrets, asked.repository)
            asked.metadata = await self._registries.fetch_release(image, access)
            asked.is_known = True
            self._problems.get(key.rollout, {}).pop(key.tag, None)
        except ReleaseNotFound as error:
            asked.metadata, asked.is_known = None, True
            self._retry(key, asked, error, asked.interval)
        except RegistryError as error:
            wait = max(asked.interval, error.retry_after or timedelta(0))
            self._retry(key, asked, error, wait)
        except (InvalidInput, ApiError) as error:
            self._retry(key, asked, error, asked.interval)
        asked.answered.set()
        self._wake(key.rollout, timedelta(0))
        if asked.due_at is not None:
            self._wake(key.rollout, asked.due_at - self._clock.elapsed())
        return Result()

    def _retry(self, key: LookUpKey, asked: _Asked, error: Exception, wait: timedelta) -> None:
        asked.due_at = self._clock.elapsed() + wait
        names = {"rollout": key.rollout, "tag": key.tag}
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", **names, again_in=wait, err=error)

    def _is_news(self, key: LookUpKey, problem: str) -> bool:
        """Return whether a problem is worth a warning: a new one, then ever more rarely."""
        problems = self._problems.setdefault(key.rollout, {})
        before, times = problems.get(key.tag, ("", 0))
        times = times + 1 if problem == before else 1
        problems[key.tag] = problem, times
        if len(problems) > MOST_TAGS:
            del problems[next(iter(problems))]
        return times.bit_count() == 1

    def _find(self, key: LookUpKey) -> _Asked | None:
        tags = self._asked.get(key.rollout)
        return None if tags is None else tags.get(key.tag)

    def _remember(self, key: LookUpKey, asked: _Asked) -> None:
        tags = self._asked.setdefault(key.rollout, OrderedDict())
        tags.pop(key.tag, None)
        tags[key.tag] = asked
        while len(tags) > MOST_TAGS:
            tags.popitem(last=False)
