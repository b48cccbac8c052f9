"""AdmissionReviews as bytes: what is read, what is no review, what cannot be judged."""

import json
from typing import Any

import pytest

from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import DecodeError, Uid
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from tests.model.review_trees import review_tree

Json = dict[str, Any]


def workload(kind: str = "StatefulSet", replicas: object = 2, **metadata: object) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "zone-a", "uid": "s-1", "resourceVersion": "7", **metadata},
        "spec": {"replicas": replicas, "serviceName": "store", "template": {"x": [1.5, None]}},
    }


def scale(**spec: object) -> Json:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "zone-a", "uid": "s-1", "resourceVersion": "7"},
        "spec": spec,
    }


def tree(version: str = "admission.k8s.io/v1", **request: object) -> Json:
    found = review_tree(
        version, **{"object": workload(), "oldObject": workload(replicas=3), **request}
    )
    if "dryRun" not in request:
        del found["request"]["dryRun"]
    return found


def decode(found: object) -> Review:
    return decode_review(json.dumps(found).encode())


def new_of(found: object) -> Scalable | Unusable:
    return decode(tree(object=found)).new


@pytest.mark.parametrize("version", list(Version))
def test_a_whole_review_is_read(version: Version) -> None:
    """ADM-05, ADM-10: both versions alike."""
    labels = {"grafana.com/no-downscale": "true"}
    annotations = {"grafana.com/prepare-downscale-http-port": "80"}
    found = tree(
        version,
        dryRun=True,
        subResource="status",
        object=workload(labels={"a": "b", **labels}, annotations={**annotations, "c": "d"}),
    )

    assert decode(found) == Review(
        version=version,
        uid="u-1",
        operation="UPDATE",
        resource="statefulsets",
        subresource="status",
        namespace="prod",
        name="zone-a",
        dry_run=True,
        old=Scalable(
            kind="StatefulSet",
            uid=Uid("s-1"),
            resource_version="7",
            replicas=3,
            service_name="store",
        ),
        new=Scalable(
            kind="StatefulSet",
            uid=Uid("s-1"),
            resource_version="7",
            replicas=2,
            labels=labels,
            annotations=annotations,
            has_annotations=True,
            service_name="store",
        ),
    )


@pytest.mark.parametrize(
    ("ordinals", "expected"),
    [({"start": 2}, 2), ({"start": 0}, 0), ({}, 0), (None, 0)],
)
def test_the_first_ordinal_is_read(ordinals: object, expected: int) -> None:
    """SI-10, D-10: a request that changes it makes other pods go than its replicas say."""
    found = workload()
    found["spec"]["ordinals"] = ordinals
    decoded = new_of(found)
    assert isinstance(decoded, Scalable)
    assert decoded.first_ordinal == expected


def test_a_scale_leaves_the_first_ordinal_as_it_is() -> None:
    decoded = new_of(scale(replicas=2, ordinals={"start": 2}))
    assert isinstance(decoded, Scalable)
    assert decoded.first_ordinal == 0


def test_an_ordinal_that_is_no_number_makes_an_object_unusable() -> None:
    """SI-13: it is unknown which pods go."""
    found = workload()
    found["spec"]["ordinals"] = {"start": "two"}
    decoded = new_of(found)
    assert isinstance(decoded, Unusable)
    assert decoded.error == 'request.object.spec.ordinals.start: expected int, got str: "two"'


@pytest.mark.parametrize(
    ("found", "kind", "replicas"),
    [
        pytest.param(workload("StatefulSet"), "StatefulSet", 2, id="ADM-10 StatefulSet"),
        pytest.param(workload("Deployment"), "Deployment", 2, id="ADM-10 Deployment"),
        pytest.param(workload("ReplicaSet"), "ReplicaSet", 2, id="ADM-10 ReplicaSet"),
        pytest.param(workload(replicas=None), "StatefulSet", None, id="ADM-11 null is nil"),
        pytest.param(workload(replicas=0), "StatefulSet", 0, id="ADM-11 zero is no nil"),
        pytest.param(workload(replicas=2**31 - 1), "StatefulSet", 2**31 - 1, id="the most"),
        pytest.param(scale(replicas=4), "Scale", 4, id="ADM-10 Scale"),
        pytest.param(scale(), "Scale", 0, id="ADM-11 a Scale without replicas has 0"),
        pytest.param(scale(replicas=None), "Scale", 0, id="ADM-11 a Scale with null has 0"),
    ],
)
def test_replicas_are_read(found: Json, kind: str, replicas: int | None) -> None:
    new = new_of(found)

    assert isinstance(new, Scalable)
    assert (new.kind, new.replicas) == (kind, replicas)


