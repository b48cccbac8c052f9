"""MIRR-04, W-42: what a Scale shows, and why one shows nothing."""

import pytest

from rollout_operator.kube.api import Resource, Served
from rollout_operator.kube.scales import (
    Shown,
    change_decoder,
    check_kind,
    decode_scale,
    explain,
    is_lasting,
)
from rollout_operator.kube.store import decides
from rollout_operator.model.names import (
    ApiError,
    DecodeError,
    Denied,
    InvalidInput,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.scaling import NoScale, Reference, Scale

REFERENCE = Reference("x.example.org", "Thing", "demo")
META = '"metadata": {"namespace": "prod", "name": "demo", "resourceVersion": "7"}'


@pytest.mark.parametrize(
    ("fields", "scale"),
    [
        pytest.param('"spec": {"replicas": 3}, "status": {"replicas": 2}', (3, 2), id="both"),
        pytest.param('"spec": {}, "status": {"replicas": 0}', (0, 0), id="zero is left out"),
        pytest.param('"kind": "Scale"', (0, 0), id="no spec and no status"),
        pytest.param(f'"spec": {{"replicas": {2**31 - 1}}}', (2**31 - 1, 0), id="most"),
    ],
)
def test_counts_are_read(fields: str, scale: tuple[int, int]) -> None:
    raw = f"{{{META}, {fields}}}".encode()
    assert decode_scale(raw) == Shown(Scale(replicas=scale[0], status_replicas=scale[1]), "7")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param('"spec": {"replicas": -1}', "spec.replicas: .*: -1", id="negative"),
        pytest.param(f'"spec": {{"replicas": {2**31}}}', f"spec.replicas: .*{2**31}", id="large"),
        pytest.param('"spec": {"replicas": "3"}', 'spec.replicas: .*"3"', id="text"),
        pytest.param('"spec": {"replicas": 1.5}', "spec.replicas: .*1.5", id="fraction"),
        pytest.param('"status": {"replicas": -2}', "status.replicas: .*-2", id="status"),
        pytest.param('"kind": "Status"', "kind: expected Scale", id="another kind"),
    ],
)
def test_si_10_what_is_no_count_is_named(fields: str, message: str) -> None:
    with pytest.raises(DecodeError, match=f"^Scale prod/demo: {message}"):
        decode_scale(f"{{{META}, {fields}}}".encode())


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


def found(*subresources: str, is_namespaced: bool = True) -> Served:
    resource = Resource("x.example.org", "v1", "things", "Thing", is_namespaced)
    return Served(resource=resource, subresources=frozenset(subresources))


def test_a_kind_with_a_scale_is_fine() -> None:
    assert check_kind(REFERENCE, found("scale")) == found("scale").resource


@pytest.mark.parametrize(
    ("served", "message"),
    [
        pytest.param(None, "knows no kind 'Thing' in API group 'x.example.org'", id="unknown"),
        pytest.param(found("status"), "things in x.example.org/v1 have no scale", id="no scale"),
        pytest.param(
            found("scale", is_namespaced=False),
            "things in x.example.org/v1 belong to no namespace",
            id="of the cluster",
        ),
    ],
)
def test_a_kind_that_cannot_be_mirrored_is_a_person_s_matter(
    served: Served | None, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_kind(REFERENCE, served)


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        (NotFound("x", status=404), True),
        (Refused("x", status=405), True),
        (Denied("x", status=403), True),
        (DecodeError("x"), True),
        (Denied("x", status=401), False),
        (Denied("x", status=511), False),
        (Unreachable("x"), False),
        (TooManyRequests("x"), False),
        (Throttled("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_when_a_person_must_act(error: ApiError | InvalidInput, lasts: bool) -> None:
    assert is_lasting(error) is lasts
    expected = "not allowed in namespace prod: x" if getattr(error, "status", 0) == 403 else "x"
    assert explain(REFERENCE, error, "prod") == NoScale(
        why=f"Thing.x.example.org demo: {expected}", is_lasting=lasts
    )
