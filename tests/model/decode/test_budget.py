"""How budgets are read, and the words in which they are refused (T-09, ZPDB-10 to ZPDB-27)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.store import decides
from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.decode.custom import decode_budget, parse_budget
from rollout_operator.model.names import ABSENT_PEERS, DecodeError, InvalidInput, Uid
from rollout_operator.model.objects import selects
from tests.model.budget_trees import LABELS, REGEX, TWO_GROUPS, as_json, budget_tree, with_head

REGEX_BAD = "invalid value: regex is not valid, got "
SELECTOR_BAD = "invalid value: selector is not valid, got "
ODD_NUMBERS: tuple[Any, ...] = ("1", 1.0, 1.5, True, [1], {}, 2**63, -(2**63) - 1)
INVALID = "invalid value: "
NO_VALUE = "failed to extract value from config field "
MAX, SHARE, DELAY = "maxUnavailable", "maxUnavailablePercentage", "crossZoneEvictionDelay"
REGEXES, GROUP = "podNamePartitionRegex", "podNameRegexGroup"


def parse(**spec: Any) -> Budget:
    return parse_budget(as_json(budget_tree(**spec)))


def refusal(tree: Any) -> str:
    """Return why a budget is refused, the same by both doors."""
    with pytest.raises(InvalidInput) as refused:
        parse_budget(as_json(tree))
    found = decode_budget(as_json(tree))
    assert isinstance(found, FlawedBudget)
    assert found.problem == str(refused.value)
    return found.problem


def test_a_budget_is_read_whole() -> None:
    spec: dict[str, Any] = {
        "maxUnavailable": 3,
        "podNamePartitionRegex": TWO_GROUPS,
        "podNameRegexGroup": 2,
        DELAY: "20m",
    }
    tree = with_head(budget_tree(**spec), generation=4, annotations={ABSENT_PEERS: "gone"})
    budget = decode_budget(as_json(tree))
    assert budget == Budget(
        namespace="prod",
        name="ingester",
        uid=Uid("uid-ingester"),
        resource_version="7",
        generation=4,
        selector=LABELS,
        max_unavailable=3,
        pattern=TWO_GROUPS,
        pattern_group=2,
        delay=timedelta(minutes=20),
        forgives_absent_peers=True,
    )
    assert budget.by_partition
    assert parse_budget(as_json(tree)) == decode_budget(msgspec.Raw(as_json(tree)))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (1, None), id="T-09 neither max field"),
        pytest.param({"maxUnavailable": 0}, (0, None), id="T-09 maxUnavailable 0"),
        pytest.param({"maxUnavailable": 1}, (1, None), id="T-09 maxUnavailable 1"),
        pytest.param({"maxUnavailable": 2**63 - 1}, (2**63 - 1, None), id="the largest number"),
        pytest.param({"maxUnavailablePercentage": 0}, (0, 0), id="T-09 percentage 0 ZPDB-26"),
        pytest.param({"maxUnavailablePercentage": 100}, (0, 100), id="T-09 percentage 100"),
        pytest.param(
            {"maxUnavailablePercentage": 0, "podNamePartitionRegex": REGEX},
            (0, 0),
            id="ZPDB-22 nothing of a partition",
        ),
    ],
)
def test_t09_how_many_may_be_gone(spec: dict[str, Any], expected: tuple[int, int | None]) -> None:
    budget = parse(**spec)
    assert (budget.max_unavailable, budget.percentage) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("20m", timedelta(minutes=20), id="T-09 20m"),
        pytest.param("1h30m", timedelta(minutes=90), id="T-09 1h30m"),
        pytest.param("0s", timedelta(0), id="T-09 0s"),
        pytest.param(None, timedelta(0), id="T-09 absent"),
        pytest.param("", timedelta(0), id="ZPDB-24 empty"),
        pytest.param("-0s", timedelta(0), id="ZPDB-20 no less than nothing"),
    ],
)
def test_t09_delays(text: str | None, expected: timedelta) -> None:
    assert parse(podNamePartitionRegex=REGEX, **{DELAY: text}).delay == expected


def test_zpdb_24_no_delay_needs_no_pattern_and_an_empty_pattern_is_none() -> None:
    budget = parse(podNamePartitionRegex="", podNameRegexGroup="none", **{DELAY: "0s"})
    assert (budget.by_partition, budget.pattern_group) == (False, 1)


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        pytest.param({"podNamePartitionRegex": REGEX}, 1, id="T-09 one group, no number"),
        pytest.param({"podNamePartitionRegex": TWO_GROUPS, "podNameRegexGroup": 2}, 2, id="second"),
        pytest.param({"podNamePartitionRegex": "a|(b)"}, 1, id="W-28 an alternation is grouped"),
        pytest.param({"podNamePartitionRegex": "(a+)+$"}, 1, id="SEC-16 harmless to RE2"),
    ],
)
def test_zpdb_23_patterns(spec: dict[str, Any], group: int) -> None:
    budget = parse(**spec)
    assert (budget.pattern, budget.pattern_group) == (spec["podNamePartitionRegex"], group)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {MAX: 1, SHARE: "x"}, f"{INVALID}only one of {MAX} or {SHARE} may be set", id="ZPDB-12"
        ),
        *(
            pytest.param({MAX: value}, f"{NO_VALUE}{MAX}", id=f"ZPDB-13 {value!r}")
            for value in ODD_NUMBERS
        ),
        pytest.param({SHARE: "50%"}, f"{NO_VALUE}{SHARE}", id="ZPDB-13 percentage"),
        pytest.param({MAX: -1}, f"{INVALID}max unavailable must be 0 <= val, got -1", id="ZPDB-14"),
        *(
            pytest.param(
                {SHARE: share},
                f"{INVALID}max unavailable percentage must be 0 <= val <= 100, got {share}",
                id=f"T-09 ZPDB-15 {share}",
            )
            for share in (-1, 101)
        ),
        pytest.param({REGEXES: "([bad_regex"}, f"{REGEX_BAD}missing ]: [bad_regex", id="ZPDB-16"),
        pytest.param(
            {REGEXES: 1},
            f"{REGEX_BAD}failed to extract regex value from config field {REGEXES}",
            id="ZPDB-23 not a string",
        ),
        pytest.param(
            {REGEXES: "([bad", GROUP: "1"},
            f"{REGEX_BAD}failed to extract group value from config field {GROUP}",
            id="ZPDB-23 group not an integer, found first",
        ),
        pytest.param(
            {REGEXES: "ingester-zone-[a-z]-[0-9]+"},
            f"{REGEX_BAD}regular expression requires at least one subexpression",
            id="T-09 no group",
        ),
        pytest.param(
            {REGEXES: TWO_GROUPS},
            f"{REGEX_BAD}regular expression has multiple subexpressions and requires"
            f" {GROUP} to be set",
            id="T-09 two groups",
        ),
        *(
            pytest.param(
                {REGEXES: TWO_GROUPS, GROUP: group},
                f"{REGEX_BAD}regular expression subexpression index out of range",
                id=f"T-09 group {group}",
            )
            for group in (10, 3, 0, -1)
        ),
        pytest.param(
            {REGEXES: "x" * 1025},
            f"{REGEX_BAD}pattern of 1025 bytes is longer than 1024",
            id="SEC-16",
        ),
        pytest.param({"selector": None}, f"{INVALID}selector is not found", id="ZPDB-17"),
        pytest.param({"selector": {}}, f"{INVALID}selector is not found", id="ZPDB-17 empty"),
        pytest.param(
            {"selector": "app=x"},
            f'{SELECTOR_BAD}.selector accessor error: "app=x" is of the type string, expected'
            " map[string]interface{}",
            id="ZPDB-17 a text",
        ),
        pytest.param(
            {"selector": {"matchLabels": {"app": 1}}},
            f"{SELECTOR_BAD}.selector.matchLabels accessor error: contains non-string value in the"
            ' map under key "app": 1 is of the type int64, expected string',
            id="ZPDB-17 a number",
        ),
        pytest.param({DELAY: 20}, f"{NO_VALUE}{DELAY}", id="ZPDB-18"),
        pytest.param(
            {DELAY: "notaduration", REGEXES: REGEX},
            f'{INVALID}{DELAY} is not a valid duration, got time: invalid duration "notaduration"',
            id="T-09 ZPDB-19",
        ),
        pytest.param({DELAY: "-5m"}, f"{INVALID}{DELAY} must be >= 0, got -5m0s", id="ZPDB-20"),
        pytest.param({DELAY: "20m"}, f"{INVALID}{DELAY} requires {REGEXES} to be set",
            id="ZPDB-21"),
        pytest.param(
            {SHARE: 50, REGEXES: REGEX},
            f"{INVALID}max unavailable percentage can not be used with partition awareness",
            id="T-09 ZPDB-22",
        ),
    ],
)  # fmt: skip
def test_t09_what_is_refused(spec: dict[str, Any], message: str) -> None:
    assert refusal(budget_tree(**spec)) == message


def test_zpdb_10_to_22_the_first_error_wins() -> None:
    """Everything is wrong; mended one by one, the reasons come in the order of the table."""
    whole = budget_tree()
    spec: dict[str, Any] = {
        "maxUnavailable": "x", "maxUnavailablePercentage": 101, "podNamePartitionRegex": "[",
        "selector": 1, DELAY: 5,
    }  # fmt: skip
    steps: list[dict[str, Any]] = [{**whole, "kind": "Foo", "spec": spec}]
    del steps[0]["spec"]
    steps.append({**whole, "kind": "Foo", "spec": spec})
    for mended in (
        {},
        {"maxUnavailable": None},
        {"maxUnavailablePercentage": 50},
        {"podNamePartitionRegex": REGEX},
        {"selector": {"matchLabels": LABELS}},
        {DELAY: "x"},
        {DELAY: "-1s"},
        {DELAY: "1s"},
    ):
        spec = {key: value for key, value in {**spec, **mended}.items() if value is not None}
        steps.append({**whole, "spec": spec})
    message = []
    for tree in steps:
        with pytest.raises(InvalidInput) as refused:
            parse_budget(as_json(tree))
        message.append(str(refused.value))
    assert [text.removeprefix("invalid value: ")[:24] for text in message] == [
        "no spec found in unstruc",
        "unexpected object kind -",
        "only one of maxUnavailab",
        "max unavailable percenta",
        "regex is not valid, got ",
        "selector is not valid, g",
        "failed to extract value ",
        "crossZoneEvictionDelay i",
        "crossZoneEvictionDelay m",
        "max unavailable percenta",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"kind": "Foo"}, "unexpected object kind - expecting"
                     " ZoneAwarePodDisruptionBudget", id="T-09 ZPDB-11"),
        pytest.param({"spec": {}}, "invalid value: selector is not found", id="T-09 empty spec"),
        pytest.param({"spec": [1]}, ".spec accessor error: [1] is of the type []interface {},"
                     " expected map[string]interface{}", id="ZPDB-10 a list"),
        pytest.param({"spec": None}, ".spec accessor error: null is of the type <nil>, expected"
                     " map[string]interface{}", id="ZPDB-10 null"),
    ],
)  # fmt: skip
def test_t09_objects_that_are_none(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_budget(as_json({**budget_tree(), **change}))
    assert str(refused.value) == message


@pytest.mark.parametrize("raw", [b"", b"null", b"  null "])
def test_zval_02_no_object(raw: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^unexpected end of JSON input$"):
        parse_budget(raw)


def test_zpdb_27_empty_labels_select_everything() -> None:
    budget = parse(selector={"matchLabels": {}})
    assert selects(budget.selector, {})
    assert selects(budget.selector, {"any": "thing"})


def test_zpdb_02_match_expressions_are_none_of_it() -> None:
    expressions = [{"key": "rollout-group", "operator": "DoesNotExist"}]
    selector = {"matchLabels": LABELS, "matchExpressions": expressions}
    assert parse(selector=selector).selector == LABELS


def test_zpdb_27_metadata_is_not_judged_under_review() -> None:
    tree = {**budget_tree(), "apiVersion": "x/v9", "metadata": {"name": 1, "generation": "2"}}
    assert parse_budget(as_json(tree)) == Budget(
        namespace="", name="", uid=Uid(""), resource_version="", selector=LABELS
    )


@pytest.mark.parametrize("missing", ["name", "namespace", "uid", "resourceVersion"])
def test_an_object_without_identity_is_unreadable(missing: str) -> None:
    with pytest.raises(DecodeError, match=missing):
        decode_budget(as_json(with_head(budget_tree(), **{missing: None})))


@pytest.mark.parametrize(
    ("spec", "selector"),
    [
        pytest.param({"maxUnavailable": -1}, LABELS, id="something else is wrong"),
        pytest.param({"selector": None}, None, id="no selector"),
        pytest.param({"selector": {"matchLabels": {"a": 1}}}, None, id="a bad selector"),
    ],
)
def test_w52_what_a_flawed_budget_selects_is_known(
    spec: dict[str, Any], selector: dict[str, str] | None
) -> None:
    tree = with_head(budget_tree(**spec), generation=3)
    found = decode_budget(as_json(tree))
    assert isinstance(found, FlawedBudget)
    assert (found.namespace, found.name, found.uid) == ("prod", "ingester", "uid-ingester")
    assert (found.resource_version, found.generation, found.selector) == ("7", 3, selector)


@pytest.mark.parametrize(
    ("value", "forgives"), [("gone", True), ("unknown", False), ("Gone", False), (None, False)]
)
def test_w41_absent_peers(value: str | None, forgives: bool) -> None:
    annotations = {} if value is None else {ABSENT_PEERS: value}
    budget = decode_budget(as_json(with_head(budget_tree(), annotations=annotations)))
    assert isinstance(budget, Budget)
    assert budget.forgives_absent_peers is forgives
    assert decides(budget, msgspec.structs.replace(budget, forgives_absent_peers=not forgives))
    assert not decides(budget, msgspec.structs.replace(budget, resource_version="8"))


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_FIELDS = st.sampled_from(
    ["maxUnavailable", "maxUnavailablePercentage", "podNamePartitionRegex", "podNameRegexGroup",
     DELAY, "selector"]
)  # fmt: skip


@given(st.dictionaries(_FIELDS, _JSON) | _JSON)
def test_fp_40_whatever_is_written_is_read_or_named(spec: Any) -> None:
    found = decode_budget(as_json({**budget_tree(), "spec": spec}))
    assert isinstance(found, Budget) or found.problem
