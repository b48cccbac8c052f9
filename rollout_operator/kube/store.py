"""The cache behind a watch: the newest known version of each object, and where to find it.

Decides which of two versions is newer, reports each change once, and decides what an informer does
after a failure (`Failures`). Every step costs what it changes, not what is stored; only
`replace_all` reads everything.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from enum import StrEnum, unique
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.queue import LONGEST_RETRY_AFTER, REFUSED_WATCHES, WATCHES
from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.names import (
    ApiError,
    Denied,
    Gone,
    GroupName,
    Throttled,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import (
    AnyWatched,
    Node,
    Pod,
    StatefulSet,
    Unreadable,
    WatchedObject,
    WebhookConfiguration,
)
from rollout_operator.model.outcome import Severity
from rollout_operator.model.policy import WatchedPolicy

Cached = TypeVar(
    "Cached",
    StatefulSet | Unreadable,
    Pod | Unreadable,
    WebhookConfiguration | Unreadable,
    Budget | FlawedBudget | Unreadable,
    WatchedPolicy | Unreadable,
    Node | Unreadable,
    WatchedObject | Unreadable,
)

Key: TypeAlias = tuple[str, str]

Change: TypeAlias = tuple[Cached | None, Cached | None]
"""What was stored and what is stored now; None where there is nothing. Always the same UID."""

# Late events come within seconds of the deletion that they missed: this holds far more than that.
_REMEMBERED_DELETIONS: Final = 4096

_Tag = TypeVar("_Tag", GroupName, Uid, str)


AnyBudget: TypeAlias = Budget | FlawedBudget | Unreadable
Configuration: TypeAlias = WebhookConfiguration | Unreadable

# A version that the server will never know again can show as 504 or 429 instead of 410.
FAILED_RESUMES: Final = 3
# A server that lags behind the others needs seconds to catch up.
_WENT_BACK_PAUSE: Final = timedelta(seconds=2)


def is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is certainly older than another of the same collection.

    Only decimal numbers compare; of anything else nothing is known.
    """
    if not (version and than and (both := version + than).isascii() and both.isdigit()):
        return False
    # As numbers of any length, without int(): that is limited to 4,300 digits and slow before.
    left, right = version.lstrip("0"), than.lstrip("0")
    return left < right if len(left) == len(right) else len(left) < len(right)


def name_set(pod: Pod | Unreadable) -> str:
    return pod.name.rpartition("-")[0]


class Store(Generic[Cached]):
    """Slim objects by namespace and name. Not for use by several threads."""

    def __init__(self, list_tags: Callable[[Cached], Iterable[str]] | None = None) -> None:
        """`list_tags` returns what an object mentions, for `list_tagged`."""
        self._items: dict[Key, Cached] = {}
        self._unreadable: set[Key] = set()
        self._deleted: dict[Uid, str] = {}
        self._by_tag: _Index[Cached, str] = _Index(list_tags or (lambda item: ()))
        self._indexes: list[_Index[Cached, Any]] = [self._by_tag] if list_tags else []
        self._on_replaced: list[Callable[[], None]] = []

    def on_replaced(self, callback: Callable[[], None]) -> None:
        """Call back after each `replace_all`, before any of its changes is reported."""
        self._on_replaced.append(callback)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def unreadable_count(self) -> int:
        return len(self._unreadable)

    def list_all(self) -> Sequence[Cached]:
        return tuple(self._items.values())

    def get(self, namespace: str, name: str) -> Cached | None:
        return self._items.get((namespace, name))

    def list_tagged(self, *tags: str) -> Sequence[Cached]:
        return self._by_tag.tagged(*tags)

    def find_deletion(self, uid: Uid) -> str:
        """Return the version by which an object went lately; empty where that was not seen."""
        return self._deleted.get(uid, "")

    def upsert(self, item: Cached) -> Sequence[Change[Cached]]:
        """Store an object unless a newer version is known. Return what changed.

        Another UID under the same name is two changes: the old object went, a new object came.
        """
        old = self._items.get(_key(item))
        died = self._deleted.get(item.uid)
        if died is not None and _is_known(item.resource_version, died):
            return ()
        if old is None:
            self._put(item)
            return ((None, item),)
        # One name is one key of the API's store, so versions compare even across UIDs: a pod that
        # was recreated at 9 is not replaced by a late event of its predecessor at 6.
        if _is_known(item.resource_version, old.resource_version):
            return ()
        if old.uid != item.uid:
            return self._supersede(old, item)
        self._put(item)
        return ((old, item),)

    def remove(self, last: Cached) -> Sequence[Change[Cached]]:
        """Forget an object, given its last state. Return what changed.

        What was stored later under the same name stays: a successor, or the object itself, come
        back into the selection.
        """
        version = last.resource_version
        old = self._items.get(_key(last))
        is_same = old is not None and old.uid == last.uid
        if is_same and old is not None and is_older(version, old.resource_version):
            return ()
        self._remember_deletion(last.uid, version)
        if old is None or not (is_same or is_older(old.resource_version, version)):
            return ()
        # An object of another UID, but older: its own deletion and the birth of `last` were missed.
        self._drop(old)
        return ((old, None),)

    def replace_all(self, items: Iterable[Cached]) -> Sequence[Change[Cached]]:
        """Make `items` the whole content. Return what changed, removals first.

        A list is the truth even where it holds older versions: an API server restored from a backup
        has forgotten the newer versions.
        """
        listed = {_key(item): item for item in items}
        self._deleted.clear()
        changes: list[Change[Cached]] = []
        for key, old in tuple(self._items.items()):
            if (new := listed.get(key)) is None or new.uid != old.uid:
                self._drop(old)
                changes.append((old, None))
        for key, item in listed.items():
            before = self._items.get(key)
            if before is None or before != item:
                self._put(item)
                changes.append((before, item))
        for callback in self._on_replaced:
            callback()
        return changes

    def _supersede(self, old: Cached, item: Cached) -> Sequence[Change[Cached]]:
        self._drop(old)
        self._remember_deletion(old.uid, item.resource_version)
        self._put(item)
        return ((old, None), (None, item))

    def _put(self, item: Cached) -> None:
        key = _key(item)
        old = self._items.get(key)
        self._items[key] = item
        if isinstance(item, Unreadable):
            self._unreadable.add(key)
        else:
            self._unreadable.discard(key)
        for index in self._indexes:
            index.move(key, old, item)

    def _drop(self, old: Cached) -> None:
        key = _key(old)
        del self._items[key]
        self._unreadable.discard(key)
        for index in self._indexes:
            index.move(key, old, None)

    def _remember_deletion(self, uid: Uid, version: str) -> None:
        if not uid:
            return
        self._deleted.pop(uid, None)
        self._deleted[uid] = version
        if len(self._deleted) > _REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]