def test_without_spec_and_metadata_nothing_is_made_up() -> None:
    assert new_of({"apiVersion": "apps/v1", "kind": "StatefulSet"}) == Scalable(kind="StatefulSet")


def test_a_scale_has_no_labels() -> None:
    """NODOWN-05: the parent decides, whatever a forged Scale carries."""
    found = scale(replicas=1)
    found["metadata"]["labels"] = {"grafana.com/no-downscale": "false"}
    new = new_of(found)

    assert isinstance(new, Scalable)
    assert new.labels == {}


NUMBER = "spec.replicas: expected int | null,"


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param(None, "absent", id="null"),
        pytest.param(workload(replicas=True), f"{NUMBER} got bool: true", id="true"),
        pytest.param(workload(replicas=5.0), f"{NUMBER} got float: 5.0", id="5.0"),
        pytest.param(workload(replicas="5"), f'{NUMBER} got str: "5"', id="text"),
        pytest.param(
            workload(replicas=2**31),
            f"spec.replicas: expected int <= {2**31 - 1}: {2**31}",
            id="large",
        ),
        pytest.param(workload(replicas=-1), "spec.replicas: expected int >= 0: -1", id="negative"),
        pytest.param(scale(replicas="2"), f'{NUMBER} got str: "2"', id="of a Scale"),
        pytest.param(
            workload(labels={"a": 1}), "metadata.labels[...]: expected str, got int", id="label"
        ),
        pytest.param(
            workload(labels="none"),
            'metadata.labels: expected object | null, got str: "none"',
            id="no labels",
        ),
        pytest.param(5, "expected object, got int", id="no object"),
        pytest.param({}, "kind: absent", id="empty"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod"},
            "unsupported group version kind /v1, Kind=Pod",
            id="T-06 a Pod",
        ),
        pytest.param(
            {"apiVersion": "apps/v1beta1", "kind": "StatefulSet", "spec": {"replicas": "x"}},
            "unsupported group version kind apps/v1beta1, Kind=StatefulSet",
            id="an unknown kind may have other fields",
        ),
    ],
)
def test_an_object_that_cannot_be_judged(found: object, error: str) -> None:
    """Field and value are named, and which of the two objects it is; the other is read."""
    separator = ": " if error == "absent" or found in (5, {}) or "group" in error else "."
    review = decode(tree(object=found))

    assert review.new == Unusable(f"request.object{separator}{error}")
    assert isinstance(review.old, Scalable)


def test_an_absent_object_is_named() -> None:
    found = tree()
    del found["request"]["oldObject"]

    assert decode(found).old == Unusable("request.oldObject: absent")


@pytest.mark.parametrize("digits", [30, 5000])
def test_endless_numbers_are_unusable(digits: int) -> None:
    """SEC-07: more digits than Python converts."""
    body = json.dumps(tree()).replace('"replicas": 2', f'"replicas": {"9" * digits}')
    new = decode_review(body.encode()).new

    assert isinstance(new, Unusable)
    assert new.error.startswith(
        ("request.object.spec.replicas: integer", "request.object.spec.replicas: exp")
    )
    assert len(new.error) < 200


@pytest.mark.parametrize(
    ("request_fields", "name"),
    [
        pytest.param({}, "zone-a", id="of the request"),
        pytest.param({"name": "", "object": workload(name="new")}, "new", id="of the new object"),
        pytest.param({"name": None, "object": None}, "zone-a", id="of the old object"),
    ],
)
def test_names(request_fields: Json, name: str) -> None:
    assert decode(tree(**request_fields)).name == name


@pytest.mark.parametrize(
    ("fields", "dry_run"),
    [({}, False), ({"dryRun": None}, False), ({"dryRun": False}, False), ({"dryRun": True}, True)],
)
def test_missing_dry_run_is_none(fields: Json, dry_run: bool) -> None:
    """W-23."""
    assert decode(tree(**fields)).dry_run is dry_run


