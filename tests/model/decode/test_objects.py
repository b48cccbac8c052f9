"""What views keep, what errors name, and that no input breaks the decoder (D-10, FP-13)."""

import gc
import re
import tracemalloc
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.decode.objects import decode_pod, decode_statefulset, decode_version
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import DecodeError, Revision, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from tests.examples import repeatable
from tests.model.wire_trees import (
    DELETED,
    SINCE_READ,
    Tree,
    as_json,
    condition,
    container,
    pod_tree,
    set_tree,
    with_metadata,
)


def test_a_ready_pod_is_read_whole() -> None:
    assert decode_pod(as_json(pod_tree())) == Pod(
        namespace="prod",
        name="zone-a-0",
        uid=Uid("pod-uid"),
        resource_version="42",
        owner_uid=Uid("set-uid"),
        revision=Revision("zone-a-7"),
        phase="Running",
        is_ready=True,
        ready_since=SINCE_READ,
        labels={"controller-revision-hash": "zone-a-7", "name": "zone-a"},
    )


def test_w27_ready_since_is_unknown_where_the_condition_does_not_say() -> None:
    without = {"type": "Ready", "status": "True", "lastTransitionTime": None}
    decoded = decode_pod(as_json(pod_tree(conditions=[without])))
    assert (decoded.is_ready, decoded.ready_since) == (True, None)


@pytest.mark.parametrize(
    ("written", "since"),
    [
        pytest.param("2026-01-01T00:00:40Z", SINCE_READ + timedelta(seconds=10), id="as it says"),
        pytest.param("soon", None, id="and a value that is no time blocks nothing"),
    ],
)
def test_w38_zpdb47_the_annotation_of_earlier_releases_is_read_where_the_condition_has_no_time(
    written: str, since: datetime | None
) -> None:
    """ZPDB-47."""
    without = {"type": "Ready", "status": "True", "lastTransitionTime": None}
    annotations = {"grafana.com/ready-time": written}
    tree = with_metadata(pod_tree(conditions=[without]), annotations=annotations)
    assert decode_pod(as_json(tree)).ready_since == since
    tree = with_metadata(pod_tree(), annotations=annotations)
    assert decode_pod(as_json(tree)).ready_since == SINCE_READ


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        pytest.param(None, None, id="D-10 no owners"),
        pytest.param([], None, id="D-10 empty owners"),
        pytest.param([{"uid": "u", "name": "n"}], None, id="D-10 owner that does not control"),
        pytest.param([{"uid": "u", "controller": False}], None, id="D-10 controller false"),
        pytest.param([{"uid": "", "controller": True}], None, id="D-10 empty UID owns nothing"),
        pytest.param([{"uid": "u", "controller": True}], "u", id="D-10 controller"),
    ],
)
def test_the_owner_is_the_controlling_reference(owners: Any, uid: str | None) -> None:
    tree = with_metadata(pod_tree(), ownerReferences=owners)
    assert decode_pod(as_json(tree)).owner_uid == uid
    error = DecodeError("x")
    assert salvage("Pod", as_json(tree), error).owner_uid == uid


@pytest.mark.parametrize(
    ("labels", "revision"),
    [
        pytest.param(None, None, id="no labels"),
        pytest.param({"a": "b"}, None, id="other labels"),
        pytest.param({"controller-revision-hash": ""}, "", id="empty is not absent"),
    ],
)
def test_the_revision_is_the_hash_label(labels: Any, revision: str | None) -> None:
    tree = with_metadata(pod_tree(), labels=labels)
    assert decode_pod(as_json(tree)).revision == revision


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


def test_a_statefulset_is_read_whole() -> None:
    spec = {"ordinals": {"start": 5}, "podManagementPolicy": "Parallel", "minReadySeconds": 10}
    decoded = decode_statefulset(as_json(set_tree(**spec)))
    assert decoded == StatefulSet(
        namespace="prod",
        name="zone-a",
        uid=Uid("set-uid"),
        resource_version="77",
        generation=3,
        labels={"rollout-group": "g", "team": "x"},
        annotations={"rollout-max-unavailable": "2"},
        selector={"name": "zone-a"},
        strategy="OnDelete",
        replicas=3,
        first_ordinal=5,
        is_ordered=False,
        min_ready_seconds=10,
        observed_generation=2,
        status_replicas=3,
        ready_replicas=2,
        available_replicas=1,
        current_revision=Revision("zone-a-7"),
        update_revision=Revision("zone-a-8"),
    )


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        pytest.param({"replicas": None}, "replicas", 1, id="SI-14 replicas null is 1"),
        pytest.param({"replicas": 0}, "replicas", 0, id="SI-14 zero is not absent"),
        pytest.param({"updateStrategy": {}}, "strategy", "RollingUpdate", id="API default"),
        pytest.param({"updateStrategy": None}, "strategy", "RollingUpdate", id="no strategy"),
        pytest.param({"ordinals": None}, "first_ordinal", 0, id="FP-29 no ordinals"),
        pytest.param({}, "is_ordered", True, id="FP-30 no pod management policy"),
        pytest.param({"podManagementPolicy": None}, "is_ordered", True, id="FP-30 a null one"),
        pytest.param(
            {"podManagementPolicy": "OrderedReady"}, "is_ordered", True, id="FP-30 ordered"
        ),
        pytest.param({"selector": {"matchLabels": None}}, "selector", {}, id="no matchLabels"),
    ],
)
def test_what_a_statefulset_leaves_out_has_the_api_default(
    spec: Tree, field: str, value: object
) -> None:
    assert getattr(decode_statefulset(as_json(set_tree(**spec))), field) == value


