"""The commands of stories of look-ups: passes that ask for a release, and what registries answer.

What is shown is new: which images were read, after how many seconds the Rollout is woken, and the
warnings of the log.
"""

import asyncio
import re
from collections import deque
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import IMAGE_POLICIES, IMAGE_REPOSITORIES
from rollout_operator.operator.releases import build_caches
from rollout_operator.releases import registry
from rollout_operator.releases.controller import FluxObjects, ReleaseObserver
from rollout_operator.releases.model.plan import ImageRepository
from rollout_operator.releases.model.releases import (
    OURS,
    ImageReference,
    ReleaseMetadata,
    parse_repository,
)
from rollout_operator.releases.planning.releases import plan_release
from rollout_operator.releases.registry import RegistryAccess, RegistryBusy, RegistryError
from rollout_operator.releases.schedules import FollowedSchedules, ScheduleReader
from rollout_operator.releases.sources import MOST_TAGS, LookUpKey, ReleaseLookUps, WideChecks
from tests import stories
from tests.controllers.fed_context import FedContext
from tests.planning.releases.builders import head, rollout
from tests.simulated import open_api, open_client, put
from tests.virtual_time import VirtualClock

FOUND: Final = ReleaseMetadata(digest="sha256:0", version="v1")
IMAGE: Final = parse_repository("registry.example/app")
MINUTE: Final = timedelta(minutes=1)
PROD: Final = "-kubernetes.namespace=prod"


class LookUpStage(stories.Steps):
    """Look-ups of one Rollout by one worker, and registries that answer what is scripted."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.script: deque[RegistryError] = deque()
        self.takes = 1.0
        self.secret = ""
        self.news: list[str] = []
        self.api = open_api("prod", "others")
        self.client = open_client(self.api)
        self.look_ups = ReleaseLookUps(self, self.client, VirtualClock(), self._wake)

    async def set_up(self) -> None:
        self.start(self.look_ups.controller.run(), "look-ups")

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        self.news.append(f"read {image}")
        await asyncio.sleep(self.takes)
        if self.script:
            raise self.script.popleft()
        return FOUND

    def _wake(self, rollout: str, wait: timedelta) -> None:
        self.news.append(f"wake {rollout} in {wait.total_seconds():g}")

    def look(self) -> list[str]:
        news, self.news = self.news, []
        warned = [line for line in self.lines if "level=warn" in line]
        self.lines.clear()
        texts = [re.sub(r".*(rollout=\S+ tag=\S+) .*?err=(.*)\n", r"\1 \2", one) for one in warned]
        return [*news, *[f"{len(texts)} warned: {text}" for text in texts[-1:]]]

    async def do_answers(self, *errors: str) -> None:
        """Next they fail: `answers 3xRegistryDenied RegistryBusy`."""
        for word in errors:
            count, _, name = word.rpartition("x") if word[0].isdigit() else ("1", "", word)
            more = {"retry_after": timedelta(hours=1)} if name == RegistryBusy.__name__ else {}
            self.script.extend([getattr(registry, name)(f"no {name}", **more)] * int(count))

    async def do_takes(self, seconds: str) -> None:
        self.takes = float(seconds)

    async def do_secret(self, name: str) -> None:
        self.secret = name

    async def do_fetch(self, count: str = "1", tag: str = "1.0.0", digest: str = "") -> str:
        """Return what so many passes learn, and when the last one did."""
        found: list[str] = []
        repository = ImageRepository(head=head("app"), image=IMAGE, pull_secret=self.secret or None)
        began = VirtualClock().elapsed()
        for _ in range(int(count)):
            key = LookUpKey("app", tag)
            is_known, answer = await self.look_ups.fetch(key, repository, MINUTE, digest or None)
            assert answer in (None, FOUND)
            found.append(("none" if answer is None else "found") if is_known else "unknown")
        seconds = (VirtualClock().elapsed() - began).total_seconds()
        return f"{' '.join(dict.fromkeys(found))} after {seconds:.0f} s"

    async def do_many(self) -> None:
        """As many tags as are remembered, and one more."""
        for number in range(MOST_TAGS + 1):
            await self.do_fetch("1", f"{number}")

    async def do_forget(self) -> None:
        self.look_ups.forget("app")

    async def do_minutes(self, count: str) -> None:
        """Fetch once a minute; of this only warnings are shown."""
        for _ in range(int(count)):
            await self.do_fetch()
            await self.do_wait(61)
        self.news.clear()

    async def do_images(self, namespace: str, image: str) -> None:
        put(self.api, IMAGE_REPOSITORIES[0], "app", namespace, spec={"image": image})

    async def do_pin(self, namespace: str, selected: str, *words: str) -> str:
        """Pin 9.9.9 of an ImageRepository, while Flux has selected of this image.

        Passes are made at once, `x10` of them; another flag `keeps` or `verifies`.
        """
        put(
            self.api,
            IMAGE_POLICIES[0],
            "app",
            "prod",
            spec={"imageRepositoryRef": {"name": "app", "namespace": namespace}},
            status={"latestRef": {"name": selected, "tag": "1.0.0"}},
        )
        observer = await self._observe("keeps" in words, "verifies" in words)
        pinned = rollout(wanted_version="9.9.9")
        [count] = [int(word[1:]) for word in words if word[0] == "x"] or [2]
        for _ in range(count):
            snapshot = await observer.observe(pinned)
            plan = plan_release(snapshot)
        condition = plan.status.find_condition("WantedVersionFound")
        found = "no condition" if condition is None else f"{condition.status} {condition.reason}"
        return f"{found}, {'deploys' if plan.tag else 'holds'}"

    async def _observe(self, keeps: bool, verifies: bool) -> ReleaseObserver:
        """Return what observes by caches that know all that is there."""
        clock = VirtualClock()
        caches = build_caches(FedContext(self.client, clock, None, PROD), self.client)
        for kind in caches.list_kinds():
            self.start(kind.run(clock), kind.kind)
        await asyncio.sleep(5)
        return ReleaseObserver(
            namespace="prod",
            caches=caches,
            flux=FluxObjects(self.client, "prod", caches.oci_repositories, caches.kustomizations),
            look_ups=self.look_ups,
            reader=self.client,
            wide=WideChecks(caches.checks, caches.checks),
            schedules=FollowedSchedules(
                own=caches.schedules, wide=None, reader=ScheduleReader(OURS)
            ),
            now=self.api.now,
            compat=OURS,
            verifies_wanted=verifies,
            keeps_to_namespace=keeps,
        )
