"""What is read of the objects of an installation, and what of a Secret is not."""

import copy
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rollout_operator.gates import model as gates
from rollout_operator.model.decode import custom
from rollout_operator.model.decode.installation import (
    decode_allowed,
    decode_certificate,
    decode_missing_fields,
    decode_served_versions,
    decode_username,
)
from rollout_operator.model.names import DecodeError
from rollout_operator.releases.model import decode as releases


def encode(**fields: object) -> bytes:
    return msgspec.json.encode(fields)


DEFINED = {**custom.DEFINED, **releases.DEFINED, **gates.DEFINED}
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


def test_of_a_secret_the_certificate_is_read_and_nothing_else() -> None:
    data = {"cert": b64encode(b"PEM").decode(), "key": b64encode(b"hidden").decode()}
    assert decode_certificate(encode(data=data)) == b"PEM"
    assert decode_certificate(encode()) == b""
    assert decode_certificate(encode(data={"cert": "%"})) == b""
    with pytest.raises(DecodeError) as caught:
        decode_certificate(encode(data={"cert": 1, "key": "hidden"}))
    assert "hidden" not in str(caught.value)


def test_versions_of_a_kind_that_are_served() -> None:
    versions = [{"name": "v1", "served": True}, {"name": "v2", "served": False}]
    raw = encode(metadata={"name": "x"}, spec={"versions": versions})
    assert decode_served_versions(raw) == ("v1",)


def test_answers_of_reviews() -> None:
    assert decode_allowed("SubjectAccessReview", encode(status={"allowed": True})) is True
    assert decode_username(encode(status={"userInfo": {"username": "me"}})) == "me"
