"""The commands of stories of caches: what the API server will answer, and what passes then.

`list 10 a-0@5 a-1@6 / 10 a-2@7` scripts a list of version 10 in two pages, `watch 5s ~a-0@11 gone`
a stream, `probe` whether a kind is there. Lists and probes are given again once they are used up,
a further stream stays silent.

`a-0@5` is a pod and its version, `a-0@5/two` one with another UID, `a-0@5-` one that is not ready,
`a-0@5!` one that cannot be read. In a stream it is added by `+`, modified by `~`, deleted by `-`;
`=9` is a bookmark and `==9` the one that ends the state. Whatever the API server is asked and the
cache reports is shown behind its second.
"""

import asyncio
import json
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS, Page, Resource, WatchEvent
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.store import PodStore, WentBack
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Gone,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests import stories
from tests.samples import read_samples
from tests.virtual_time import elapsed

AnyPod = Pod | Unreadable
Answer = Page | ApiError
Step = WatchEvent | float | ApiError

NAMESPACE: Final = "prod"
OF_ALL: Final = replace(PODS, is_namespaced=False)
"""As of a kind of the cluster, or of one that is followed in all namespaces."""
MOST_SHOWN: Final = 8
ERRORS: Final[dict[str, ApiError]] = {
    "absent": NotFound("no such kind", status=404),
    "busy": TooManyRequests("busy"),
    "busy7": TooManyRequests("busy", retry_after=timedelta(seconds=7)),
    "busy1d": TooManyRequests("busy", retry_after=timedelta(days=1)),
    "conflict": Conflict("x"),
    "cut": Unreachable("connection reset"),
    "denied": Denied("forbidden", status=403),
    "down": Unreachable("connection refused"),
    "full": Throttled("the next token is due in 90s"),
    "gone": Gone("too old resource version", status=410),
    "old": WentBack("x"),
    "refused": Refused("x", status=422),
}
_ITEM: Final = re.compile(r"([+~?-]?)([a-z][\w-]*?)@(\w*)(?:/(\w+))?(?::(\w+))?([!-]?)")
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)s")
_TYPES: Final = {"+": "ADDED", "~": "MODIFIED", "-": "DELETED", "?": "SURPRISE"}
_SILENCE: Final = 10_000_000.0


class Script:
    """`LiveReader` and `Watcher` of `kube.api` that answer as they are told."""

    def __init__(self, record: Callable[[str], None]) -> None:
        self._record = record
        self._rest: deque[Answer] = deque()
        """The pages of a list that has begun."""
        self.lists: deque[Sequence[Answer]] = deque()
        self.probes: deque[Answer] = deque()
        self.streams: deque[Sequence[Step]] = deque()
        self.states: deque[Sequence[Step]] = deque()
        """Streams that begin with all objects; where there is none they are refused, as of old."""
        self.turns: deque[float | ApiError] = deque()
        self.pauses: dict[str, float] = {}
        self.open_watches = 0

    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        turn = self.turns.popleft() if self.turns else 0.0
        if isinstance(turn, ApiError):
            raise turn
        if turn:
            await asyncio.sleep(turn)

    async def fetch(self, resource: Resource, *rest: object, **how: object) -> bytes:
        raise NotFound("not in this script")

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str,
        *,
        selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        token: str = "",
        resource_version: str | None = None,
        has_turn: bool = False,
    ) -> Page:
        assert resource_version is None, "version 0 would be all that is cached"
        assert limit in (1, 500)
        what = "list" if limit > 1 else "probe"
        taken = "with its token" if has_turn else ""
        self._tell(what, resource, selector, field_selector, token, taken)
        await asyncio.sleep(self.pauses.get(what, 0))
        if what == "list":
            if not token:
                self._rest.clear()
                self._rest.extend(_take(self.lists))
            answer = self._rest.popleft()
        else:
            answer = _take(self.probes)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str,
        *,
        resource_version: str,
        selector: str = "",
        field_selector: str = "",
        lasts: timedelta,
        has_state: bool = False,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        assert has_state is not bool(resource_version)
        what = "stream" if has_state else f"watch {resource_version} {lasts.total_seconds():g}s"
        self._tell(what, resource, selector, field_selector)
        await asyncio.sleep(0)
        if has_state and not self.states:
            raise ERRORS["refused"]
        queue = self.states if has_state else self.streams
        steps = queue.popleft() if queue else (_SILENCE,)
        if steps and isinstance(steps[0], ApiError):
            raise steps[0]
        self.open_watches += 1
        try:
            yield _play(steps)
        finally:
            self.open_watches -= 1

    def _tell(self, what: str, resource: Resource, *more: str) -> None:
        version = resource.version if resource.version == "v2" else ""
        self._record(" ".join(filter(None, (what, version, *more))))


