"""Registries are called once about a tag, never too often, and hold no pass up for long."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from rollout_operator.controllers.releases.look_ups import (
    MOST_TAGS,
    PATIENCE,
    LookUpKey,
    ReleaseLookUps,
)
from rollout_operator.controllers.worker import Workers
from rollout_operator.model.releases.flux import ImageRepository
from rollout_operator.model.releases.reference import ImageReference, parse_repository
from rollout_operator.model.releases.release import ReleaseMetadata
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.errors import RegistryBusy, RegistryDenied, RegistryError, ReleaseNotFound
from tests.controllers.releases.bench import FakeReleaseApi, ReleaseBench
from tests.planning.releases.builders import head
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time

REPOSITORY = ImageRepository(head=head("app"), image=parse_repository("registry.example/app"))
KEY = LookUpKey("app", "1.0.0")
FOUND = ReleaseMetadata(digest="sha256:0", version="v1")
INTERVAL = timedelta(minutes=1)


class FakeRegistries:
    """Answers after some seconds what is scripted, and then always that it was found."""

    def __init__(self, *script: RegistryError, takes: float = 1) -> None:
        self._script = deque(script)
        self._takes = takes
        self.requested: list[str] = []

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        self.requested.append(f"{image} at {elapsed().total_seconds():g}")
        await asyncio.sleep(self._takes)
        if self._script:
            raise self._script.popleft()
        return FOUND


class Rig:
    """Look-ups by one worker, and the Rollouts that were woken."""

    def __init__(self, registries: FakeRegistries) -> None:
        self.registries = registries
        self.woken: list[float] = []
        """After how many seconds, each time."""
        self.look_ups = ReleaseLookUps(registries, FakeReleaseApi(), VirtualClock(), self._wake)

    def _wake(self, rollout: str, wait: timedelta) -> None:
        assert rollout == "app"
        self.woken.append(wait.total_seconds())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ReleaseLookUps]:
        async with asyncio.TaskGroup() as tasks:
            workers = Workers(self.look_ups.queue, self.look_ups.look_up, count=1, rng=lambda: 0.5)
            tasks.create_task(workers.run(), name="workers")
            yield self.look_ups
            self.look_ups.queue.close()

    async def fetch(
        self, key: LookUpKey = KEY, digest: str | None = None
    ) -> tuple[bool, ReleaseMetadata | None]:
        return await self.look_ups.fetch(key, REPOSITORY, INTERVAL, digest)


@in_virtual_time
async def test_ten_passes_within_an_interval_read_once() -> None:
    """RELB-01: and so do those after it, where the registry has answered."""
    rig = Rig(FakeRegistries())
    async with rig.running():
        for _ in range(10):
            assert await rig.fetch() == (True, FOUND)
        await asyncio.sleep(300)
        assert await rig.fetch() == (True, FOUND)
    assert rig.registries.requested == ["registry.example/app:1.0.0 at 0"]
    assert rig.woken == [0]


@in_virtual_time
async def test_a_failed_look_up_is_repeated_after_the_interval() -> None:
    """RELB-01."""
    rig = Rig(FakeRegistries(RegistryDenied("no"), RegistryDenied("no")))
    async with rig.running():
        for _ in range(3):
            assert await rig.fetch() == (False, None)
        assert rig.woken == [0, 60]
        await asyncio.sleep(60)
        assert await rig.fetch() == (False, None)
        await asyncio.sleep(61)
        await rig.fetch()
        await asyncio.sleep(2)
        assert await rig.fetch() == (True, FOUND)
        assert rig.woken == [0, 60, 0, 60, 0]
    assert [one.rpartition(" ")[2] for one in rig.registries.requested] == ["0", "61", "122"]


@in_virtual_time
async def test_a_registry_that_hangs_holds_one_pass_up_for_a_moment() -> None:
    rig = Rig(FakeRegistries(takes=45))
    async with rig.running():
        assert await rig.fetch() == (False, None)
        assert elapsed() == PATIENCE
        assert await rig.fetch() == (False, None)
        assert elapsed() == PATIENCE
        await asyncio.sleep(41)
        assert rig.woken == [0]
        assert await rig.fetch() == (True, FOUND)


@in_virtual_time
async def test_a_tag_that_is_not_there_is_known_not_to_be() -> None:
    """RELB-23."""
    rig = Rig(FakeRegistries(ReleaseNotFound("no")))
    async with rig.running():
        assert await rig.fetch() == (True, None)
        assert rig.woken == [0, 60]


@in_virtual_time
async def test_a_registry_that_wants_longer_is_left_alone_longer() -> None:
    rig = Rig(FakeRegistries(RegistryBusy("later", retry_after=timedelta(hours=1))))
    async with rig.running():
        await rig.fetch()
        assert rig.woken == [0, 3600]


@in_virtual_time
async def test_another_digest_is_another_image() -> None:
    """RELB-04."""
    rig = Rig(FakeRegistries())
    async with rig.running():
        await rig.fetch(digest="sha256:1")
        await rig.fetch(digest="sha256:2")
    assert len(rig.registries.requested) == 2


@in_virtual_time
async def test_what_is_remembered_of_a_rollout_is_bounded_and_forgotten_with_it() -> None:
    rig = Rig(FakeRegistries())
    async with rig.running():
        for number in range(MOST_TAGS + 1):
            await rig.fetch(LookUpKey("app", f"{number}"))
        await rig.fetch(LookUpKey("app", "0"))
        assert len(rig.registries.requested) == MOST_TAGS + 2
        rig.look_ups.forget("app")
        await rig.fetch(LookUpKey("app", "0"))
        assert len(rig.registries.requested) == MOST_TAGS + 3


@in_virtual_time
async def test_a_secret_that_is_missing_counts_as_a_failure(lines: list[str]) -> None:
    """The log names the Rollout: its remedy sends people there."""
    rig = Rig(FakeRegistries())
    missing = ImageRepository(head=head("app"), image=REPOSITORY.image, pull_secret="none")
    async with rig.running():
        assert await rig.look_ups.fetch(KEY, missing, INTERVAL) == (False, None)
    assert rig.registries.requested == []
    (line,) = [line for line in lines if "Release not looked up" in line]
    assert " rollout=app tag=1.0.0 " in line


def count_warnings(lines: list[str]) -> int:
    return sum("level=warn" in line and "Release not looked up" in line for line in lines)


@in_virtual_time
async def test_a_warning_comes_when_it_changes_and_then_ever_more_rarely(lines: list[str]) -> None:
    """Each minute is too often for what only a person mends."""
    rig = Rig(FakeRegistries(*[RegistryDenied("no")] * 60, RegistryDenied("never")))
    async with rig.running():
        for _ in range(60):
            await rig.fetch()
            await asyncio.sleep(61)
        # The first, and after 2, 4, 8, 16 and 32 in a row.
        assert count_warnings(lines) == 6
        await rig.fetch()
        await asyncio.sleep(2)
        assert count_warnings(lines) == 7
        await asyncio.sleep(60)
        await rig.fetch()
        await asyncio.sleep(2)
        assert await rig.fetch() == (True, FOUND)


@in_virtual_time
async def test_a_repository_that_is_missing_is_reported_as_rarely(lines: list[str]) -> None:
    bench = ReleaseBench()
    bench.use(Rig(FakeRegistries()).look_ups)
    for _ in range(10):
        await bench.step()
    assert count_warnings(lines) == 4
    assert "ImageRepository prod/app: there is none" in "".join(lines)
