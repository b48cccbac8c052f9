"""MIRR-04, W-42: what a Scale shows, and why one shows nothing."""

from typing import Final

import pytest

from rollout_operator.kube.api import Resource, Served
from rollout_operator.kube.scales import (
    change_decoder,
    check_kind,
    decode_scale,
    explain,
    is_lasting,
)
from rollout_operator.kube.store import decides
from rollout_operator.model import names
from rollout_operator.model.names import DecodeError, InvalidInput
from rollout_operator.model.scaling import NoScale, Reference
from tests.stories import check_tables

REFERENCE: Final = Reference("x.example.org", "Thing", "demo")
META: Final = '"metadata": {"namespace": "prod", "name": "demo", "resourceVersion": "7"}'


def tell(command: str) -> str:
    verb, _, rest = command.partition(" ")
    words = rest.split()
    try:
        if verb == "read":
            shown = decode_scale(f"{{{META}, {rest}}}".encode())
            assert shown.version == "7"
            return f"{shown.scale.replicas} {shown.scale.status_replicas}"
        if verb == "kind":
            resource = Resource("x.example.org", "v1", "things", "Thing", "cluster" not in words)
            served = Served(resource=resource, subresources=frozenset(words[:1]))
            assert check_kind(REFERENCE, None if rest == "-" else served) == resource
            return "fine"
    except InvalidInput as flaw:
        return f"{type(flaw).__name__}: {flaw}"
    error = getattr(names, words[0])("x", **({"status": int(words[1])} if words[1:] else {}))
    found = explain(REFERENCE, error, "prod")
    assert isinstance(found, NoScale)
    assert found.is_lasting is is_lasting(error)
    return f"{'lasting' if found.is_lasting else 'passing'}: {found.why}"


test_scale = check_tables(__file__, scale=tell)


def test_of_an_object_that_changes_only_the_head_is_read() -> None:
    head = '"namespace": "prod", "name": "demo", "uid": "u", "resourceVersion": '
    first, second = (
        change_decoder("Thing")(f'{{"metadata": {{{head}"{n}"}}, "spec": 7}}'.encode())
        for n in (7, 8)
    )
    assert (first.namespace, first.name, first.resource_version) == ("prod", "demo", "7")
    assert decides(first, second), "whatever has changed"
    with pytest.raises(DecodeError):
        change_decoder("Thing")(b'{"metadata": {}}')
