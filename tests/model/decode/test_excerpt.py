"""What is built of a large body: nothing but what is read (D-50, D-68)."""

import json
import re
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest

from rollout_operator.gates.model import parse_spec
from rollout_operator.model.decode import review as decode_review
from rollout_operator.model.decode.custom import decode_budget, parse_budget
from rollout_operator.model.decode.review import is_dry_run
from rollout_operator.model.decode.wire import LONGEST_VALUE, OBJECT, REVIEW, SMALL
from rollout_operator.model.names import ABSENT_PEERS, DecodeError, InvalidInput
from rollout_operator.model.scaling import Review, Unusable
from tests.hostile_bodies import WALKS, list_hostile_bodies
from tests.model.budget_trees import REGEX, budget_tree
from tests.model.review_trees import review_tree, set_tree
from tests.model.wire_trees import as_json, with_metadata

MIB = 1 << 20
# The tree of 64 KiB of lists inside of lists, as it may also come in a small body.
TREE = 4 * MIB
PAD = {"managedFields": ["x" * 1000] * 100}


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def read_all(body: bytes) -> None:
    """Read all that any hook reads of a body."""
    try:
        review = decode_review.decode_review(body)
    except DecodeError:
        return
    is_dry_run(review.body)
    for parse in (parse_budget, parse_spec):
        with suppress(InvalidInput):
            parse(review.body)


@pytest.mark.slow
@pytest.mark.parametrize("paths", WALKS)
def test_d68_a_hostile_body_takes_no_memory_beyond_its_own(paths: Sequence[str]) -> None:
    """Types that are wrong, deep and wide fillers, maps and texts without end, every field full."""
    for path, name, body in list_hostile_bodies(paths, "prod"):
        with traced():
            read_all(body)
            _, peak = tracemalloc.get_traced_memory()
        assert peak < TREE, f"{path}: {name}"


@pytest.mark.parametrize("tree", ["x", 7, None, [1], [{}], {"kind": "Foo"}])
def test_an_excerpt_keeps_what_is_no_object(tree: Any) -> None:
    assert json.loads(OBJECT.excerpt(json.dumps(tree).encode())) == tree


def test_of_a_field_that_comes_twice_the_last_one_counts() -> None:
    assert OBJECT.excerpt(b' { "kind":"a" , "x":[1], "kind": "b" } ') == b'{"kind":"b"}'


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        pytest.param("x" * (LONGEST_VALUE - 2), "x" * (LONGEST_VALUE - 2), id="the longest text"),
        pytest.param("x" * LONGEST_VALUE, "(4098 bytes, more than 4096 are not read)", id="longer"),
        pytest.param(["x" * 999] * 4, ["x" * 999] * 4, id="a list"),
        pytest.param(
            [[]] * 2000, ["(8000 bytes, more than 4096 are not read)"], id="D-68 a long list"
        ),
        pytest.param(
            {"x" * 99: "x" * 100_000},
            ["(100107 bytes, more than 4096 are not read)"],
            id="D-68 a map becomes a list, which no decoder takes for it",
        ),
        pytest.param(
            int("9" * 4000), int("9" * 4000), id="a number, which the decoders refuse themselves"
        ),
    ],
)
def test_long_values_are_replaced(value: object, kept: object) -> None:
    assert json.loads(OBJECT.excerpt(json.dumps({"kind": value}).encode())) == {"kind": kept}


LISTS = "[" + ",".join(["[" * 400 + "]" * 400] * 80) + "]"  # 64 KiB


def test_d68_an_error_quotes_its_value_and_builds_nothing_beside_it() -> None:
    """A value beside the path is skipped, one at its end shown where it is a scalar."""
    body = f'{{"a":{LISTS},"spec":{{"b":{LISTS},"replicas":"3","c":{LISTS}}}}}'.encode()
    with traced():
        found = decode_review._value_at(body, "spec.replicas")
        _, peak = tracemalloc.get_traced_memory()

    assert found == '"3"'
    assert [decode_review._value_at(body, path) for path in ("", "x", "a", "spec.b.x")] == [""] * 4
    assert peak < 16 << 10


def test_d68_an_excerpt_of_too_many_long_values_is_refused() -> None:
    """Each value is short enough, all together are not: a 400, and a budget that is flawed."""
    value = "x" * 4000
    labels = {f"label-{number}": "x" * 4000 for number in range(15)}
    fields = map_wire_names(decode_review._Object)
    tree = {**budget_tree(selector={"matchLabels": labels}), **fill(fields, value)}
    tree["spec"] = {**fill(fields["spec"], value), "selector": {"matchLabels": labels}}
    review = review_tree(object=tree, oldObject=fill(fields, value), namespace=value, name=value)
    metadata = {"annotations": {ABSENT_PEERS: value}, "deletionTimestamp": value, "uid": value}

    with pytest.raises(DecodeError) as why:
        decode_review.decode_review(as_json(review))
    assert re.fullmatch(
        "Request could not be decoded: the fields that are read have [0-9]+ bytes, at most 131072",
        str(why.value),
    )
    with pytest.raises(InvalidInput, match=r"the fields that are read have [0-9]+ bytes, at most"):
        parse_budget(as_json({**tree, "metadata": metadata}))