class PodStore(Store[Pod | Unreadable]):
    """Pods, found by the UID of their controlling owner, or without one by their name."""

    def __init__(self) -> None:
        super().__init__()
        self._by_owner: _Index[Pod | Unreadable, Uid] = _Index(lambda item: (item.owner_uid,))
        self._orphans: _Index[Pod | Unreadable, str] = _Index(
            lambda item: (name_set(item) if item.owner_uid is None else None,)
        )
        self._indexes += [self._by_owner, self._orphans]

    def list_by_owner(self, uid: Uid) -> Sequence[Pod | Unreadable]:
        return self._by_owner.tagged(uid)

    def list_orphans(self, name: str) -> Sequence[Pod | Unreadable]:
        """Return the pods that nothing controls and that are named as those of a StatefulSet."""
        return self._orphans.tagged(name)


class StatefulSetStore(Store[StatefulSet | Unreadable]):
    """StatefulSets, found by rollout group and by their own UID."""

    def __init__(self) -> None:
        super().__init__()
        self._by_group: _Index[StatefulSet | Unreadable, GroupName] = _Index(
            lambda sts: (sts.group,)
        )
        self._by_uid: _Index[StatefulSet | Unreadable, Uid] = _Index(lambda sts: (sts.uid or None,))
        self._indexes += [self._by_group, self._by_uid]

    def list_groups(self) -> Sequence[GroupName]:
        groups = dict.fromkeys(sts.group for sts in self.list_all())
        return [group for group in groups if group is not None]

    def list_group(self, name: GroupName) -> Sequence[StatefulSet | Unreadable]:
        return self._by_group.tagged(name)

    def get_by_uid(self, uid: Uid) -> StatefulSet | Unreadable | None:
        return next(iter(self._by_uid.tagged(uid)), None)


# There are some dozens of each: a search reads all of them.
BudgetStore: TypeAlias = Store[AnyBudget]
ConfigurationStore: TypeAlias = Store[Configuration]
NodeStore: TypeAlias = Store[Node | Unreadable]
PolicyStore: TypeAlias = Store[WatchedPolicy | Unreadable]
WatchedStore: TypeAlias = Store[AnyWatched]


class _Index(Generic[Cached, _Tag]):
    """Objects by the tags that they carry."""

    def __init__(self, list_tags: Callable[[Cached], Iterable[_Tag | None]]) -> None:
        """None is no tag."""
        self._list_tags: Callable[[Cached], Iterable[_Tag | None]] = list_tags
        self._items: dict[_Tag, dict[Key, Cached]] = {}

    def tagged(self, *tags: _Tag) -> Sequence[Cached]:
        if len(tags) == 1:  # as nearly always
            return tuple(self._items.get(tags[0], {}).values())
        found: dict[Key, Cached] = {}
        for tag in tags:
            found.update(self._items.get(tag, {}))
        return tuple(found.values())

    def move(self, key: Key, old: Cached | None, new: Cached | None) -> None:
        before = () if old is None else tuple(self._list_tags(old))
        after = () if new is None else tuple(self._list_tags(new))
        for tag in before if before != after else ():
            if tag is not None and tag not in after:
                members = self._items.get(tag, {})  # it may be listed twice
                members.pop(key, None)
                if not members:
                    self._items.pop(tag, None)
        for tag in after:
            if new is not None and tag is not None:
                self._items.setdefault(tag, {})[key] = new


