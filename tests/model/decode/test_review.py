"""AdmissionReviews as hostile bytes; what is read of others is in review.txt."""

import json
from typing import Any

import pytest

from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import DecodeError
from rollout_operator.model.scaling import Scalable, Unusable
from tests.model.review_trees import review_tree, set_tree

Json = dict[str, Any]


def tree(**metadata: object) -> Json:
    found = review_tree(object=set_tree(2, **metadata))
    found["request"]["object"]["spec"]["template"] = {"x": [1.5, None]}
    return found


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
    body = json.dumps(tree(labels=labels))
    new = decode_review(body.replace('"replicas": 2', '"replicas": 9, "replicas": 2').encode()).new

    assert isinstance(new, Scalable)
    assert (new.labels, new.replicas) == ({"rollout-group": "store"}, 2)
