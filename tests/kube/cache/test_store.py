"""What the cache keeps, finds, and reports (FP-07, FP-08, D-10, LI-02, SI-07, SI-09)."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.kube.store import Change, PodStore, StatefulSetStore, is_older
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from tests.examples import repeatable

LONG = "grafana.com/rollout-group"


def pod(name: str = "a-0", version: str = "1", *, uid: str = "", owner: str = "") -> Pod:
    return Pod(
        namespace="prod",
        name=name,
        uid=Uid(uid or f"uid-{name}"),
        resource_version=version,
        owner_uid=Uid(owner) if owner else None,
    )


def zone(name: str, version: str = "1", **labels: str) -> StatefulSet:
    return StatefulSet(
        namespace="prod",
        name=name,
        uid=Uid(f"uid-{name}"),
        resource_version=version,
        labels={key.replace("_", "-"): value for key, value in labels.items()},
    )


def unreadable(name: str, version: str = "1", *, owner: str = "", group: str = "") -> Unreadable:
    return Unreadable(
        kind="Pod",
        namespace="prod",
        name=name,
        uid=Uid(f"uid-{name}"),
        resource_version=version,
        owner_uid=Uid(owner) if owner else None,
        labels={"rollout-group": group} if group else {},
        error="status.phase: expected str, got int",
    )


def names(items: "object") -> set[str]:
    assert isinstance(items, tuple)
    return {item.name for item in items}


def held(store: PodStore) -> dict[str, Pod | Unreadable]:
    """Return what the store holds, by name; a test has the pods a-0 to a-2."""
    items = [store.get("prod", name) for name in ("a-0", "a-1", "a-2")]
    found = {item.name: item for item in items if item is not None}
    assert len(found) == len(store)
    return found


@pytest.mark.parametrize(
    ("version", "than", "answer"),
    [
        pytest.param("9", "10", True, id="numbers, not text"),
        pytest.param("10", "9", False, id="newer"),
        pytest.param("10", "10", False, id="same"),
        pytest.param("010", "10", False, id="leading zero"),
        pytest.param("0", "1", True, id="zero"),
        pytest.param("abc", "10", False, id="opaque: nothing is known"),
        pytest.param("1", "x10", False, id="opaque other side"),
        pytest.param("", "10", False, id="empty"),
        pytest.param("²", "10", False, id="digit that is no decimal"),
        pytest.param("٣", "10", False, id="decimal that is not ASCII"),
        pytest.param("1" * 5000, "2" * 5000, True, id="longer than int() reads"),
    ],
)
def test_versions_compare_only_where_both_are_decimal(
    version: str, than: str, answer: bool
) -> None:
    assert is_older(version, than) is answer


def item(text: str) -> Pod:
    """Return the pod of a text such as `a-0@5/one`: name, version and, where it matters, UID."""
    name, _, rest = text.partition("@")
    version, _, uid = rest.partition("/")
    return pod(name, version, uid=uid)


def shown(item: Pod | StatefulSet | Unreadable | None) -> str:
    if item is None:
        return ""
    uid = "" if item.uid == f"uid-{item.name}" else f"/{item.uid}"
    return f"{item.name}@{item.resource_version}{uid}"


def play(store: PodStore, steps: str) -> str:
    """Play steps, and return what the last has changed, as `old>new`.

    `+a-0@5` stores a pod, `-a-0@6` removes it, `=a-0@7,a-1@3` is a list of all.
    """
    changes: Sequence[Change[Pod | Unreadable]] = ()
    for step in steps.split():
        verb, rest = step[0], step[1:]
        if verb == "=":
            changes = store.replace_all([item(one) for one in rest.split(",") if one])
        else:
            changes = store.upsert(item(rest)) if verb == "+" else store.remove(item(rest))
    return " ".join(f"{shown(old)}>{shown(new)}" for old, new in changes)


@pytest.mark.parametrize(
    ("steps", "changes", "held"),
    [
        pytest.param("+a-0@1", ">a-0@1", "a-0@1", id="added"),
        pytest.param("+a-0@1 +a-0@2", "a-0@1>a-0@2", "a-0@2", id="modified"),
        pytest.param("+a-0@2 -a-0@3", "a-0@2>", "", id="deleted"),
        pytest.param("+a-0@5 +a-0@5", "", "a-0@5", id="FP-07 a duplicate"),
        pytest.param("+a-0@5 -a-0@6 -a-0@6", "", "", id="FP-07 a duplicate of a deletion"),
        pytest.param("+a-0@10 +a-0@9", "", "a-0@10", id="FP-07 an older event"),
        pytest.param("+a-0@100 +a-1@5", ">a-1@5", "a-0@100 a-1@5", id="objects are never compared"),
        # Opaque versions are taken in the order of their arrival.
        pytest.param("+a-0@z +a-0@b", "a-0@z>a-0@b", "a-0@b", id="opaque"),
        pytest.param("+a-0@z +a-0@b +a-0@b", "", "a-0@b", id="opaque duplicate"),
        pytest.param("+a-0@x -a-0@y +a-0@z", ">a-0@z", "a-0@z", id="opaque after a deletion"),
        pytest.param(
            "+a-0@5/one +a-0@9/two",
            "a-0@5/one> >a-0@9/two",
            "a-0@9/two",
            id="FP-07 recreated under the same name: a removal and an addition",
        ),
        pytest.param(
            "+a-0@9/two -a-0@7/one", "", "a-0@9/two", id="FP-07 a late deletion of the old UID"
        ),
        pytest.param("+a-0@5 -a-0@6 +a-0@4", "", "", id="FP-07 late event, older"),
        pytest.param("+a-0@5 -a-0@6 +a-0@5", "", "", id="FP-07 late event, the last state"),
        pytest.param("+a-0@5 -a-0@6 +a-0@6", "", "", id="FP-07 late event, of the deletion"),
        pytest.param(
            "+a-0@5/one +a-0@9/two +a-0@6/one", "", "a-0@9/two", id="FP-07 later than its successor"
        ),
        pytest.param(
            "+a-0@5/one +a-0@9/two -a-0@10/two +a-0@6/one",
            "",
            "",
            id="FP-07 a predecessor does not come back once its successor has gone",
        ),
        pytest.param(
            "+a-0@5/one -a-0@9/two",
            "a-0@5/one>",
            "",
            id="FP-07 the deletion of a successor never seen",
        ),
        pytest.param(
            "=a-0@1,a-1@2 =a-0@1,a-2@9",
            "a-1@2> >a-2@9",
            "a-0@1 a-2@9",
            id="FP-08 a list reports as removed what it lacks",
        ),
        pytest.param(
            "=a-0@5/one =a-0@9/two",
            "a-0@5/one> >a-0@9/two",
            "a-0@9/two",
            id="FP-07 a list after a gap shows both incarnations",
        ),
        pytest.param(
            "=a-0@90 =a-0@7", "a-0@90>a-0@7", "a-0@7", id="FP-05 an older list is the truth"
        ),
        pytest.param(
            "=a-0@90 =a-0@7 +a-0@8", "a-0@7>a-0@8", "a-0@8", id="FP-05 what follows it counts"
        ),
        pytest.param(
            "+a-0@90 -a-0@91 = +a-0@8",
            ">a-0@8",
            "a-0@8",
            id="FP-05 what was deleted before a restore exists again after it",
        ),
        pytest.param("=a-0@1 =a-0@1", "", "a-0@1", id="an unchanged list"),
    ],
)
def test_what_a_step_changes(steps: str, changes: str, held: str) -> None:
    store = PodStore()
    assert play(store, steps) == changes
    assert " ".join(sorted(shown(one) for one in store.list_all())) == held
    assert all(store.get(one.namespace, one.name) is one for one in store.list_all())
    assert len(store) == len(held.split())


def test_an_object_that_leaves_the_selection_may_come_back() -> None:
    # A label was taken away and set again: the watch says DELETED, then ADDED, with the same UID.
    store = StatefulSetStore()
    store.upsert(zone("a", "5", rollout_group="g"))
    store.remove(zone("a", "6"))
    back = zone("a", "7", rollout_group="g")
    assert store.upsert(back) == ((None, back),)
    assert store.remove(zone("a", "6")) == (), "that deletion was before"
    assert store.list_group(GroupName("g")) == (back,)


def test_memory_of_deletions_is_bounded() -> None:
    store = PodStore()
    for number in range(5000):
        store.remove(pod(f"a-{number}", "2"))
    assert store.upsert(pod("a-4999", "1")) == (), "a late event"
    assert store.upsert(pod("a-0", "1")) != (), "too long ago to be remembered"


def test_a_deletion_without_a_uid_hides_no_other_object() -> None:
    store = PodStore()
    store.remove(replace(unreadable("a-0", "9"), uid=Uid("")))
    other = replace(unreadable("a-1", "5"), uid=Uid(""))
    assert store.upsert(other) == ((None, other),)


def test_d10_pods_are_found_by_the_uid_of_their_owner() -> None:
    store = PodStore()
    store.replace_all([pod("a-0", owner="A"), pod("a-1", owner="A"), pod("b-0", owner="B")])
    store.upsert(pod("stray"))
    store.upsert(unreadable("a-2", owner="A"))
    assert names(store.list_by_owner(Uid("A"))) == {"a-0", "a-1", "a-2"}
    assert names(store.list_by_owner(Uid("B"))) == {"b-0"}
    assert store.list_by_owner(Uid("C")) == ()


def test_w01_a_pod_adopted_by_another_owner_moves() -> None:
    store = PodStore()
    store.upsert(pod(version="1", owner="A"))
    store.upsert(pod(version="2", owner="B"))
    assert store.list_by_owner(Uid("A")) == ()
    assert names(store.list_by_owner(Uid("B"))) == {"a-0"}
    store.upsert(pod(version="3"))
    assert store.list_by_owner(Uid("B")) == ()


def test_seed011_both_spellings_form_groups_and_the_short_one_wins() -> None:
    store = StatefulSetStore()
    both = replace(zone("c"), labels={"rollout-group": "x", LONG: "y"})
    store.replace_all([zone("a", rollout_group="x"), replace(zone("b"), labels={LONG: "x"}), both])
    assert names(store.list_group(GroupName("x"))) == {"a", "b", "c"}
    assert store.list_group(GroupName("y")) == ()


def test_a_set_that_moves_to_another_group_leaves_the_old_one() -> None:
    store = StatefulSetStore()
    store.upsert(zone("a", "1", rollout_group="x"))
    store.upsert(zone("a", "2", rollout_group="y"))
    assert names(store.list_group(GroupName("y"))) == {"a"}
    assert store.list_group(GroupName("x")) == ()
    store.remove(zone("a", "3"))
    assert store.list_group(GroupName("y")) == ()


def test_the_empty_group_is_a_group_and_no_label_is_none() -> None:
    store = StatefulSetStore()
    store.replace_all([zone("a", rollout_group=""), zone("b")])
    assert names(store.list_group(GroupName(""))) == {"a"}


def test_a_set_is_found_by_its_uid() -> None:
    store = StatefulSetStore()
    store.upsert(zone("a"))
    assert store.get_by_uid(Uid("uid-a")) == zone("a")
    assert store.get_by_uid(Uid("uid-b")) is None
    store.remove(zone("a", "2"))
    assert store.get_by_uid(Uid("uid-a")) is None


def test_si08_an_unreadable_set_stays_a_member_of_its_group() -> None:
    store = StatefulSetStore()
    broken = unreadable("a", "2", group="g")
    store.upsert(zone("a", "1", rollout_group="g"))
    assert store.upsert(broken) == ((zone("a", "1", rollout_group="g"), broken),)
    assert store.list_group(GroupName("g")) == (broken,)
    assert store.unreadable_count == 1
    store.upsert(zone("a", "3", rollout_group="g"))
    assert store.unreadable_count == 0


def test_unreadable_objects_are_forgotten_when_they_go() -> None:
    store = PodStore()
    store.replace_all([unreadable("a-0"), unreadable("a-1")])
    store.remove(unreadable("a-0", "2"))
    assert store.unreadable_count == 1
    store.replace_all([])
    assert store.unreadable_count == 0


def test_an_object_that_lost_even_its_uid_blocks_nothing_later() -> None:
    store = PodStore()
    nameless = replace(unreadable("a-0"), uid=Uid(""), resource_version="")
    good = pod(version="5")
    store.upsert(good)
    assert store.upsert(nameless) == ((good, None), (None, nameless))
    assert store.upsert(pod(version="6")) == ((nameless, None), (None, pod(version="6")))


EVENTS = st.lists(
    st.tuples(st.sampled_from(["a-0", "a-1"]), st.sampled_from(["A", "B", ""]), st.booleans()),
    max_size=12,
)


@repeatable()
@given(events=EVENTS)
def test_changes_say_exactly_what_the_store_holds(events: list[tuple[str, str, bool]]) -> None:
    """A replay of the changes ends with the content, and indexes never disagree with it."""
    store, replayed = PodStore(), dict[str, object]()
    for version, (name, owner, is_deletion) in enumerate(events, start=1):
        item = pod(name, str(version), owner=owner)
        for old, new in store.remove(item) if is_deletion else store.upsert(item):
            one = new or old
            assert one is not None
            assert replayed.pop(one.name, None) == old
            if new is not None:
                replayed[one.name] = new
    assert replayed == held(store)
    for uid in ("A", "B"):
        owned = {name for name, item in held(store).items() if item.owner_uid == uid}
        assert names(store.list_by_owner(Uid(uid))) == owned


HISTORY = [
    ("upsert", pod(version="1", uid="one")),
    ("upsert", pod(version="2", uid="one", owner="A")),
    ("remove", pod(version="3", uid="one", owner="A")),
    ("upsert", pod(version="4", uid="two")),
]


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_fp07_any_order_of_a_history_ends_without_a_ghost(order: tuple[int, ...]) -> None:
    store = PodStore()
    for index in order:
        verb, item = HISTORY[index]
        store.upsert(item) if verb == "upsert" else store.remove(item)
    assert held(store) == {"a-0": pod(version="4", uid="two")}


# What was read again takes the place of what could not be decoded


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(pod(version="5"), "a-0@5>a-0@5", id="LI-02 the same version, whole"),
        pytest.param(pod(version="9"), "a-0@5>a-0@9", id="LI-02 a newer version"),
        pytest.param(pod(version="9", uid="n"), "a-0@5> >a-0@9/n", id="SI-07 new"),
        pytest.param(None, "a-0@5>", id="LI-02 gone"),
        pytest.param(pod(version="4"), "", id="SI-09 an older version"),
        pytest.param(pod("a-1", version="9"), "", id="SI-07 another object"),
        pytest.param(unreadable("a-0", "5"), "", id="as it was"),
        pytest.param(unreadable("a-0", "6"), "a-0@5>a-0@6", id="unreadable still"),
    ],
)
def test_what_was_read_again_takes_the_place_of_what_it_was_read_for(
    found: Pod | Unreadable | None, expected: str
) -> None:
    store, broken = PodStore(), unreadable("a-0", "5")
    store.upsert(broken)
    changes = store.heal(broken, found)
    assert " ".join(f"{shown(old)}>{shown(new)}" for old, new in changes) == expected
    assert store.unreadable_count == (not expected or isinstance(found, Unreadable))


def test_si09_what_was_stored_since_the_read_began_stays() -> None:
    store, broken = PodStore(), unreadable("a-0", "5")
    store.upsert(broken)
    store.upsert(pod(version="6"))
    assert store.heal(broken, pod(version="9")) == ()
    assert store.heal(broken, None) == ()
    store.remove(pod(version="7"))
    assert store.heal(broken, pod(version="9")) == ()
    assert len(store) == 0
