"""Which policy owns which StatefulSets, and which one is out of service."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import (
    LEFT_OUT,
    LabelSelector,
    SelectorTerm,
    StatefulSet,
    Unreadable,
)
from rollout_operator.model.policy import (
    PolicyOwnership,
    PolicyRefusal,
    PolicyRefusalCode,
    RefusedPolicy,
)
from rollout_operator.planning.policy_zones import share_sets
from tests.planning.policies.snapshots import policy

SELECTOR = "spec.statefulSetSelector"
INGESTER = LabelSelector(labels={"rollout-group": "ingester"})


def sts(name: str, *, namespace: str = "prod", **fields: Any) -> StatefulSet:
    given = {"labels": {"app": "db"}, **fields}
    return StatefulSet(
        namespace=namespace,
        name=name,
        uid=Uid(f"{namespace}/{name}"),
        resource_version="1",
        **given,
    )


def lost(name: str, **labels: str) -> Unreadable:
    return Unreadable(
        kind="StatefulSet", namespace="prod", name=name, uid=Uid(f"prod/{name}"),
        resource_version="1", labels=labels, error="StatefulSet: spec.replicas: x",
    )  # fmt: skip


def member(name: str, group: str = "ingester", **labels: str) -> StatefulSet:
    return sts(name, labels={"rollout-group": group, **labels})


def owned(found: PolicyOwnership) -> dict[str, list[str]]:
    return {one.policy.head.name: [sts.name for sts in one.sets] for one in found.scopes}


def refused(found: PolicyOwnership) -> dict[str, list[tuple[str, str]]]:
    """Return code and problem of each refusal by policy."""
    problems: dict[str, list[tuple[str, str]]] = {}
    for one in found.refused:
        prefix = f"MultiAZRollout {one.head.key}: {SELECTOR}: "
        each = [(each.code.value, each.text.removeprefix(prefix)) for each in one.refusals]
        problems[one.head.name] = each
    return problems


def test_a_policy_owns_what_it_selects() -> None:
    """MAZ-02, MAZ-24, MAZ-25: of its own namespace, by name, also without any group."""
    sets = [sts("b"), sts("a"), sts("c", labels={"app": "x"}), sts("d", namespace="other")]
    found = share_sets([policy()], sets)

    assert owned(found) == {"db": ["a", "b"]}
    assert (found.scopes[0].groups, found.refused) == (frozenset(), ())


def test_the_older_of_two_works() -> None:
    """MT-62, MAZ-24: the younger one is out of service as a whole, also for what it has alone."""
    old = policy("z-old", age=2)
    young = policy("a-young", age=1, selector=LabelSelector(
        terms=(SelectorTerm(key="app", operator="Exists"),)
    ))  # fmt: skip
    sets = [sts("a"), sts("b"), sts("c", labels={"app": "x"})]
    found = share_sets([young, old], sets)

    assert owned(found) == {"z-old": ["a", "b"]}
    assert refused(found) == {"a-young": [(
        "Conflict",
        "StatefulSets of the older MultiAZRollout prod/z-old are selected: a and b",
    )]}  # fmt: skip
    assert owned(share_sets([young], sets)) == {"a-young": ["a", "b", "c"]}


def test_of_two_of_one_age_the_name_decides() -> None:
    """MAZ-24."""
    ageless = policy("0")
    ageless = replace(ageless, head=replace(ageless.head, created=None))
    found = share_sets([ageless, policy("b"), policy("a")], [sts("x")])

    assert owned(found) == {"a": ["x"]}
    assert list(refused(found)) == ["b", "0"]


def test_a_policy_out_of_service_stands_in_no_way() -> None:
    """MAZ-24: only one that is accepted owns anything: none refused, split or in conflict."""
    reason = PolicyRefusal(code=PolicyRefusalCode.INVALID_SPEC, field="spec", text="x")
    broken = RefusedPolicy(head=policy("broken", age=9).head, refusals=(reason,))
    split = policy("split", age=8, selector=LabelSelector(labels={"half": "1"}))
    whole = policy("whole", age=7, selector=INGESTER)
    conflict = policy("conflict", age=6, selector=LabelSelector(
        terms=(SelectorTerm(key="half", operator="In", values=("1", "2")),)
    ))  # fmt: skip
    last = policy("last", age=5, selector=LabelSelector(labels={"half": "2"}))
    sets = [member("a", half="1"), member("b"), sts("c", labels={"half": "2"})]
    found = share_sets([last, conflict, whole, split, broken], sets)

    assert owned(found) == {"whole": ["a", "b"], "last": ["c"]}
    codes = {name: [code for code, _ in each] for name, each in refused(found).items()}
    assert codes == {
        "broken": ["InvalidSpec"],
        "split": ["RolloutGroupSplit"],
        "conflict": ["Conflict", "RolloutGroupSplit"],
    }


@pytest.mark.parametrize("label", ["rollout-group", GROUP_LABEL_LONG])
def test_a_policy_over_whole_groups_drives_them(label: str) -> None:
    """MT-63, MAZ-25: several of them, if it selects them."""
    sets = [sts(name, labels={"app": "db", label: name[0]}) for name in ("a1", "a2", "b1")]
    found = share_sets([policy()], sets)

    assert owned(found) == {"db": ["a1", "a2", "b1"]}
    assert [one.groups for one in found.scopes] == [{GroupName("a"), GroupName("b")}]


def test_half_a_group_stays_with_its_label() -> None:
    """MT-64, MAZ-25: a group of that name in another namespace is another group."""
    sets = [member("a", app="db"), member("b"), member("c", app="db")]
    found = share_sets([policy()], [*sets, lost("d", **{"rollout-group": "ingester"})])

    assert refused(found) == {"db": [(
        "RolloutGroupSplit",
        'of the rollout group "ingester", a and c would be selected, and b and d would not; the'
        " group goes on by its label",
    )]}  # fmt: skip
    assert found.scopes == ()
    away = sts("z", namespace="other", labels={"rollout-group": "ingester"})
    assert owned(share_sets([policy(selector=INGESTER)], [*sets, away])) == {"db": ["a", "b", "c"]}


def test_without_sets_a_policy_is_idle() -> None:
    """MAZ-28: those that are being deleted are left out, as members of a group as well."""
    gone = sts("a", is_terminating=True)
    assert owned(share_sets([policy()], [gone])) == {"db": []}

    old = sts("b", is_terminating=True, labels={"rollout-group": "ingester"})
    found = share_sets([policy()], [old, member("c", app="db")])
    assert owned(found) == {"db": ["c"]}


def test_a_policy_that_is_being_deleted_owns_nothing() -> None:
    """MAZ-24."""
    old = policy("old", age=1)
    leaving = replace(old, head=replace(old.head, is_terminating=True))
    found = share_sets([leaving, policy("new")], [sts("a")])

    assert (owned(found), refused(found)) == ({"new": ["a"]}, {})


def test_a_set_that_cannot_be_read_is_owned_by_its_labels() -> None:
    """MAZ-25: the policy knows of it, and can wait for it."""
    found = share_sets([policy()], [sts("a"), lost("b", app="db")])

    assert owned(found) == {"db": ["a", "b"]}


def test_a_set_of_too_many_labels_is_neither_taken_nor_overlooked() -> None:
    """D-68: where the labels that are kept leave it open, the policy waits for a person."""
    many = member("many", **{LEFT_OUT: ""})

    assert refused(share_sets([policy()], [many])) == {"db": [(
        "SelectionUnknown", "many: too many labels to know whether the policy selects it",
    )]}  # fmt: skip
    assert owned(share_sets([policy(selector=INGESTER)], [many])) == {"db": ["many"]}
    either = LabelSelector(terms=(SelectorTerm(key="app", operator="Exists"),))
    assert list(refused(share_sets([policy(selector=either)], [many]))) == ["db"]
    elsewhere = LabelSelector(
        labels={"app": "db"},
        terms=(SelectorTerm(key="rollout-group", operator="DoesNotExist"),),
    )
    assert owned(share_sets([policy(selector=elsewhere)], [many])) == {"db": []}


def test_li_09_hundreds_of_policies_over_all_groups_take_no_time_from_others() -> None:
    """A tenant may write them, and each change of a label has them shared anew."""
    every = LabelSelector(terms=(SelectorTerm(key="rollout-group", operator="Exists"),))
    sets = [member(f"db-{number}", f"group-{number}") for number in range(300)]
    policies = [policy(f"db-{number}", age=number, selector=every) for number in range(200)]
    begin = time.process_time()
    found = share_sets(policies, sets)
    assert time.process_time() - begin < 1
    assert (len(found.scopes), len(found.refused)) == (1, 199)
