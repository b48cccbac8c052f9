"""The store: one order of all writes, earlier states, and what compaction forgets."""

from datetime import timedelta

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.lab.apiserver.store import FIRST_REVISION, By, ObjectKey, ObjectStore
from rollout_operator.lab.model.fields import name_of
from rollout_operator.lab.model.history import Commit, History

SOMEONE = By("someone", 7)


def make_store() -> tuple[ObjectStore, History]:
    history = History()
    return ObjectStore(history, lambda: timedelta(seconds=3)), history


def at(name: str, namespace: str = "prod", resource: Resource = PODS) -> ObjectKey:
    return ObjectKey(resource, namespace, name)


def obj(name: str, **data: object) -> JsonObject:
    return {"metadata": {"name": name}, **data}


def names(objects: object) -> list[str]:
    assert isinstance(objects, list)
    return [name_of(one) for one in objects]


def test_lists_are_in_the_order_of_keys_of_the_real_store() -> None:
    store, _ = make_store()
    for namespace, name in (("b", "1"), ("a-b", "1"), ("a", "2"), ("a", "10")):
        store.write(at(name, namespace), obj(f"{namespace}/{name}"), SOMEONE)
    assert names(store.list(PODS, "a")) == ["a/10", "a/2"]
    # `a-b/` comes before `a/`: a dash sorts before a slash.
    assert names(store.list(PODS, "")) == ["a-b/1", "a/10", "a/2", "b/1"]


def test_an_earlier_state_is_there_until_it_is_compacted() -> None:
    store, _ = make_store()
    store.write(at("a"), obj("a", spec=1), SOMEONE)
    store.write(at("b"), obj("b"), SOMEONE)
    then = store.revision
    store.write(at("a"), obj("a", spec=2), SOMEONE)
    store.remove(at("b"), SOMEONE)
    store.write(at("c"), obj("c"), SOMEONE)
    earlier = store.list_at(PODS, "prod", then)
    assert [(name_of(one), one.get("spec")) for one in earlier] == [("a", 1), ("b", None)]
    assert names(store.list_at(PODS, "prod", store.revision)) == ["a", "c"]
    assert [one.name for one in store.commits_since(PODS, then)] == ["a", "b", "c"]
    store.compact()
    assert store.compacted == store.revision
    assert list(store.commits_since(PODS, then)) == []


def test_what_was_there_before_the_world_began_is_no_write() -> None:
    store, history = make_store()
    store.plant(at("a"), obj("a"))
    assert store.revision == FIRST_REVISION
    assert history.records == []
    assert store.get(at("a")) == {"metadata": {"name": "a", "resourceVersion": "1"}}
    assert store.count(PODS) == 1
    assert store.count(STATEFULSETS) == 0


def test_listeners_hear_of_a_write_after_it_is_done() -> None:
    store, history = make_store()
    heard = []

    def hear(commit: Commit) -> None:
        heard.append((commit.revision, store.get(at("a")), history.records[-1] is commit))

    store.listeners.append(hear)
    stored = store.write(at("a"), obj("a"), SOMEONE)
    store.remove(at("a"), SOMEONE)
    assert heard == [(2, stored, True), (3, None, True)]
