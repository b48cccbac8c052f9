"""What is read of the objects of an installation, and what of a Secret is not."""

import copy
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rollout_operator.model.decode import custom, releases
from rollout_operator.model.decode.installation import (
    decode_allowed,
    decode_certificate,
    decode_hooks,
    decode_missing_fields,
    decode_operator,
    decode_served_versions,
    decode_username,
    decode_zone_set,
)
from rollout_operator.model.names import DecodeError

_decode_operator = partial(decode_operator, program="rollout-operator")


def encode(**fields: object) -> bytes:
    return msgspec.json.encode(fields)


def deployment(image: str, labels: dict[str, str] | None = None) -> bytes:
    containers = [{"image": "proxy:1"}, {"image": image, "command": ["x"], "args": ["-a"]}]
    return encode(
        metadata={"name": "one", "labels": labels or {}},
        spec={"template": {"spec": {"containers": containers}}},
    )


@pytest.mark.parametrize(
    "image",
    [
        "rollout-operator",
        "grafana/rollout-operator:v0.39.0",
        "host:5000/hardened/grafana-rollout-operator@sha256:abc",
    ],
)
def test_an_operator_is_known_by_its_image(image: str) -> None:
    found = _decode_operator(deployment(image))
    assert found is not None
    assert (found.arguments, found.account, found.replicas, found.ready) == (
        ("x", "-a"), "default", 1, 0,
    )  # fmt: skip


def test_or_by_the_labels_that_charts_give_it() -> None:
    for key in ("app.kubernetes.io/name", "name"):
        found = _decode_operator(deployment("mirror/image:1", {key: "rollout-operator"}))
        assert found is not None
    assert _decode_operator(deployment("rollout-operator-docs", {"name": "docs"})) is None


def test_variables_of_the_operator_are_kept_and_those_from_elsewhere_named() -> None:
    env = [
        {"name": "LOG_LEVEL", "value": "warn"},
        {"name": "WATCH_NAMESPACE"},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ]
    container = {"image": "x/rollout-operator:1", "env": env}
    spec = {"template": {"spec": {"containers": [container]}}}
    found = _decode_operator(encode(metadata={"name": "d"}, spec=spec))
    assert found is not None
    assert found.variables == {
        "LOG_LEVEL": "warn",
        "WATCH_NAMESPACE": "",
        "POD_NAMESPACE": "$(POD_NAMESPACE)",
    }


def test_versions_of_a_kind_that_are_served() -> None:
    versions = [{"name": "v1", "served": True}, {"name": "v2", "served": False}]
    raw = encode(metadata={"name": "x"}, spec={"versions": versions})
    assert decode_served_versions(raw) == ("v1",)


DEFINED = {**custom.DEFINED, **releases.DEFINED}
DEFINITIONS = {
    body["spec"]["names"]["kind"]: body
    for path in Path("manifests/crds").rglob("*.yaml")
    if (body := yaml.safe_load(path.read_text()))["kind"] == "CustomResourceDefinition"
}
# Nobody writes them. Of a ReplicaTemplate, the subresource alone is read.
NOT_USED = {"RolloutGate": {"status"}}


