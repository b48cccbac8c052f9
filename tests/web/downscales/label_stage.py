"""The commands of stories of labels: an object, the cache's view of it, reviews of its Scale."""

import asyncio
import json
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import Resource
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import NO_DOWNSCALE, OperatorError, Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.web.no_downscale import NoDownscale, Parents, UnconfirmedReads
from tests.controllers.fake_client import FakeClient, Json
from tests.stories import read_words
from tests.virtual_time import VirtualClock
from tests.web.client_stage import ClientStage, digest
from tests.web.downscales.stage import zone

NAME: Final = "zone-a"


class LateClient(FakeClient):
    """Answers with what was stored when it was read, once it may."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def fetch(
        self, resource: Resource, namespace: str, name: str, subresource: str = "", **how: object
    ) -> bytes:
        try:
            return await super().fetch(resource, namespace, name, subresource, **how)
        finally:
            await self.may_answer.wait()


class LabelStage(ClientStage):
    """No object and an empty cache. `key=value` are version, uid, label and resource."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.clock, self.cache = VirtualClock(), StatefulSetStore()
        self.late = LateClient()
        self._attend(self.late)
        self.fails_closed = False
        self._limit(0)

    def _limit(self, qps: float) -> None:
        reads = UnconfirmedReads(qps)
        self.parents = Parents(self.cache, self.client, reads, namespace="test", clock=self.clock)

    async def do_qps(self, number: str) -> None:
        """Have a limit of reads a second."""
        self._limit(float(number))

    async def do_store(self, *words: str) -> None:
        """Store an object: `annotated`, `bare` or `broken`."""
        how = _read(words)
        self.client.objects[how["resource"], NAME] = _build(how)

    async def do_cache(self, *words: str) -> None:
        how = _read(words)
        if "spoilt" in how:
            spoilt = Unreadable(
                kind="StatefulSet", namespace="test", name=NAME, uid=Uid(how["uid"]),
                resource_version=how["version"], error="spec.replicas: broken",
            )  # fmt: skip
            self.cache.upsert(spoilt)
        else:
            self.cache.upsert(decode_statefulset(json.dumps(_build(how)).encode()))

    async def do_closed(self) -> None:
        """Refuse what cannot be checked."""
        self.fails_closed = True

    async def do_parent(self, *words: str) -> str:
        """Find the object behind a Scale; show its label."""
        until = self.clock.elapsed() + timedelta(seconds=float(_read(words).get("within", 9)))
        try:
            found = await self.parents.fetch(_review(_read(words)), until)
        except OperatorError as error:
            return f"{type(error).__name__}: {error}"
        return found.labels.get(NO_DOWNSCALE, "no label") + " annotated" * bool(found.annotations)

    async def do_review(self, *words: str) -> str:
        """Request fewer replicas: `old=2 new=1`, by scale or of the `whole` set, `dry`."""
        hook = NoDownscale(self.parents, fails_closed=self.fails_closed)
        until = self.clock.elapsed() + timedelta(seconds=9)
        self.verdict = await hook.review(_review(_read(words)), until)
        return digest(self.verdict)

    async def do_crowd(self, number: str, *words: str) -> str:
        """Do the same so often at once, `#` is the number; show each outcome once."""
        made = (self._do(*(w.replace("#", f"{at}") for w in words)) for at in range(int(number)))
        found = await asyncio.gather(*made)
        return f"{len(found)} times {'; '.join(sorted({f'{one}' for one in found}))}"

    async def do_hold(self) -> None:
        """Let no answer arrive before `answer`."""
        self.late.may_answer.clear()

    async def do_answer(self) -> None:
        self.late.may_answer.set()


def _read(words: tuple[str, ...]) -> dict[str, str]:
    how = {"version": "7", "uid": "uid-zone-a", "label": "true", "resource": "statefulsets"}
    more = "old new whole dry name namespace within annotated bare broken spoilt"
    return how | read_words(words, f"{' '.join(how)} {more}")


def _build(how: dict[str, str]) -> Json:
    one = zone(NAME, 2, labels={} if how["label"] == "-" else {NO_DOWNSCALE: how["label"]})
    one["metadata"].update(uid=how["uid"], resourceVersion=how["version"])
    one["metadata"]["annotations"] = {"a": "b"} if "annotated" in how else {}
    if "broken" in how:
        one["metadata"] = {"name": NAME, "labels": []} if how["broken"] == "labels" else {"name": 1}
    return {"metadata": {"name": NAME}} if "bare" in how else one


def _review(how: dict[str, str]) -> Review:
    old, new = (
        Scalable(
            kind="StatefulSet" if "whole" in how else "Scale", uid=Uid(how["uid"]),
            resource_version=how["version"], replicas=int(how.get(key, count)),
            labels={NO_DOWNSCALE: how["label"]} if "whole" in how and how["label"] != "-" else {},
        )
        for key, count in (("old", 2), ("new", 1))
    )  # fmt: skip
    broken = {"old": Unusable("broken"), "new": Unusable("broken")}
    return Review(
        version=Version.V1, uid="u", operation="UPDATE", resource=how["resource"],
        subresource="" if "whole" in how else "scale", namespace=how.get("namespace", "test"),
        name=how.get("name", NAME), dry_run="dry" in how,
        old=broken["old"] if how.get("broken") in ("old", "both") else old,
        new=broken["new"] if how.get("broken") in ("new", "both") else new,
    )  # fmt: skip