@pytest.mark.parametrize("options", [{}, {"dryRun": ["All"]}])
def test_d68_a_review_of_an_eviction_keeps_nothing_but_its_options(options: dict[str, Any]) -> None:
    """It may wait for a minute, and a hundred others beside it."""
    kind = {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options}
    for pad in (1, SMALL):
        body = as_json(
            review_tree(subResource="eviction", object={**kind, "metadata": {"name": "x" * pad}})
        )
        review = decode_review.decode_review(body)

        assert json.loads(review.body) == {"deleteOptions": options}
        assert is_dry_run(review.body) is bool(options)


@pytest.mark.parametrize("depth", range(900, 1000, 3))
def test_d68_an_eviction_that_nests_nearly_too_deeply_is_read_or_refused(depth: int) -> None:
    body = json.dumps(review_tree(subResource="eviction", object={"deleteOptions": "FILL"}))
    with suppress(DecodeError):
        read_all(body.replace('"FILL"', "[" * depth + "]" * depth).encode())


LARGE: dict[str, dict[str, Any]] = {
    "a StatefulSet": {"object": set_tree(2, labels={"grafana.com/no-downscale": "true"})},
    "annotations": {
        "oldObject": set_tree(
            3, annotations={"grafana.com/prepare-downscale-http-port": "80", "other": "x"}
        )
    },
    "ordinals": {"object": {**set_tree(2), "spec": {"replicas": 1, "ordinals": {"start": 3}}}},
    "a wrong type": {"object": set_tree("2")},
    "no uid": {"uid": ""},
    "a Scale": {
        "subResource": "scale",
        "object": {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 1}},
    },
    "a budget": {"object": budget_tree(podNamePartitionRegex=REGEX)},
    "another kind": {"object": {"apiVersion": "v1", "kind": "Pod"}, "oldObject": None},
    "a dry run": {"dryRun": True, "name": None},
}


def outcome(tree: Any) -> Review | str:
    try:
        review = decode_review.decode_review(json.dumps(tree).encode())
    except DecodeError as error:
        return str(error)
    # As it came, or what is read of it: the same tree for who reads it.
    body = OBJECT.excerpt(review.body) if review.body else b""
    return msgspec.structs.replace(review, body=body)


@pytest.mark.parametrize("request_fields", LARGE.values(), ids=LARGE.keys())
def test_d50_a_large_review_is_read_like_a_small_one(request_fields: dict[str, Any]) -> None:
    """Verdicts and words do not depend on what else there is."""
    large = review_tree(**request_fields)
    for key in ("object", "oldObject"):
        if large["request"][key] is not None:
            large["request"][key] = {**large["request"][key], **PAD}

    assert len(json.dumps(large)) > SMALL
    assert outcome(large) == outcome(review_tree(**request_fields))


def map_wire_names(kind: Any) -> dict[str, Any]:
    """Return the fields of a struct as they are on the wire, those of structs inside as maps."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        options = getattr(field.type, "__args__", (field.type,))
        inner = [
            one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)
        ]
        found[field.encode_name] = map_wire_names(inner[0]) if inner else 1
    return found


def fill(tree: dict[str, Any], value: str) -> dict[str, Any]:
    """Return the tree with this value in each field."""
    return {
        key: fill(inner, value) if isinstance(inner, dict) else value for key, inner in tree.items()
    }


@pytest.mark.parametrize("kind", [decode_review._Object, decode_review._Eviction])
def test_d50_whatever_is_decoded_of_an_object_is_in_its_excerpt(kind: Any) -> None:
    """A field that is read of small bodies only would be a way past a check."""
    tree = map_wire_names(kind)

    assert json.loads(OBJECT.excerpt(json.dumps(tree).encode())) == tree


def test_d50_whatever_is_decoded_of_a_review_is_in_its_excerpt() -> None:
    tree = map_wire_names(decode_review._Review)

    assert json.loads(REVIEW.excerpt(json.dumps(tree).encode())) == tree


def test_d50_whatever_is_decoded_of_a_budget_is_in_its_excerpt() -> None:
    """A large one is the same budget, under review and in a watch."""
    spec: dict[str, Any] = {
        "maxUnavailable": 3,
        "podNamePartitionRegex": REGEX,
        "podNameRegexGroup": 1,
        "crossZoneEvictionDelay": "20m",
    }
    tree = with_metadata(budget_tree(**spec), generation=4)
    large = as_json({**tree, "status": PAD})

    assert len(large) > SMALL
    assert parse_budget(large) == parse_budget(as_json(tree))
    assert decode_budget(large) == decode_budget(as_json(tree))
    share = as_json({**budget_tree(maxUnavailablePercentage=50), "status": PAD})
    assert parse_budget(share).percentage == 50


def test_d68_a_budget_that_selects_by_too_many_labels_is_refused() -> None:
    """docs/webhooks.md: a selector may take 64 KiB."""
    labels = {f"label-{number}": "x" for number in range(20_000)}
    large = as_json(budget_tree(selector={"matchLabels": labels}))
    review = decode_review.decode_review(json.dumps(review_tree(object=json.loads(large))).encode())

    assert isinstance(review.new, Unusable)
    for raw in (large, review.body):
        with pytest.raises(
            InvalidInput, match=r"[0-9]+ bytes, more than 65536 are not read"
        ) as why:
            parse_budget(raw)
        assert str(why.value).startswith("invalid value: selector is not valid, got")
