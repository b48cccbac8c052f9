"""Who writes `spec.replicas` by a hostile text; cases are in replica_writers.txt."""

import pytest

from rollout_operator.model.decode.objects import decode_replica_writers

DEEP = 500_000


@pytest.mark.parametrize("place", ["fields", "entries"])
def test_a_mebibyte_of_nesting_names_no_manager_and_fails_nothing(place: str) -> None:
    nested = '{"f:a":' * DEEP + "{}" + "}" * DEEP
    fields = f'{{"manager":"x","fieldsV1":{{"f:spec":{nested}}}}}'
    managed = f"[{fields}]" if place == "fields" else f"[{nested}]"
    body = f'{{"metadata":{{"managedFields":{managed}}}}}'
    assert decode_replica_writers(body.encode(), but="us") == ()


@pytest.mark.parametrize("body", [b"", b'{"metadata": {"managedFields": [{"manager": "\xff"}]}}'])
def test_what_is_no_json_names_no_manager(body: bytes) -> None:
    assert decode_replica_writers(body, but="us") == ()