def test_replicas_absent_is_one() -> None:
    tree = set_tree()
    del tree["spec"]["replicas"], tree["status"]
    decoded = decode_statefulset(as_json(tree))
    assert (decoded.replicas, decoded.status_replicas, decoded.update_revision) == (1, 0, "")


def test_fp29_a_terminating_set_says_so() -> None:
    tree = with_metadata(set_tree(), deletionTimestamp=DELETED)
    assert decode_statefulset(as_json(tree)).is_terminating


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param(
            {"replicas": True},
            "StatefulSet prod/zone-a: spec.replicas: expected int | null, got bool: true",
            id="boolean is no number",
        ),
        pytest.param(
            {"replicas": 3.0},
            "StatefulSet prod/zone-a: spec.replicas: expected int | null, got float: 3.0",
            id="float is no number",
        ),
        pytest.param(
            {"replicas": "3"},
            'StatefulSet prod/zone-a: spec.replicas: expected int | null, got str: "3"',
            id="text is no number",
        ),
        pytest.param({"replicas": -1}, "spec.replicas: expected int >= 0: -1", id="negative"),
        pytest.param({"replicas": 2**31}, "spec.replicas: expected int <= 2147483647", id="huge"),
        pytest.param(
            {"ordinals": {"start": False}}, "spec.ordinals.start: expected int", id="bool"
        ),
        pytest.param({"minReadySeconds": None}, "spec.minReadySeconds: expected int", id="null"),
        pytest.param(
            {"updateStrategy": {"type": "\x1b\n\x7f" + "x" * 900}}, "", id="long text is fine"
        ),
        pytest.param({"selector": []}, "spec.selector: expected object | null, got arr", id="list"),
        pytest.param(
            {"selector": {"matchLabels": {"a": "b", "x.io/zone": 1, "c": True}}},
            "spec.selector.matchLabels[x.io/zone]: expected str, got int",
            id="label that is no text",
        ),
        pytest.param(
            {"selector": {"matchLabels": {"a": None}}},
            "spec.selector.matchLabels[a]: expected str, got null",
            id="label without a value",
        ),
        pytest.param(
            {"selector": {"matchLabels": {"\n" + "x" * 900: {}}}},
            f"spec.selector.matchLabels[\\n{'x' * 40}",
            id="label with a long name",
        ),
    ],
)
def test_a_decode_error_names_object_field_and_value(spec: Tree, text: str) -> None:
    raw = as_json(set_tree(**spec))
    if not text:
        decode_statefulset(raw)
        return
    with pytest.raises(DecodeError) as caught:
        decode_statefulset(raw)
    assert text in str(caught.value)


def test_a_decode_error_names_the_item_of_a_list() -> None:
    raw = as_json(pod_tree(containerStatuses=[container(), container(ready="yes")]))
    with pytest.raises(DecodeError) as caught:
        decode_pod(raw)
    where = "Pod prod/zone-a-0: status.containerStatuses[1].ready"
    assert str(caught.value) == f'{where}: expected bool, got str: "yes"'


def test_si23_a_decode_error_is_one_short_printable_line() -> None:
    value = "\x1b[31m\n\x7f\u202e" * 1_000
    raw = as_json(with_metadata(set_tree(replicas=value), name=value, namespace=value))
    with pytest.raises(DecodeError) as caught:
        decode_statefulset(raw)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "resourceVersion"])
@pytest.mark.parametrize("value", ["", None, 7])
def test_identity_is_required(field: str, value: object) -> None:
    for decode, tree in ((decode_pod, pod_tree()), (decode_statefulset, set_tree())):
        bent = with_metadata(tree, **{field: value})
        with pytest.raises(DecodeError, match=field):
            decode(as_json(bent))
        del bent["metadata"][field]
        with pytest.raises(DecodeError, match=field):
            decode(as_json(bent))


def test_a_set_without_spec_is_not_taken_for_one_replica() -> None:
    tree = set_tree()
    del tree["spec"]
    with pytest.raises(DecodeError, match="missing required field spec"):
        decode_statefulset(as_json(tree))


def test_another_kind_is_refused() -> None:
    with pytest.raises(DecodeError, match='Pod prod/zone-a: kind: expected Pod: "StatefulSet"'):
        decode_pod(as_json(set_tree()))


def test_an_object_is_named_by_what_it_has() -> None:
    """Manifests, and objects of the cluster, have no namespace."""
    for head, named in (
        ({"namespace": "prod", "name": "zone-a"}, "prod/zone-a"),
        ({"name": "zone-a"}, "zone-a"),
        ({"namespace": "prod"}, "prod/?"),
        ({}, "?"),
    ):
        with pytest.raises(DecodeError, match=rf"^StatefulSet {re.escape(named)}: "):
            decode_statefulset(as_json({"metadata": head}))


def test_ready_since_that_is_no_instant_is_refused() -> None:
    for text in ("yesterday", "2026-01-01T00:00:00", "2026-01-01"):
        raw = as_json(pod_tree(conditions=[condition("True", lastTransitionTime=text)]))
        with pytest.raises(DecodeError, match=r"lastTransitionTime: no instant"):
            decode_pod(raw)


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
