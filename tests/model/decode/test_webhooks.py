"""Which webhook configurations are read, in which forms; their fields are in webhook.txt."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.store import decides
from rollout_operator.model.decode.installation import (
    decode_mutating_webhooks,
    decode_validating_webhooks,
)
from rollout_operator.model.names import DecodeError
from rollout_operator.model.objects import WebhookConfiguration
from tests.model.webhook_trees import Tree, configuration_tree, hook_tree
from tests.model.wire_trees import as_json, with_metadata


def read(tree: Tree) -> WebhookConfiguration:
    return decode_validating_webhooks(as_json(tree))


def test_both_kinds_are_read_alike_and_distinguished() -> None:
    raw = as_json(configuration_tree())
    validating, mutating = decode_validating_webhooks(raw), decode_mutating_webhooks(raw)
    assert mutating.kind == "MutatingWebhookConfiguration"
    assert msgspec.structs.replace(mutating, kind=validating.kind) == validating


@pytest.mark.parametrize(
    "raw",
    [b"{}", as_json(configuration_tree()), msgspec.Raw(as_json(configuration_tree()))],
    ids=["broken", "bytes", "raw"],
)
def test_items_of_a_list_may_be_raw(raw: bytes | msgspec.Raw) -> None:
    if raw == b"{}":
        with pytest.raises(DecodeError):
            decode_validating_webhooks(raw)
    else:
        assert decode_validating_webhooks(raw).name == "guard"


def test_a_change_of_what_is_not_read_decides_nothing() -> None:
    old = read(configuration_tree())
    new = read(with_metadata(configuration_tree(), resourceVersion="8", annotations={"a": "b"}))
    assert not decides(old, new)
    assert decides(old, read(configuration_tree("guard", 8, hook_tree(caBundle="QQ=="))))


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_fp_13_no_bytes_break_the_decoder(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_validating_webhooks(raw)