def _take(queue: deque[Any]) -> Any:
    return queue.popleft() if len(queue) > 1 else queue[0]


async def _play(steps: Iterable[Step]) -> AsyncIterator[WatchEvent]:
    for step in steps:
        if isinstance(step, ApiError):
            raise step
        if isinstance(step, float):
            await asyncio.sleep(step)
        else:
            yield step


def raw(tree: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(tree).encode())


def label(item: Any) -> str:
    """Return an object as it is written in a story."""
    if item is None:
        return ""
    uid = "" if item.uid in (f"uid-{item.name}", "") else f"/{item.uid}"
    broken = "!" if isinstance(item, Unreadable) else ""
    return f"{item.name}@{item.resource_version}{uid}{broken}"


class ScriptStage(stories.Steps):
    """An API server on a script; subclasses say who follows it."""

    plural = "pods"

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.told: list[tuple[float, str]] = []
        self.counted: Counter[str] = Counter()
        self.api = Script(self.tell)
        self.clock = LoopClock()
        self.metrics = Metrics()
        self.seen: dict[str, str] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.oldest = 0.0
        self.stack.callback(self._check_streams)

    def _check_streams(self) -> None:
        assert self.api.open_watches == 0, "a stream was left open"

    # What is shown

    def tell(self, text: str) -> None:
        self.told.append((round(elapsed().total_seconds(), 2), text))
        self.counted[text] += 1

    def look(self) -> list[str]:
        told, self.told = self.told, []
        shown = [
            f"{at:g} {', '.join(_brief([text for _, text in same]))}"
            for at, same in groupby(told, lambda one: one[0])
        ]
        state = self.describe()
        changed = [f"{key} {state[key]}" for key in state if state[key] != self.seen.get(key)]
        self.seen = state
        return [*_brief(shown), *changed]

    def describe(self) -> dict[str, str]:
        """Return what is shown when it changes."""
        return {}

    def read_age(self) -> timedelta:
        raise NotImplementedError

    async def do_age(self) -> str:
        """Show the age, and the highest at whole seconds until now."""
        age, oldest, self.oldest = self.read_age(), self.oldest, 0.0
        shown = "unknown" if age == timedelta.max else f"{age.total_seconds():.4g}"
        return f"age {shown}, at most {oldest:.4g}"

    async def do_count(self) -> str:
        """Show how often what was told until now, and forget it."""
        found, self.counted = self.counted, Counter()
        return ", ".join(f"{text} x{count}" for text, count in found.items()) or "nothing"

    async def do_metrics(self) -> str:
        shown = []
        for name in ("watch_events_total", "watch_restarts_total", "cached_objects"):
            for labels, value in read_samples(self.metrics, name).items():
                if value or name == "cached_objects":
                    shown.append(f"{' '.join(labels)} {value:g}")
        return ", ".join(shown)

    async def do_log(self, *words: str) -> str:
        """Show how many lines of which level have these words, and forget all."""
        text = " ".join(words)
        found = Counter(line.split()[0] for line in self.lines if text in line)
        self.lines.clear()
        return ", ".join(f"{level} x{count}" for level, count in found.items()) or "no line"

    # The script

    async def do_list(self, *words: str) -> None:
        """Script a list: pages are separated by `/`, and an error ends it; `x5` five of them."""
        words, times = _repeats(words)
        pages = " ".join(words).split(" / ")
        answers = [
            self._page(*one.split(), token="more" if number < len(pages) else "")
            for number, one in enumerate(pages, 1)
        ]
        self.api.lists.extend([answers] * times)

    async def do_probe(self, *words: str) -> None:
        """Script whether the kind is there: `there`, or an error."""
        for word in words:
            self.api.probes.append(self._page("1") if word == "there" else ERRORS[word])

    async def do_watch(self, *words: str) -> None:
        words, times = _repeats(words)
        self.api.streams.extend([[self._step(word) for word in words]] * times)

    async def do_stream(self, *words: str) -> None:
        """Script a stream that begins with all objects."""
        words, times = _repeats(words)
        self.api.states.extend([[self._step(word) for word in words]] * times)

    async def do_turn(self, *words: str) -> None:
        """Script how long each token takes that is waited for."""
        self.api.turns.extend(ERRORS.get(word) or float(word[:-1]) for word in words)

    async def do_slow(self, what: str, seconds: str) -> None:
        """Let each answer to lists or probes take so long."""
        self.api.pauses[what] = float(seconds)

    def _page(self, first: str, *items: str, token: str = "") -> Answer:
        if first in ERRORS:
            return ERRORS[first]
        version = "" if first == "-" else first
        made = [self._item(word)[1] for word in items]
        return Page(items=made, resource_version=version, next_token=token)

    def _step(self, word: str) -> Step:
        if word in ERRORS:
            return ERRORS[word]
        if span := _SPAN.fullmatch(word):
            return float(span[1])
        if word == "silence":
            return _SILENCE
        if word.startswith("="):
            ends = {"k8s.io/initial-events-end": "false" if "no" in word else "true"}
            version = word.strip("=no")
            head: dict[str, Any] = {"resourceVersion": version} if version else {}
            head |= {"annotations": ends} if word.startswith("==") else {}
            return WatchEvent(type="BOOKMARK", object=raw({"kind": "Pod", "metadata": head}))
        sign, item = self._item(word)
        return WatchEvent(type=_TYPES[sign], object=item)

    def _item(self, word: str) -> tuple[str, msgspec.Raw]:
        found = _ITEM.fullmatch(word)
        assert found is not None, word
        sign, name, version, uid, owner, flag = found.groups("")
        return sign, raw(self.make_tree(name, version, uid, owner, flag))

    def make_tree(self, name: str, version: str, uid: str, owner: str, flag: str) -> object:
        return pod_tree(NAMESPACE, name, version, uid=uid or f"uid-{name}", owner=owner, flag=flag)

    # Time

    async def do_wait(self, seconds: float) -> None:
        end = elapsed().total_seconds() + seconds
        while (left := end - elapsed().total_seconds()) > 1e-6:
            await asyncio.sleep(min(left, 1 - elapsed().total_seconds() % 1))
            age = self.read_age()
            if age != timedelta.max and elapsed().total_seconds() % 1 == 0:
                self.oldest = max(self.oldest, age.total_seconds())

    async def do_turns(self, count: str) -> None:
        """Let the loop turn so often; no time passes."""
        for _ in range(int(count)):
            await asyncio.sleep(0)

    def start(
        self, work: Any, name: str | None = None, *, may_fail: bool = True
    ) -> asyncio.Task[Any]:
        task = super().start(work, name, may_fail=may_fail)
        task.add_done_callback(self._end)
        self.tasks.append(task)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.tell(f"ended with {type(error).__name__}")