def _list_properties(schema: Any, place: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield each field of a schema: its path, the properties that it is in, and its name there."""
    properties = schema.get("items", schema).get("properties", {})
    for name, below in properties.items():
        yield f"{place}{name}", properties, name
        yield from _list_properties(below, f"{place}{name}.")


def _list_fields(kind: str) -> Iterator[str]:
    [version] = DEFINITIONS[kind]["spec"]["versions"]
    for path, _, _ in _list_properties(version["schema"]["openAPIV3Schema"]):
        top = path.partition(".")[0]
        if top not in {"apiVersion", "kind", "metadata", *NOT_USED.get(kind, ())}:
            yield path


def _find_missing(kind: str, path: str = "") -> tuple[str, ...]:
    """Return what is missing in the shipped definition of a kind without the field at a path."""
    body = copy.deepcopy(DEFINITIONS[kind])
    [version] = body["spec"]["versions"]
    for field, properties, name in [*_list_properties(version["schema"]["openAPIV3Schema"])]:
        if field == path:
            del properties[name]
    return decode_missing_fields(msgspec.json.encode(body), version["name"], DEFINED[kind])


@pytest.mark.parametrize("kind", sorted(DEFINITIONS.keys() - {"ReplicaTemplate"}))
def test_each_field_that_an_old_definition_lacks_is_named(kind: str) -> None:
    """The shipped definitions lack none."""
    assert _find_missing(kind) == ()
    fields = [*_list_fields(kind)]
    assert {path: _find_missing(kind, path) for path in fields} == {one: (one,) for one in fields}


def test_a_definition_without_status_and_one_that_keeps_all() -> None:
    kind = "MultiAZRollout"
    body = copy.deepcopy(DEFINITIONS[kind])
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"] = {"x-kubernetes-preserve-unknown-fields": True}
    raw = msgspec.json.encode(body)
    assert decode_missing_fields(raw, "v1alpha1", DEFINED[kind]) == ()
    assert decode_missing_fields(raw, "v1", DEFINED[kind]) == ()
    schema["x-kubernetes-preserve-unknown-fields"] = True
    del schema["properties"]
    raw = msgspec.json.encode(body)
    assert decode_missing_fields(raw, "v1alpha1", DEFINED[kind]) == ()


def test_a_set_keeps_all_keys() -> None:
    found = decode_zone_set(
        encode(
            metadata={
                "name": "a",
                "namespace": "p",
                "uid": "u",
                "resourceVersion": "1",
                "labels": {"x": "y"},
                "annotations": {"rollout-max-unavailible": "1"},
            },
            spec={"template": {"metadata": {"labels": {"app": "a"}}}},
        )
    )
    assert found.labels == {"x": "y"}
    assert found.annotations == {"rollout-max-unavailible": "1"}
    assert found.pod_labels == {"app": "a"}


def test_only_webhooks_with_our_paths_are_kept() -> None:
    service = {"name": "s", "namespace": "p", "path": "/admission/pod-eviction"}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "p"}}
    ours = {
        "name": "ours",
        "clientConfig": {"service": service, "caBundle": "Y2E="},
        "failurePolicy": "Ignore",
        "namespaceSelector": selector,
    }
    other = {"name": "other", "clientConfig": {"url": "https://x/validate"}}
    labels = {"grafana.com/namespace": "p"}
    head = {"name": "c", "uid": "u", "resourceVersion": "1", "labels": labels}
    raw = encode(metadata=head, webhooks=[other, ours])
    ((hook, bundle),) = decode_hooks("ValidatingWebhookConfiguration", raw)

    assert (hook.configuration, hook.name, bundle) == (
        "ValidatingWebhookConfiguration c", "ours", "Y2E=",
    )  # fmt: skip
    assert (hook.owner, hook.service_namespace, hook.failure_policy) == ("p", "p", "Ignore")
    assert hook.selects.takes({"kubernetes.io/metadata.name": "p"})
    assert not hook.selects.takes({})


def test_of_a_secret_the_certificate_is_read_and_nothing_else() -> None:
    data = {"cert": b64encode(b"PEM").decode(), "key": b64encode(b"hidden").decode()}
    assert decode_certificate(encode(data=data)) == b"PEM"
    assert decode_certificate(encode()) == b""
    assert decode_certificate(encode(data={"cert": "%"})) == b""
    with pytest.raises(DecodeError) as caught:
        decode_certificate(encode(data={"cert": 1, "key": "hidden"}))
    assert "hidden" not in str(caught.value)


def test_answers_of_reviews() -> None:
    assert decode_allowed("SubjectAccessReview", encode(status={"allowed": True})) is True
    assert decode_username(encode(status={"userInfo": {"username": "me"}})) == "me"