NOT_DECODED = "Request could not be decoded: "
KIND = "Unsupported group version kind: "


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param({}, "kind: absent", id="T-12 empty object"),
        pytest.param({"kind": "A"}, "apiVersion: absent", id="no version"),
        pytest.param(
            {"kind": "A", "apiVersion": "a/b/c"}, "apiVersion: unexpected a/b/c", id="odd version"
        ),
        pytest.param(
            workload("Deployment"), f"{KIND}apps/v1, Kind=Deployment", id="ADM-04 another"
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "request": 5},
            f"{KIND}/v1, Kind=Pod",
            id="ADM-04 another kind with a field of ours",
        ),
        pytest.param(
            tree("admission.k8s.io/v2"),
            f"{KIND}admission.k8s.io/v2, Kind=AdmissionReview",
            id="ADM-04 another version",
        ),
        pytest.param(
            {"apiVersion": "a\nb", "kind": "C\x1b[1m"},
            f"{KIND}/a\\nb, Kind=C\\x1b[1m",
            id="SEC-13 control characters are escaped",
        ),
        pytest.param(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
            "request: absent",
            id="ADM-12 W-23 no request",
        ),
        pytest.param(tree(uid=""), 'request.uid: expected str of length >= 1: ""', id="no uid"),
        pytest.param(tree(uid=5), "request.uid: expected str, got int: 5", id="odd uid"),
        pytest.param(
            tree(dryRun="no"),
            'request.dryRun: expected bool | null, got str: "no"',
            id="odd dry run",
        ),
        pytest.param([], "expected object, got array", id="a list"),
    ],
)
def test_what_is_no_review(found: object, error: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(found)

    assert str(caught.value) == (error if error.startswith(KIND) else f"{NOT_DECODED}{error}")


def test_an_absent_uid_is_named() -> None:
    found = tree()
    del found["request"]["uid"]

    with pytest.raises(DecodeError, match=r"request: object missing required field uid"):
        decode(found)


GOOD = json.dumps(tree())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"kind: AdmissionReview", id="YAML"),
        pytest.param(GOOD.encode()[:-1], id="cut short"),
        pytest.param(GOOD.encode() + b"{}", id="more behind"),
        pytest.param(b"\xef\xbb\xbf" + GOOD.encode(), id="BOM"),
        pytest.param(GOOD.encode("utf-16"), id="UTF-16"),
        pytest.param(GOOD.replace('"u-1"', '"\\ud800"').encode(), id="lone surrogate"),
        pytest.param(GOOD.replace('"u-1"', '"\ud800"').encode("utf-8", "surrogatepass"), id="raw"),
        pytest.param(GOOD.replace("1.5", "NaN").encode(), id="NaN in what is skipped"),
        pytest.param(GOOD.replace('"u-1"', "Infinity").encode(), id="Infinity"),
        pytest.param(GOOD.replace("1.5", "[" * 10**6 + "]" * 10**6).encode(), id="depth bomb"),
        pytest.param(b"[" * 10**5, id="depth bomb without end"),
        pytest.param(b'{"kind":' * 10**5 + b"1" + b"}" * 10**5, id="deep objects"),
        pytest.param(b"9" * 5000, id="endless number"),
        pytest.param(bytes(range(256)), id="garbage"),
    ],
)
def test_hazards_are_decode_errors(body: bytes) -> None:
    """SEC-07: never another exception."""
    with pytest.raises(DecodeError, match=r"^Request could not be decoded: "):
        decode_review(body)


def test_many_and_repeated_keys_are_read() -> None:
    """SEC-07: a hundred thousand keys; of keys with the same name the last wins, as in Go."""
    labels = {f"key-{number}": "x" for number in range(100_000)} | {"rollout-group": "store"}
    body = json.dumps(tree(object=workload(labels=labels)))
    new = decode_review(body.replace('"replicas": 2', '"replicas": 9, "replicas": 2').encode()).new

    assert isinstance(new, Scalable)
    assert (new.labels, new.replicas) == ({"rollout-group": "store"}, 2)


@pytest.mark.parametrize(
    ("annotations", "expected"), [({"a": "b"}, True), ({}, True), (None, False)]
)
def test_d23_annotations_that_are_not_read_are_known_to_be_there(
    annotations: object, expected: bool
) -> None:
    """A patch that adds the whole map would take them away."""
    new = new_of(workload(annotations=annotations))

    assert isinstance(new, Scalable)
    assert (new.annotations, new.has_annotations) == ({}, expected)
