"""Who writes `spec.replicas`: any client may write managedFields."""

import json

import pytest

from rollout_operator.model.decode.objects import decode_replica_writers

DEEP = 500_000


def entry(manager: object, fields: object) -> dict[str, object]:
    """Return one entry as the API server keeps it."""
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "apps/v1",
        "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


REPLICAS: dict[str, object] = {"f:spec": {"f:replicas": {}}}


def decode(*entries: object) -> tuple[str, ...]:
    """Return the writers of an object with these entries, but us."""
    body = json.dumps({"metadata": {"name": "zone-b", "managedFields": entries}})
    return decode_replica_writers(body.encode(), but="us")


def test_only_writers_of_the_count_are_named_and_never_us() -> None:
    found = decode(
        entry("us", REPLICAS),
        entry("kubectl-edit", {"f:metadata": {"f:labels": {}}}),
        entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}),
        entry("argocd-controller", {**REPLICAS, "f:metadata": {}}),
        entry("keda", {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {}}}}),
        entry("argocd-controller", REPLICAS),
    )
    assert found == ("argocd-controller", "keda")


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(entry("x", None), id="null"),
        pytest.param(entry("x", "text"), id="text"),
        pytest.param(entry("x", {"f:spec": [1]}), id="a list"),
        pytest.param({"manager": "x"}, id="no fields"),
        pytest.param({}, id="empty"),
        pytest.param(entry("", REPLICAS), id="no name"),
    ],
)
def test_a_broken_entry_hides_no_other(broken: object) -> None:
    assert decode(broken, entry("keda", REPLICAS)) == ("keda",)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b'{"metadata": {}}', id="no managedFields"),
        pytest.param(b'{"metadata": {"managedFields": null}}', id="null"),
        pytest.param(b'{"metadata": {"managedFields": [{"manager": 3}]}}', id="a number as name"),
        pytest.param(b'{"metadata": {"managedFields": [{"manager": "\xff"}]}}', id="no UTF-8"),
    ],
)
def test_what_cannot_be_read_names_no_manager(body: bytes) -> None:
    assert decode_replica_writers(body, but="us") == ()


@pytest.mark.parametrize("place", ["fields", "entries"])
def test_a_mebibyte_of_nesting_names_no_manager_and_fails_nothing(place: str) -> None:
    nested = '{"f:a":' * DEEP + "{}" + "}" * DEEP
    fields = f'{{"manager":"x","fieldsV1":{{"f:spec":{nested}}}}}'
    managed = f"[{fields}]" if place == "fields" else f"[{nested}]"
    body = f'{{"metadata":{{"managedFields":{managed}}}}}'
    assert decode_replica_writers(body.encode(), but="us") == ()


def test_many_entries_and_long_names_make_a_short_text() -> None:
    found = decode(*(entry(f"{number}\n" + "x" * 1000, REPLICAS) for number in range(5_000)))
    assert len(found) == 3
    assert all(len(name) <= 60 and name.isprintable() for name in found)
