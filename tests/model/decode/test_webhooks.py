"""What is read of webhook configurations, and what errors name (CA-02, CA-10, FP-13)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.store import decides
from rollout_operator.model.decode.installation import (
    decode_hooks,
    decode_mutating_webhooks,
    decode_validating_webhooks,
)
from rollout_operator.model.names import DecodeError, Uid
from rollout_operator.model.objects import Webhook, WebhookConfiguration
from tests.model.webhook_trees import OURS, Tree, configuration_tree, hook_tree
from tests.model.wire_trees import as_json, with_metadata

HOST = "rollout-operator.ops.svc"


def read(tree: Tree) -> WebhookConfiguration:
    return decode_validating_webhooks(as_json(tree))


def read_hook(tree: Tree) -> Webhook:
    (hook,) = read(configuration_tree("guard", 7, tree)).webhooks
    return hook


def test_a_configuration_is_read_whole() -> None:
    tree = configuration_tree("guard", 7, hook_tree("a", caBundle="QQ=="), hook_tree("b"))
    assert read(tree) == WebhookConfiguration(
        kind="ValidatingWebhookConfiguration",
        name="guard",
        uid=Uid("uid-guard"),
        resource_version="7",
        labels=OURS,
        webhooks=(
            Webhook(
                name="a", ca_bundle="QQ==", failure_policy="Fail", path="/admission/x", host=HOST
            ),
            Webhook(name="b", ca_bundle="", failure_policy="Fail", path="/admission/x", host=HOST),
        ),
    )


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


@pytest.mark.parametrize("labels", [None, {}, {"team": "x"}], ids=["null", "none", "others"])
def test_other_labels_are_dropped(labels: dict[str, str] | None) -> None:
    assert read(with_metadata(configuration_tree(), labels=labels)).labels == {}


def test_a_change_of_what_is_not_read_decides_nothing() -> None:
    old = read(configuration_tree())
    new = read(with_metadata(configuration_tree(), resourceVersion="8", annotations={"a": "b"}))
    assert not decides(old, new)
    assert decides(old, read(configuration_tree("guard", 8, hook_tree(caBundle="QQ=="))))


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        pytest.param("Fail", "Fail", id="METR-40 Fail"),
        pytest.param("Ignore", "Ignore", id="METR-40 Ignore"),
        pytest.param(None, "Fail", id="CA-10 null counts as Fail"),
        pytest.param("", "Fail", id="CA-10 empty counts as Fail"),
    ],
)
def test_failure_policy(policy: str | None, shown: str) -> None:
    assert read_hook({**hook_tree(), "failurePolicy": policy}).failure_policy == shown


def test_ca_10_an_absent_failure_policy_counts_as_fail() -> None:
    tree = hook_tree()
    del tree["failurePolicy"]
    assert read_hook(tree).failure_policy == "Fail"


@pytest.mark.parametrize(
    ("config", "path"),
    [
        pytest.param({"service": {"path": "/a/b"}}, "/a/b", id="of the service"),
        pytest.param({"service": {}}, "", id="service without"),
        pytest.param({"service": {"path": None}}, "", id="null"),
        pytest.param({"service": None, "url": "https://host:1/a/b?c=d#e"}, "/a/b", id="of a URL"),
        pytest.param({"service": None, "url": "https://host"}, "", id="URL without"),
        pytest.param({"service": None, "url": "https://[::1/a"}, "", id="half an address"),
        pytest.param({"service": None}, "", id="neither"),
    ],
)
def test_the_path_that_is_called(config: dict[str, Any], path: str) -> None:
    assert read_hook(hook_tree(**config)).path == path


@pytest.mark.parametrize(
    ("config", "host"),
    [
        pytest.param({}, HOST, id="of a Service"),
        pytest.param({"service": {"name": "a", "namespace": "B"}}, "a.b.svc", id="in lower case"),
        pytest.param({"service": {}}, "..svc", id="a Service without a name"),
        pytest.param({"service": None, "url": "https://Host.X:1/a"}, "host.x", id="of a URL"),
        pytest.param({"service": None, "url": "https://u@host.x/a"}, "host.x", id="not a user"),
        pytest.param({"service": None, "url": "https://[::1]:1/a"}, "::1", id="an address"),
        pytest.param({"service": None, "url": "https://[::1/a"}, "", id="half an address"),
        pytest.param({"service": None, "url": "/a"}, "", id="no host"),
        pytest.param({"service": None}, "", id="neither"),
    ],
)
def test_d31_the_name_that_has_to_be_proven(config: dict[str, Any], host: str) -> None:
    """D-31: what the API server verifies, of a Service and of a URL."""
    assert read_hook(hook_tree(**config)).host == host


@pytest.mark.parametrize("hooks", [None, []], ids=["null", "empty"])
def test_a_configuration_may_have_no_hooks(hooks: list[Tree] | None) -> None:
    assert read({**configuration_tree(), "webhooks": hooks}).webhooks == ()


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        pytest.param(
            {"kind": "Pod"}, "guard: kind: expected ValidatingWebhookConfiguration", id="kind"
        ),
        pytest.param(
            {"kind": "MutatingWebhookConfiguration"}, "guard: kind: expected", id="other of the two"
        ),
        pytest.param(
            {"webhooks": [{**hook_tree(), "failurePolicy": 7}]},
            "guard: webhooks[0].failurePolicy: expected str | null, got int: 7",
            id="policy is a number",
        ),
        pytest.param(
            {"webhooks": [{"name": "x"}]},
            "guard: webhooks[0]: object missing required field clientConfig",
            id="hook without clientConfig",
        ),
        pytest.param(
            {"metadata": {"name": "guard"}},
            "guard: metadata: object missing required field uid",
            id="no UID",
        ),
        pytest.param({"metadata": {"name": "a\nb"}}, r"a\nb: metadata", id="name with a line"),
    ],
)
def test_an_error_names_configuration_and_field(bend: dict[str, Any], message: str) -> None:
    """No namespace is missed: there is none."""
    with pytest.raises(DecodeError) as caught:
        read({**configuration_tree(), **bend})
    assert str(caught.value).startswith(f"ValidatingWebhookConfiguration {message}")


def test_what_the_operator_does_not_need_keeps_no_ca_from_a_configuration() -> None:
    """CA-02: `doctor` alone reads the selector, and names it."""
    bend = {"namespaceSelector": {"matchExpressions": [{"key": "team"}]}}
    tree = configuration_tree("guard", 7, {**hook_tree(), **bend})
    assert read(tree).name == "guard"
    with pytest.raises(DecodeError):
        decode_hooks("ValidatingWebhookConfiguration", as_json(tree))


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_fp_13_no_bytes_break_the_decoder(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_validating_webhooks(raw)