class _Named(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


def _key(item: _Named) -> Key:
    return (item.namespace, item.name)


def _is_known(version: str, newest: str) -> bool:
    """Return whether a version says nothing new to a reader that has seen `newest`."""
    return (version == newest and version != "") or is_older(version, newest)


def decides(old: Cached, new: Cached) -> bool:
    """Return whether the step from old to new changes anything that a decision reads."""
    if type(old) is not type(new):
        return True
    return bool(replace(old, resource_version=new.resource_version) != new)


@unique
class RetryCause(StrEnum):
    """Why a stream ended or a list failed: label values of a metric, never renamed."""

    CLOSED = "closed"
    GONE = "gone"
    """The version is too old to resume from, or the list took too long to be one."""
    UNREACHABLE = "unreachable"
    THROTTLED = "throttled"
    DENIED = "denied"
    REFUSED = "refused"
    WENT_BACK = "went_back"
    """The server showed an older state than before."""
    REFRESH = "refresh"


class WentBack(Unreachable):
    """The API server shows an older state than it did before: read again."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next. `is_news` says whether it is worth a line in the log."""

    cause: RetryCause
    delay: timedelta
    needs_list: bool
    is_news: bool

    @property
    def severity(self) -> Severity:
        match self.cause:
            case RetryCause.GONE:
                return Severity.INFO
            case RetryCause.DENIED | RetryCause.REFUSED:
                return Severity.ERROR
            case _:
                return Severity.WARN


class Failures(msgspec.Struct):
    """What failed since the stream last proved itself.

    A list alone ends no row: lists that succeed before watches that fail would make a hot loop.
    """

    in_row: int = 0
    gone: int = 0
    resumes: int = 0

    def record_list(self) -> None:
        """Record that a list succeeded: the next resume is the first."""
        self.resumes = 0

    def next(self, error: ApiError, rng: float, *, has_list: bool) -> Retry:
        """Count one more failure and return what follows; `rng` is in 0..1.

        `has_list` says whether it was a watch that failed.
        """
        self.in_row += 1
        self.resumes += has_list
        self.gone += isinstance(error, Gone)
        return Retry(
            cause=_cause(error),
            delay=self._delay(error, rng),
            needs_list=not has_list or isinstance(error, Gone) or self.resumes >= FAILED_RESUMES,
            # The first failures show what happens; one in ten then shows that it goes on.
            is_news=self.in_row <= FAILED_RESUMES or self.in_row % 10 == 0,
        )

    def _delay(self, error: ApiError, rng: float) -> timedelta:
        delay = WATCHES.delay(self.in_row, rng)
        match error:
            case Gone():
                return delay if self.gone > 1 else timedelta(0)
            case TooManyRequests(retry_after=wanted):
                return delay + min(wanted or timedelta(0), LONGEST_RETRY_AFTER)
            case WentBack():
                return delay + _WENT_BACK_PAUSE
            case Throttled() | Unreachable():
                return delay
            case _:
                return REFUSED_WATCHES.delay(self.in_row, rng)


def _cause(error: ApiError) -> RetryCause:
    match error:
        case Gone():
            return RetryCause.GONE
        case TooManyRequests() | Throttled():
            return RetryCause.THROTTLED
        case WentBack():
            return RetryCause.WENT_BACK
        case Unreachable():
            return RetryCause.UNREACHABLE
        case Denied():
            return RetryCause.DENIED
        case _:
            return RetryCause.REFUSED


class Liveness:
    def __init__(self) -> None:
        self.is_live = False
        self._callbacks: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when the watch goes down, and when it is back. Must not block."""
        self._callbacks.append(callback)

    def turn(self, *, is_live: bool) -> None:
        if is_live is not self.is_live:
            self.is_live = is_live
            for callback in self._callbacks:
                callback()


class Staleness:
    """Calls back once where a cache is older than it may be; again after each proof of life."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[timedelta, Callable[[], None]]] = []
        self._reported_at: timedelta | None = None
        """The proof of life since which the cache was found to be too old."""

    def add(self, limit: timedelta, callback: Callable[[], None]) -> None:
        """Call back where the cache is older than `limit`. Must not block."""
        self._callbacks.append((limit, callback))

    def check(self, proven_at: timedelta | None, age: timedelta) -> None:
        """Call back if that is due; `proven_at` is the newest proof of life."""
        if proven_at is None or proven_at == self._reported_at:
            return
        due = [callback for limit, callback in self._callbacks if age > limit]
        if due:
            self._reported_at = proven_at
        for callback in due:
            callback()
