"""Who wrote the fields of objects of Flux; what else is read of them is in tables."""

from typing import Final

import msgspec
import pytest

from rollout_operator.model.decode.objects import decode_field_writers

MANAGED: Final = [
    {"manager": "kustomize-controller", "fieldsV1": {"f:spec": {"f:ref": {".": {}, "f:tag": {}}}}},
    {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:ref": {"f:tag": {}, "f:semver": {}}}}},
    {"manager": "whole", "fieldsV1": {"f:spec": {"f:ref": {}}}},
    {"manager": "odd", "fieldsV1": {"f:spec": 7}},
    {"manager": "none"},
]


def test_which_manager_wrote_a_field() -> None:
    """RELB-13: by the name of the field, whatever else stands there."""
    body = b'{"metadata": {"managedFields": %b}}' % msgspec.json.encode(MANAGED)

    assert decode_field_writers(body, ("spec", "ref")) == {
        "tag": ("kustomize-controller", "kubectl-edit"),
        "semver": ("kubectl-edit",),
    }


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[", b'{"metadata": {"managedFields": 7}}', b"\xff", b"[" * 100_000]
)
def test_what_cannot_be_read_was_written_by_no_manager(body: bytes) -> None:
    """RELB-13."""
    assert decode_field_writers(body, ("spec", "ref")) == {}
