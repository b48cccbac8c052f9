"""JSON that nests too deeply is cut without recursion, and keeps what is read (LI-09)."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.decode.objects import decode_pod, decode_version
from rollout_operator.model.decode.wire import (
    DEEPEST,
    cut_deep,
    cut_in_steps,
    decode_shallow,
    salvage,
)
from rollout_operator.model.names import DecodeError
from tests.model.wire_trees import as_json, pod_tree, with_metadata

FARTHEST = 9_995
"""Levels of `managedFields` that the API server takes."""

# Brackets, quotes, backslashes and the key itself are the letters that matter.
_TEXTS = st.text(st.sampled_from('{}[]":,\\ amé'), max_size=8) | st.just("managedFields")
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=40,
)


def cut_tree(tree: Any, deepest: int = DEEPEST) -> Any:
    """Return what is left of a tree, by recursion."""
    if isinstance(tree, list):
        return [cut_tree(one, deepest - 1) for one in tree] if deepest else None
    if isinstance(tree, dict):
        return (
            {key: _cut_field(key, one, deepest) for key, one in tree.items()} if deepest else None
        )
    return tree


def _cut_field(key: str, value: Any, deepest: int) -> Any:
    if key == "managedFields" and isinstance(value, list | dict):
        return None
    return cut_tree(value, deepest - 1)


def nest(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


@given(tree=_TREES, indent=st.sampled_from([None, 1]), ascii=st.booleans())
def test_li09_what_is_left_is_what_recursion_leaves(tree: Any, indent: Any, ascii: bool) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii).encode()
    assert json.loads(cut_deep(text)) == cut_tree(tree)


@given(tree=_TREES, levels=st.integers(DEEPEST - 6, DEEPEST + 2), is_list=st.booleans())
def test_li09_what_lies_deepest_is_null(tree: Any, levels: int, is_list: bool) -> None:
    for _ in range(levels):
        tree = [tree, "]"] if is_list else {"a": tree, "b": "}"}
    assert json.loads(cut_deep(json.dumps(tree).encode())) == cut_tree(tree)


@given(body=st.binary(max_size=60) | st.text('{}[]"\\:,am', max_size=60).map(str.encode))
def test_li09_what_is_no_json_is_no_trouble(body: bytes) -> None:
    cut = cut_deep(body)
    assert isinstance(cut, bytes)
    assert cut == body or b"{" in body or b"[" in body


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 50_000, id="only opened"),
        pytest.param(b"]" * 50_000, id="only closed"),
        pytest.param(b'"' + b"\\" * 500_001, id="a string that never ends"),
        pytest.param(b'{"a":"' + b'\\"' * 250_000, id="escapes without end"),
    ],
)
def test_li09_hostile_text_costs_little_memory(body: bytes) -> None:
    tracemalloc.start()
    try:
        cut_deep(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(body) + 100_000


def test_li09_a_pause_comes_after_so_many_brackets() -> None:
    """D-51: the loop is not held up while a long text is cut."""
    assert sum(1 for _ in cut_in_steps(b"[]" * 10_000)) == 10


@pytest.mark.parametrize("levels", [900, 1_500, FARTHEST, 20_000])
def test_li09_a_pod_with_deep_managed_fields_is_decoded_as_any_other(levels: int) -> None:
    assert decode_pod(_deep(pod_tree(), levels)) == decode_pod(as_json(pod_tree()))


def test_li09_the_name_is_reported_what_cannot_be_decoded_besides() -> None:
    body = _deep(with_metadata(pod_tree(), labels={"a": 1}), 20_000)
    with pytest.raises(DecodeError, match=r"Pod prod/zone-a-0: metadata\.labels") as caught:
        decode_pod(body)
    lost = salvage("Pod", body, caught.value)
    assert (lost.namespace, lost.name) == ("prod", "zone-a-0")


def _deep(tree: Any, levels: int) -> bytes:
    """Return a pod whose `managedFields` nest so deeply."""
    empty = b'"managedFields": []'
    body = as_json(with_metadata(tree, managedFields=[]))
    assert empty in body
    return body.replace(empty, b'"managedFields": [%b]' % nest(levels))


def test_li09_a_bookmark_may_nest() -> None:
    body = b'{"metadata":{"resourceVersion":"7","x":%b}}' % nest(20_000)
    assert decode_version("bookmark", body) == "7"


def test_what_a_decoder_refuses_otherwise_it_refuses_still() -> None:
    decoder = msgspec.json.Decoder(dict[str, int])
    with pytest.raises(msgspec.ValidationError):
        decode_shallow(decoder, b'{"a":%b}' % nest(20_000))


BLOCK = b'{"f:a":' * 90 + b"{}" + b"}" * 90
OWNERS = b'[{"uid":"u-set","controller":true}]'


def _body(filler: bytes) -> bytes:
    return (
        b'{"kind":"Pod","metadata":{"name":"a-0","namespace":"prod","uid":"u","resourceVersion":"7",'
        b'"labels":{"rollout-group":"g"},"ownerReferences":%b,"managedFields":[%b]},'
        b'"status":{"phase":5}}' % (OWNERS, filler)
    )


@pytest.mark.parametrize("count", [1, 1_700], ids=["small", "1.2 MB"])
def test_li09_a_large_object_that_cannot_be_read_is_named_without_being_built(count: int) -> None:
    """LI-09: the loop stands still for as long as a third of a second otherwise."""
    body = _body(b",".join([BLOCK] * count))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as caught:
            decode_pod(body)
        found = salvage("Pod", body, caught.value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert str(caught.value) == "Pod prod/a-0: status.phase: expected str, got int: 5"
    assert (found.name, found.uid, found.owner_uid, found.group) == ("a-0", "u", "u-set", "g")
    assert peak < 3 * len(body) + 100_000
