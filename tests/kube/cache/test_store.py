"""What the cache keeps, finds, and reports: a table, and what holds of every history."""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.store import PodStore, StatefulSetStore, Store, WatchedStore, is_older
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, WatchedObject
from tests.examples import repeatable
from tests.kube.cache.stage import label
from tests.stories import check_tables

Item = Any


def read_item(word: str, make: Callable[..., Item]) -> Item:
    """Return the object of a text such as `a-0@5/uid:tag:tag!`; `!` is one that cannot be read."""
    name, _, rest = word.rstrip("!").partition("@")
    head, *tags = rest.split(":")
    version, _, uid = head.partition("/")
    uid = "" if uid == "none" else uid or f"uid-{name}"
    found = make(name, version, Uid(uid), tags)
    if not word.endswith("!"):
        return found
    owner, labels = getattr(found, "owner_uid", None), getattr(found, "labels", {})
    return Unreadable(
        kind="Pod", namespace="prod", name=name, uid=Uid(uid), resource_version=version,
        owner_uid=owner, labels=labels, error="bad",
    )  # fmt: skip


def pod(name: str = "a-0", version: str = "1", uid: str = "u", tags: Sequence[str] = ()) -> Pod:
    owner = Uid(tags[0]) if tags else None
    return Pod(namespace="prod", name=name, uid=Uid(uid), resource_version=version, owner_uid=owner)


def statefulset(name: str, version: str, uid: Uid, tags: Sequence[str]) -> StatefulSet:
    """`:x` is the short label of its group, `::y` the long one, and `-` an empty one."""
    keys = (GROUP_LABEL, GROUP_LABEL_LONG)
    return StatefulSet(
        namespace="prod", name=name, uid=uid, resource_version=version,
        labels={key: tag.strip("-") for key, tag in zip(keys, tags, strict=False) if tag},
    )  # fmt: skip


def watched(name: str, version: str, uid: Uid, tags: Sequence[str]) -> WatchedObject:
    return WatchedObject(
        namespace="prod", name=name, uid=uid, resource_version=version, decoded=tuple(tags)
    )


def _list_words(item: WatchedObject | Unreadable) -> tuple[str, ...]:
    return cast(tuple[str, ...], item.decoded) if isinstance(item, WatchedObject) else ()


def play(store: Store[Any], steps: Sequence[str], make: Callable[..., Item]) -> Sequence[Any]:
    changes: Sequence[Any] = ()
    for step in steps:
        if step[0] == "=":
            words = filter(None, step[1:].split(","))
            changes = store.replace_all([read_item(word, make) for word in words])
        else:
            change = store.upsert if step[0] == "+" else store.remove
            changes = change(read_item(step[1:], make))
    return changes


def show(store: Store[Any], changes: Sequence[Any], find: dict[str, Callable[[str], Any]]) -> str:
    """Return what was changed, what is held, and what is found by which tag."""
    held = store.list_all()
    assert all(store.get(one.namespace, one.name) is one for one in held)
    assert len(store) == len(held)
    assert store.unreadable_count == sum(isinstance(one, Unreadable) for one in held)
    shown = " ".join(f"{label(old)}>{label(new)}" for old, new in changes)
    found = [f"{shown or 'no change'}; {' '.join(sorted(map(label, held))) or 'nothing'}"]
    for where, search in find.items():
        if names := " ".join(sorted(one.name for one in search(where.split()[-1]))):
            found.append(f"{where}: {names}")
    return "; ".join(found)


def tell(command: str) -> str:
    verb, *words = command.split()
    if verb == "older":
        return f"{is_older(words[0].strip(chr(39)), words[1])}"
    if verb == "sets":
        sets = StatefulSetStore()
        changes = play(sets, words, statefulset)
        find: dict[str, Callable[[str], Any]] = {
            f"group {name}": lambda name: sets.list_group(GroupName(name.strip("-")))
            for name in ("x", "y", "g", "-")
        }
        assert set(sets.list_groups()) == {one.group for one in sets.list_all()} - {None}
        assert all(sets.get_by_uid(one.uid) is one for one in sets.list_all())
        assert sets.get_by_uid(Uid("uid-other")) is None
        assert sets.list_all() or sets.get_by_uid(Uid("uid-a")) is None
        return show(sets, changes, find)
    if verb == "tags":
        tagged = WatchedStore(_list_words)
        changes = play(tagged, words, watched)
        assert len(tagged.list_tagged("x", "y")) <= len(tagged), "each once"
        return show(tagged, changes, dict.fromkeys("xyz", tagged.list_tagged))
    store = PodStore()
    changes = play(store, words, pod)
    owners: dict[str, Callable[[str], Any]] = {
        f"of {one}": lambda name: store.list_by_owner(Uid(name)) for one in "ABC"
    }
    orphans = {f"orphans of {one}": store.list_orphans for one in ("a", "stray")}
    return show(store, changes, owners | orphans)


test_steps = check_tables(__file__, store=tell)


def test_versions_may_be_longer_than_int_reads() -> None:
    assert is_older("1" * 5000, "2" * 5000)


def test_memory_of_deletions_is_bounded() -> None:
    store = PodStore()
    for number in range(5000):
        store.remove(pod(f"a-{number}", "2", f"u-{number}"))
    assert store.upsert(pod("a-4999", "1", "u-4999")) == (), "a late event"
    assert store.upsert(pod("a-0", "1", "u-0")) != (), "too long ago to be remembered"


EVENTS: Final = st.lists(
    st.tuples(st.sampled_from(["a-0", "a-1"]), st.sampled_from(["A", "B", ""]), st.booleans()),
    max_size=12,
)


@repeatable()
@given(events=EVENTS)
def test_changes_say_exactly_what_the_store_holds(events: list[tuple[str, str, bool]]) -> None:
    """A replay of the changes ends with the content, and indexes never disagree with it."""
    store, replayed = PodStore(), dict[str, object]()
    for version, (name, owner, is_deletion) in enumerate(events, start=1):
        item = pod(name, str(version), f"u-{name}", [owner] if owner else [])
        for old, new in store.remove(item) if is_deletion else store.upsert(item):
            one = new or old
            assert one is not None
            assert replayed.pop(one.name, None) == old
            if new is not None:
                replayed[one.name] = new
    held = {one.name: one for one in store.list_all()}
    assert replayed == held
    for uid in ("A", "B"):
        owned = {name for name, item in held.items() if item.owner_uid == uid}
        assert {one.name for one in store.list_by_owner(Uid(uid))} == owned


HISTORY: Final = ("+a-0@1/one", "+a-0@2/one:A", "-a-0@3/one:A", "+a-0@4/two")


@pytest.mark.parametrize("order", list(permutations(HISTORY)), ids=" ".join)
def test_fp07_any_order_of_a_history_ends_without_a_ghost(order: tuple[str, ...]) -> None:
    store = PodStore()
    play(store, order, pod)
    assert [label(one) for one in store.list_all()] == ["a-0@4/two"]
