"""Objects are found by what they mention."""

from typing import cast

from rollout_operator.kube.store import WatchedStore
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable, WatchedObject


def watched(name: str, version: int, *mentions: str) -> WatchedObject:
    return WatchedObject(
        namespace="prod",
        name=name,
        uid=Uid(f"uid-{name}"),
        resource_version=f"{version}",
        decoded=mentions,
    )


def test_objects_are_found_by_what_they_mention() -> None:
    """Each once, as it is now, and no more once they are gone."""
    store = WatchedStore(lambda view: cast(tuple[str, ...], view))
    store.replace_all([watched("a", 1, "x", "y"), watched("b", 2, "y"), watched("c", 3)])

    def names(*tags: str) -> list[str]:
        return [one.name for one in store.list_tagged(*tags)]

    assert (names("x"), names("y"), names("x", "y")) == (["a"], ["a", "b"], ["a", "b"])
    store.upsert(watched("a", 4, "z", "z"))
    assert (names("x"), names("y"), names("z")) == ([], ["b"], ["a"])
    store.remove(watched("b", 5))
    broken = Unreadable(
        kind="X", namespace="prod", name="a", uid=Uid("uid-a"), resource_version="6", error="bad"
    )
    store.upsert(broken)
    assert (names("y"), names("z")) == ([], [])
