"""That views are small, and that no input breaks the decoder (D-10, FP-13)."""

import gc
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.decode.objects import decode_pod, decode_statefulset, decode_version
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import DecodeError
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from tests.examples import repeatable
from tests.model.wire_trees import as_json, pod_tree, set_tree, with_metadata


def test_texts_that_repeat_are_kept_once() -> None:
    one, other = decode_pod(as_json(pod_tree())), decode_pod(as_json(pod_tree()))
    assert one.namespace is other.namespace
    assert one.owner_uid is other.owner_uid
    assert one.revision is other.revision
    assert one.phase is other.phase


def test_d51_a_pod_costs_at_most_4_kib() -> None:
    tree = pod_tree()
    tree["spec"]["env"] = [{"name": f"V{n}", "value": "x" * 40} for n in range(150)]
    raws = [as_json(with_metadata(tree, uid=f"u{n}", name=f"a-{n}")) for n in range(500)]
    assert len(raws[0]) > 9_000
    gc.collect()
    tracemalloc.start()
    decoded = [decode_pod(raw) for raw in raws]
    del raws
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(decoded) < 1_500


HOSTILE = [
    pytest.param(b"", id="FP-13 nothing"),
    pytest.param(b"null", id="FP-13 null"),
    pytest.param(b"[]", id="FP-13 list"),
    pytest.param(as_json(pod_tree())[:-20], id="FP-13 cut short"),
    pytest.param(as_json(pod_tree()) + b"x", id="FP-13 garbage behind"),
    pytest.param(b"[" * 20_000, id="SEC depth bomb of lists"),
    pytest.param(b'{"a":' * 20_000, id="SEC depth bomb of objects"),
    pytest.param(b'{"metadata":' + b"9" * 100_000 + b"}", id="SEC number of 100,000 digits"),
    pytest.param(b'{"x":NaN}', id="SEC NaN"),
    pytest.param(b'{"metadata":{"name":"\xff\xfe"}}', id="FP-13 broken UTF-8"),
    pytest.param(b'{"metadata":{"name":"\\ud800"}}', id="SEC lone surrogate"),
    pytest.param("{}".encode("utf-16"), id="FP-13 other encoding"),
]


@pytest.mark.parametrize("raw", HOSTILE)
def test_hostile_bytes_are_decode_errors_and_never_break_salvage(raw: bytes) -> None:
    for form in (raw, msgspec.Raw(raw)):
        for decode in (decode_pod, decode_statefulset):
            with pytest.raises(DecodeError):
                decode(form)
        with pytest.raises(DecodeError):
            decode_version("bookmark", form)
        lost = salvage("Pod", form, DecodeError("why"))
        assert lost.error == "why"
        lost.name.encode()


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        pytest.param(b'"image": "x"', b'"image": NaN', id="NaN"),
        pytest.param(b'"image": "x"', b'"image": "\\ud800"', id="lone surrogate"),
        pytest.param(b'"phase": "Running"', b'"phase": "\xff"', id="broken UTF-8"),
        pytest.param(b'"phase": "Running"', b'"phase": {}', id="wrong type"),
    ],
)
def test_salvage_reads_metadata_whatever_else_is_broken(good: bytes, bad: bytes) -> None:
    tree = with_metadata(pod_tree(), labels={"rollout-group": "g", "team": "x"})
    raw = as_json(tree).replace(good, bad)
    with pytest.raises(DecodeError) as caught:
        decode_pod(raw)
    lost = salvage("Pod", raw, caught.value)
    assert (lost.kind, lost.namespace, lost.name) == ("Pod", "prod", "zone-a-0")
    assert (lost.uid, lost.resource_version, lost.owner_uid) == ("pod-uid", "42", "set-uid")
    assert lost.labels == {"rollout-group": "g", "team": "x"}
    assert lost.group == "g"
    assert lost.error == str(caught.value)


def test_salvage_reads_the_rest_where_metadata_itself_is_broken() -> None:
    tree = with_metadata(
        pod_tree(), uid=7, labels={"rollout-group": 5}, ownerReferences=["x", {"controller": True}]
    )
    lost = salvage("Pod", as_json(tree), DecodeError("x"))
    assert (lost.name, lost.uid, lost.labels, lost.owner_uid) == ("zone-a-0", "", {}, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
PATHS = st.sampled_from(
    [
        ("metadata",),
        ("metadata", "labels"),
        ("metadata", "ownerReferences"),
        ("metadata", "deletionTimestamp"),
        ("status",),
        ("status", "conditions"),
        ("status", "containerStatuses"),
        ("status", "phase"),
        ("spec",),
        ("spec", "ordinals"),
        ("spec", "updateStrategy"),
        ("spec", "podManagementPolicy"),
        ("status", "startTime"),
    ]
)


@repeatable(300)
@given(path=PATHS, value=JSON, is_pod=st.booleans())
def test_any_json_in_any_place_is_decoded_or_a_decode_error(
    path: tuple[str, ...], value: object, is_pod: bool
) -> None:
    tree = pod_tree() if is_pod else set_tree()
    place = tree
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    raw = as_json(tree)
    try:
        decoded: Pod | StatefulSet | Unreadable = (decode_pod if is_pod else decode_statefulset)(
            raw
        )
    except DecodeError as error:
        decoded = salvage("Pod", raw, error)
    assert not isinstance(decoded, Unreadable) or decoded.error.isprintable()
    assert decoded.name == tree["metadata"].get("name", "") if path != ("metadata",) else True


def test_d54_a_bookmark_is_read_for_its_version() -> None:
    raw = b'{"kind":"Pod","metadata":{"resourceVersion":"9","annotations":{}},"spec":{}}'
    assert decode_version("bookmark", raw) == "9"
    with pytest.raises(DecodeError, match="resourceVersion"):
        decode_version("bookmark", b'{"metadata":{"resourceVersion":""}}')
