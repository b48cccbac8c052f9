"""JSON of a Namespace: what selectors of namespaces go by."""

import pytest

from rollout_operator.model.decode.releases.namespace import decode_labelled_namespace
from rollout_operator.model.errors import DecodeError
from tests.model.decode.releases.trees import as_json


def test_a_namespace_counts_by_its_labels() -> None:
    """REL-29."""
    found = decode_labelled_namespace(as_json({}, labels={"team": "web"}))

    assert (found.head.name, found.labels) == ("app", {"team": "web"})
    assert decode_labelled_namespace(as_json({})).labels == {}


def test_labels_that_cannot_be_read() -> None:
    """REL-29: a namespace is not selected by what is missing of it."""
    with pytest.raises(DecodeError):
        decode_labelled_namespace(as_json({}, labels={"team": 7}))
