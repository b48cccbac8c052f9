"""Look-ups of releases in registries: beside everything else, remembered, and never too often.

A pass waits a moment for an answer, so that most releases are recorded with all that their image
says of itself; a registry that hangs delays no deployment beyond that. A tag is looked up once, and
again after the Rollout's interval where that failed, or where its digest moved.
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
from rollout_operator.model.releases.reference import ImageReference
from rollout_operator.model.releases.release import ReleaseMetadata
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.errors import RegistryError, ReleaseNotFound
from rollout_operator.telemetry.logs import log

# For so long a pass waits for an answer that is not there yet.
PATIENCE: Final = timedelta(seconds=5)
# Of one Rollout: what its policy selects, what it is pinned to, and what these were before.
MOST_TAGS: Final = 4


@dataclass(frozen=True, slots=True)
class LookUpKey:
    """The subject of a look-up: a tag of the images of one ImageRepository, for one Rollout."""

    rollout: str
    tag: str


@dataclass(slots=True, kw_only=True)
class _LookUpState:
    repository: ImageRepository
    interval: timedelta
    digest: str | None
    """As the image policy has it: another digest is another image."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    metadata: ReleaseMetadata | None = None
    is_known: bool = False
    """Whether the registry answered, be it that there is no such tag."""
    due_at: timedelta | None = None
    """When it is looked up again; None for never, as long as it is the same image."""


class Registries(Protocol):
    """Reads of registries; the implementation is `oci.client.RegistryClient`."""

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
        """`wake` has a Rollout reconciled after so long: there may be new answers."""
        self._registries = registries
        self._secrets = secrets
        self._clock = clock
        self._wake = wake
        self.queue: WorkQueue[LookUpKey] = WorkQueue()
        self._states: dict[str, OrderedDict[str, _LookUpState]] = {}
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
        state = self._find(key)
        if state is None or (state.repository.image, state.digest) != (repository.image, digest):
            state = _LookUpState(repository=repository, interval=interval, digest=digest)
            self._remember(key, state)
            self.queue.add(key)
        elif state.due_at is not None and self._clock.elapsed() >= state.due_at:
            state.repository, state.interval, state.due_at = repository, interval, None
            self.queue.add(key)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await state.answered.wait()
        except TimeoutError:
            # The next caller waits no more: the answer wakes the Rollout.
            state.answered.set()
        return state.is_known, state.metadata

    def forget(self, rollout: str) -> None:
        """Forget a Rollout that is gone."""
        self._states.pop(rollout, None)
        self._problems.pop(rollout, None)

    def report_problem(self, key: LookUpKey, error: Exception) -> None:
        """Log why a release cannot be looked up; again only once that changes, or seldom."""
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", rollout=key.rollout, tag=key.tag, err=error)

    async def look_up(self, key: LookUpKey) -> Result:
        """Read a registry once."""
        state = self._find(key)
        if state is None:
            return Result()
        image = ImageReference(state.repository.image, tag=key.tag)
        try:
            access = await read_access(self._secrets, state.repository)
            state.metadata = await self._registries.fetch_release(image, access)
            state.is_known = True
            self._problems.get(key.rollout, {}).pop(key.tag, None)
        except ReleaseNotFound as error:
            state.metadata, state.is_known = None, True
            self._retry(key, state, error, state.interval)
        except RegistryError as error:
            wait = max(state.interval, error.retry_after or timedelta(0))
            self._retry(key, state, error, wait)
        except (InvalidInput, ApiError) as error:
            self._retry(key, state, error, state.interval)
        state.answered.set()
        self._wake(key.rollout, timedelta(0))
        if state.due_at is not None:
            self._wake(key.rollout, state.due_at - self._clock.elapsed())
        return Result()

    def _retry(
        self, key: LookUpKey, state: _LookUpState, error: Exception, wait: timedelta
    ) -> None:
        state.due_at = self._clock.elapsed() + wait
        names = {"rollout": key.rollout, "tag": key.tag}
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", **names, again_in=wait, err=error)

    def _is_news(self, key: LookUpKey, problem: str) -> bool:
        """Return whether a problem is worth a warning: when it is new, then ever more rarely."""
        problems = self._problems.setdefault(key.rollout, {})
        before, times = problems.get(key.tag, ("", 0))
        times = times + 1 if problem == before else 1
        problems[key.tag] = problem, times
        if len(problems) > MOST_TAGS:
            del problems[next(iter(problems))]
        return times.bit_count() == 1

    def _find(self, key: LookUpKey) -> _LookUpState | None:
        tags = self._states.get(key.rollout)
        return None if tags is None else tags.get(key.tag)

    def _remember(self, key: LookUpKey, state: _LookUpState) -> None:
        tags = self._states.setdefault(key.rollout, OrderedDict())
        tags.pop(key.tag, None)
        tags[key.tag] = state
        while len(tags) > MOST_TAGS:
            tags.popitem(last=False)
