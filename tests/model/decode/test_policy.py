"""How a MultiAZRollout is read, and all for which it is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rollout_operator.model.decode.custom import decode_policy
from rollout_operator.model.decode.wire import show_value
from rollout_operator.model.names import DecodeError, Uid
from rollout_operator.model.objects import LabelSelector, SelectorTerm
from rollout_operator.model.policy import PodOrder, Policy, PolicyHead, RefusedPolicy
from rollout_operator.model.units import IntOrPercent
from tests.model.policy_trees import policy_tree

HEAD = PolicyHead(
    namespace="prod",
    name="db",
    uid=Uid("uid-db"),
    generation=2,
    created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
)
DB = LabelSelector(labels={"app": "db"})
LONG = show_value("z" * 254)
NO_COUNT = "is neither an integer from 1 to 999999999 nor a share from 1% to 100%"


def read(tree: Any) -> Policy:
    policy = decode_policy(msgspec.json.encode(tree))
    assert isinstance(policy, Policy)
    return policy


def refusals(tree: Any) -> list[tuple[str, str]]:
    """Return code and sentence of each refusal, without the name of the policy."""
    policy = decode_policy(msgspec.json.encode(tree))
    assert isinstance(policy, RefusedPolicy)
    assert policy.head == HEAD
    found = [(one.code.value, one.text) for one in policy.refusals]
    prefix = "MultiAZRollout prod/db: "
    assert all(one.text.startswith(f"{prefix}{one.field}: ") for one in policy.refusals)
    return [(code, text.removeprefix(prefix)) for code, text in found]


def test_every_field_has_its_default() -> None:
    """MAZ-06 to MAZ-11: what is left out, and what is null."""
    defaults = Policy(
        head=HEAD,
        selector=DB,
        max_unavailable=IntOrPercent(1),
        interval=timedelta(seconds=30),
        pod_order=PodOrder.DESCENDING,
        topology_key="topology.kubernetes.io/zone",
        zone_order=(),
        is_paused=False,
        may_switch_strategy=False,
        progress_deadline=timedelta(seconds=600),
    )
    assert read(policy_tree()) == defaults
    assert read(policy_tree(rolling={})) == defaults
    tree = policy_tree(rolling={"maxUnavailable": None, "podOrder": None})
    tree["spec"] |= {"azOrder": None, "namespace": None, "paused": None}
    assert read(tree) == defaults


def test_a_policy_is_read_whole() -> None:
    """MAZ-04 to MAZ-11."""
    selector = {
        "matchLabels": {"app": "db"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "example.com/old", "operator": "DoesNotExist"},
        ],
    }
    rolling = {
        "maxUnavailable": "25%",
        "intervalSeconds": 0,
        "podOrder": "Ascending",
        "azTopologyKey": "example.com/rack",
    }
    tree = policy_tree(
        statefulSetSelector=selector,
        rolling=rolling,
        azOrder=["us-west-2b", "us-west-2a"],
        namespace="prod",
        paused=True,
        manageUpdateStrategy=True,
        progressDeadlineSeconds=30,
    )
    tree["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:06Z"

    assert read(tree) == Policy(
        head=msgspec.structs.replace(HEAD, is_terminating=True),
        selector=LabelSelector(
            labels={"app": "db"},
            terms=(
                SelectorTerm(key="tier", operator="In", values=("a", "b")),
                SelectorTerm(key="example.com/old", operator="DoesNotExist"),
            ),
        ),
        max_unavailable=IntOrPercent(25, is_percent=True),
        interval=timedelta(0),
        pod_order=PodOrder.ASCENDING,
        topology_key="example.com/rack",
        zone_order=("us-west-2b", "us-west-2a"),
        is_paused=True,
        may_switch_strategy=True,
        progress_deadline=timedelta(seconds=30),
    )


def test_what_is_just_permitted() -> None:
    """MAZ-07, MAZ-10, MAZ-11: the last values that are; an empty namespace is none."""
    zones = [f"{number:0253}" for number in range(64)]
    policy = read(
        policy_tree(
            azOrder=zones,
            namespace="",
            rolling={"intervalSeconds": 86400},
            progressDeadlineSeconds=2**31 - 1,
        )
    )

    assert policy.zone_order == tuple(zones)
    assert policy.interval == timedelta(days=1)
    assert policy.progress_deadline == timedelta(seconds=2**31 - 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, IntOrPercent(1)),
        (999999999, IntOrPercent(999999999)),
        ("0999999999", IntOrPercent(999999999)),
        ("3", IntOrPercent(3)),
        ("1%", IntOrPercent(1, is_percent=True)),
        ("100%", IntOrPercent(100, is_percent=True)),
    ],
)
def test_how_many_may_be_unavailable(value: Any, expected: IntOrPercent) -> None:
    """MAZ-06."""
    assert read(policy_tree(rolling={"maxUnavailable": value})).max_unavailable == expected


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.5, True, [1], "0", "0%", "101%", "-1", "abc", "1.5", "", "%", " 1", "+1", "1_0",
     "٣", "5 %", 2**63, 99999999999, "99999999999", 10**9, "01000000000", "99999999999%"],
)  # fmt: skip
def test_what_is_no_number_of_pods_is_refused(value: Any) -> None:
    """MT-27."""
    tree = policy_tree(rolling={"maxUnavailable": value})

    [(code, text)] = refusals(tree)

    assert code == "InvalidSpec"
    assert text.startswith("spec.rollingUpdate.maxUnavailable: ")
    assert text.endswith(NO_COUNT)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param(
            policy_tree(namespace="other"),
            ("NamespaceMismatch",
             'spec.namespace: "other" is not the namespace of the policy, "prod"'),
            id="MT-60 MAZ-10",
        ),
        pytest.param(
            policy_tree(statefulSetSelector={}),
            ("EmptySelector", "spec.statefulSetSelector: an empty selector takes every"
             " StatefulSet of the namespace"),
            id="MT-61 MAZ-04",
        ),
        pytest.param(
            policy_tree(statefulSetSelector={"matchLabels": {}, "matchExpressions": []}),
            ("EmptySelector", "spec.statefulSetSelector: an empty selector takes every"
             " StatefulSet of the namespace"),
            id="MT-61 nothing in either",
        ),
        pytest.param(
            policy_tree(statefulSetSelector=None),
            ("InvalidSpec", "spec.statefulSetSelector: it is required"),
            id="MAZ-04 no selector",
        ),
        pytest.param(
            {**policy_tree(), "spec": None},
            ("InvalidSpec", "spec.statefulSetSelector: it is required"),
            id="MAZ-04 no spec",
        ),
        pytest.param(
            {**policy_tree(), "spec": "x" * 5000},
            ("InvalidSpec", 'spec: "(5002 bytes, more than 4096 are not read)" is no object'),
            id="MAZ-23 a spec of another type",
        ),
        pytest.param(
            policy_tree(azOrder=["a", "b", "a"]),
            ("InvalidSpec", 'spec.azOrder[2]: "a" is in the list before'),
            id="MT-24 MAZ-10",
        ),
        pytest.param(
            policy_tree(azOrder=["a", ""]),
            ("InvalidSpec", 'spec.azOrder[1]: "" is no name of a zone'),
            id="MAZ-10 an empty zone",
        ),
        pytest.param(
            policy_tree(azOrder=["z" * 254]),
            ("InvalidSpec", f"spec.azOrder[0]: {LONG} has 254 characters, at most 253"),
            id="MAZ-10 no zone has so long a name",
        ),
        pytest.param(
            policy_tree(azOrder=[f"{number}" for number in range(65)]),
            ("InvalidSpec", "spec.azOrder: it has 65 zones, at most 64"),
            id="MAZ-10 too many zones",
        ),
        pytest.param(
            policy_tree(azOrder="a"), ("InvalidSpec", 'spec.azOrder: "a" is no list'),
            id="MAZ-10 no list",
        ),
        pytest.param(
            policy_tree(rolling={"intervalSeconds": -1}),
            ("InvalidSpec",
             "spec.rollingUpdate.intervalSeconds: -1 is no integer from 0 to 86400"),
            id="MAZ-07 too short",
        ),
        pytest.param(
            policy_tree(rolling={"intervalSeconds": True}),
            ("InvalidSpec",
             "spec.rollingUpdate.intervalSeconds: true is no integer from 0 to 86400"),
            id="MAZ-07 no number",
        ),
        pytest.param(
            policy_tree(rolling={"intervalSeconds": 86401}),
            ("InvalidSpec",
             "spec.rollingUpdate.intervalSeconds: 86401 is no integer from 0 to 86400"),
            id="MAZ-07 too long",
        ),
        pytest.param(
            policy_tree(rolling={"podOrder": "descending"}),
            ("InvalidSpec", 'spec.rollingUpdate.podOrder: "descending" is neither Descending nor'
             " Ascending"),
            id="MAZ-08",
        ),
        pytest.param(
            policy_tree(rolling={"azTopologyKey": "a/b/c"}),
            ("InvalidSpec", 'spec.rollingUpdate.azTopologyKey: "a/b/c" is no name of a label'),
            id="MAZ-09",
        ),
        pytest.param(
            policy_tree(rolling=3), ("InvalidSpec", "spec.rollingUpdate: 3 is no object"),
            id="MAZ-05",
        ),
        pytest.param(
            policy_tree(paused="true"),
            ("InvalidSpec", 'spec.paused: "true" is neither true nor false'),
            id="MAZ-11 paused",
        ),
        pytest.param(
            policy_tree(progressDeadlineSeconds=29),
            ("InvalidSpec",
             "spec.progressDeadlineSeconds: 29 is no integer from 30 to 2147483647"),
            id="MAZ-11 a short deadline",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(tree: Any, expected: tuple[str, str]) -> None:
    """MAZ-23: as the schema refuses it, with object, field and value."""
    assert refusals(tree) == [expected]


def _term(**fields: Any) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "app", **fields}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": 1}}, ".matchLabels: expected str, got int"),
        ({"matchLabels": {"a b": "c"}}, '.matchLabels: "a b" is no name of a label'),
        ({"matchLabels": {"app": "a/b"}}, '.matchLabels[app]: "a/b" is no value of a label'),
        (_term(), ".matchExpressions[0]: object missing required field operator"),
        (_term(operator="Is"),
         '.matchExpressions[0].operator: "Is" is not In, NotIn, Exists or DoesNotExist'),
        (_term(operator="In"), ".matchExpressions[0].values: In needs a value"),
        (_term(operator="In", values=["a"] * 65),
         ".matchExpressions[0].values: it has 65 items, at most 64"),
        ({"matchExpressions": _term(operator="Exists")["matchExpressions"] * 65},
         ".matchExpressions: it has 65 items, at most 64"),
        ({"matchLabels": {f"l{one}": "" for one in range(65)}},
         ".matchLabels: it has 65 items, at most 64"),
        (_term(operator="Exists", values=["a"]),
         ".matchExpressions[0].values: Exists takes no value"),
        (_term(operator="NotIn", values=["-"]),
         '.matchExpressions[0].values: "-" is no value of a label'),
        ([], ": [] is no object"),
    ],
)  # fmt: skip
def test_a_selector_is_read_as_the_api_reads_its_own(selector: Any, expected: str) -> None:
    """MAZ-04: one that is not understood would select every StatefulSet, or none."""
    tree = policy_tree(statefulSetSelector=selector)

    assert refusals(tree) == [("InvalidSpec", f"spec.statefulSetSelector{expected}")]


def test_all_that_is_wrong_is_reported_at_once() -> None:
    """MAZ-23: in the order of the fields."""
    tree = policy_tree(
        statefulSetSelector={}, rolling={"maxUnavailable": 0}, paused=1, namespace="x"
    )

    codes = [code for code, _ in refusals(tree)]

    assert codes == ["EmptySelector", "InvalidSpec", "InvalidSpec", "NamespaceMismatch"]


def test_a_policy_without_a_name_cannot_be_distinguished_from_others() -> None:
    tree = policy_tree()
    del tree["metadata"]["uid"]

    with pytest.raises(DecodeError, match=r"MultiAZRollout prod/db: metadata: .*uid"):
        decode_policy(msgspec.json.encode(tree))


@pytest.mark.parametrize("field", ["azOrder", "statefulSetSelector", "rollingUpdate", "paused"])
def test_a_field_without_end_is_refused_unread(field: str) -> None:
    """MAZ-23: what any tenant may write costs neither time nor memory."""
    tree = policy_tree()
    tree["spec"][field] = ["x" * 50] * 20_000

    [(code, text)] = refusals(tree)

    assert code == "InvalidSpec"
    assert len(text) < 200
