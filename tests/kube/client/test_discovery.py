"""MIRR-03: which resource a kind has, and how often that is requested.

`has v1 Thing/scale` gives the group a version with these kinds, `find Thing` shows what is found,
and behind it what was requested; the group is `x`, another is found by `find other/Thing`.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

from rollout_operator.kube.api import Resource, Served
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.model.names import ApiError, NotFound, Unreachable
from tests import stories
from tests.stories import check_stories
from tests.virtual_time import VirtualClock, in_virtual_time


class CatalogStage(stories.Steps):
    """A catalog over an API server that has one group; it is the `Discoverer` itself."""

    def __init__(self) -> None:
        self.versions: dict[str, list[Served]] = {}
        self.catalog = KindCatalog(self, VirtualClock())
        self.is_down = False
        self.takes = 0.0
        self.requested: Counter[str] = Counter()
        self.waiting: list[asyncio.Task[str]] = []

    async def fetch_group(self, group: str) -> Sequence[str]:
        self.requested[group] += 1
        await asyncio.sleep(self.takes)
        if self.is_down:
            raise Unreachable("no answer")
        if group != "x" or not self.versions:
            raise NotFound("404: 404 page not found", status=404)
        return tuple(self.versions)

    async def fetch_resources(self, group: str, version: str) -> Sequence[Served]:
        self.requested[f"{group}/{version}"] += 1
        if version == "v0":
            raise NotFound("404", status=404)
        return self.versions[version]

    def look(self) -> list[str]:
        requested, self.requested = self.requested, Counter()
        return [f"{name} x{count}" if count > 1 else name for name, count in requested.items()]

    async def do_has(self, version: str, *kinds: str) -> None:
        self.versions[version] = []
        for one in kinds:
            kind, *subresources = one.split("/")
            resource = Resource("x", version, f"{kind.lower()}s", kind)
            served = Served(resource=resource, subresources=frozenset(subresources))
            self.versions[version].append(served)

    async def do_lacks(self) -> None:
        self.versions.clear()

    async def do_down(self) -> None:
        self.is_down = True

    async def do_up(self) -> None:
        self.is_down = False

    async def do_slow(self, seconds: str) -> None:
        self.takes = float(seconds)

    async def do_find(self, kind: str) -> str:
        group, _, kind = kind.rpartition("/")
        try:
            found = await self.catalog.find(group or "x", kind)
        except ApiError as error:
            return f"{error}"
        return f"{found.resource.version}" if found is not None else "none"

    async def do_use(self, seconds: str, *kinds: str) -> str:
        """Find these kinds each second; show what was found last."""
        for _ in range(int(seconds)):
            found = [await self.do_find(kind) for kind in kinds]
            await asyncio.sleep(1)
        return " ".join(found)

    async def do_doubt(self, group: str, seconds: str = "0") -> None:
        """Doubt a group, and find a kind of it after that, each second for so long."""
        self.catalog.doubt(group)
        for _ in range(int(seconds)):
            self.catalog.doubt(group)
            await self.do_use("1", "Thing")

    async def do_keep(self, *groups: str) -> None:
        self.catalog.keep(frozenset(groups))

    async def do_begin(self, kind: str, times: str) -> None:
        self.waiting = [asyncio.create_task(self.do_find(kind)) for _ in range(int(times))]
        await asyncio.sleep(0)

    async def do_found(self) -> str:
        return " ".join(await asyncio.gather(*self.waiting))

    async def do_at_once(self, kind: str) -> str:
        async with asyncio.timeout(1):
            return await self.do_find(kind)


test_story = in_virtual_time(check_stories(__file__, discovery=CatalogStage))