def pod_tree(
    namespace: str, name: str, version: str, *, uid: str, owner: str = "", flag: str = ""
) -> dict[str, Any]:
    """Return a pod; the flag `-` is one that is not ready, and `!` one whose phase is a number."""
    owners = [{"kind": "StatefulSet", "name": "a", "uid": owner, "controller": True}]
    status = "False" if flag == "-" else "True"
    return {
        "metadata": {
            "namespace": namespace,
            "name": 7 if name == "nameless" else name,
            "uid": uid,
            "resourceVersion": version,
            "labels": {"controller-revision-hash": "a-1"},
            "ownerReferences": owners if owner else [],
        },
        "status": {
            "phase": 7 if flag == "!" else "Running",
            "conditions": [{"type": "Ready", "status": status}],
            "containerStatuses": [{"name": "c", "ready": flag != "-", "state": {"running": {}}}],
        },
    }


def _repeats(words: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    found = re.fullmatch(r"x(\d+)", words[-1])
    return (words[:-1], int(found[1])) if found else (words, 1)


def _brief(texts: list[str]) -> list[str]:
    if len(texts) <= MOST_SHOWN:
        return texts
    return [*texts[:4], f"... {len(texts) - 6} ...", *texts[-2:]]


class InformerStage(ScriptStage):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.rng = 0.5
        self.ends_on: list[ApiError] = []
        self.kept: object = None
        self.callback = ""
        self._build(namespace=NAMESPACE)

    def _build(self, **part: Any) -> None:
        self.store = PodStore()
        of: Collection[AnyPod] = Collection(
            resource=PODS if part["namespace"] else OF_ALL,
            decode=decode_pod,
            store=self.store,
            ends_on=lambda error: error in self.ends_on,
            **part,
        )
        self.informer: Informer[AnyPod] = Informer(
            self.api, of, self.metrics, self.clock, lambda: self.rng
        )
        self.informer.on_change(self._report)
        live = self.informer.liveness
        live.on_change(lambda: self.tell("live" if live.is_live else "dead"))

    def _report(self, old: AnyPod | None, new: AnyPod | None) -> None:
        self._check_stored(old, new)
        self.tell(f"{label(old)}>{label(new)}")
        if self.callback == "bug":
            raise ZeroDivisionError
        if self.callback == "refresh":
            self.callback = ""
            self.informer.refresh("odd")

    def _check_stored(self, old: AnyPod | None, new: AnyPod | None) -> None:
        known = [one for one in self.store.list_all() if one.name == getattr(new or old, "name", 0)]
        is_replaced = bool(old and known and known[0].uid != old.uid)
        assert known == [new] * bool(new) or is_replaced, "the store is changed before"

    def describe(self) -> dict[str, str]:
        informer = self.informer
        held = sorted(label(item) for item in self.store.list_all())
        assert self.store.unreadable_count == sum(item.endswith("!") for item in held)
        error = informer.last_error
        broken = informer.broken_for
        assert (error is None) is (broken is None)
        return {
            "holds": " ".join(_brief(held)) or "nothing",
            "has": "synced" if informer.has_synced else "not synced",
            "error": "none" if error is None else type(error).__name__,
        }

    def read_age(self) -> timedelta:
        return self.informer.age

    async def do_run(self, rng: str = "0.5") -> None:
        self.rng = float(rng)
        self.start(self.informer.run(), "informer")

    async def do_cancel(self) -> str:
        self.tasks[0].cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return "cancelled" if self.tasks[0].cancelled() else "ended"

    async def do_of(self, *words: str) -> None:
        """Have an informer of a part: `namespace=`, `selector=`, `field_selector=`."""
        self._build(**{"namespace": "", **dict(word.split("=", 1) for word in words)})

    async def do_refresh(self) -> str:
        return "granted" if self.informer.refresh("a live read shows more") else "not granted"

    async def do_callback(self, what: str) -> None:
        """Have a callback fail, `bug`, or request one `refresh`."""
        self.callback = what

    async def do_ends(self, *errors: str) -> None:
        """Have the collection end on these errors."""
        self.ends_on = [ERRORS[error] for error in errors]

    async def do_stale(self, seconds: str) -> None:
        """Tell when the cache is older than this."""
        limit = timedelta(seconds=float(seconds))
        self.informer.staleness.add(
            limit, lambda: self.tell(f"stale by {self.informer.age.total_seconds():.1f}s")
        )

    async def do_keep(self, name: str) -> str:
        """Say whether it is the very object of the last time."""
        before, self.kept = self.kept, self.store.get(NAMESPACE, name)
        return "the same" if self.kept is before else "another"

    async def do_owned(self, owner: str) -> str:
        return " ".join(sorted(item.name for item in self.store.list_by_owner(Uid(owner))))

    async def do_broken(self) -> str:
        span = self.informer.broken_for
        return f"broken for {span.total_seconds():.4g}s: {self.informer.last_error}" if span else ""
