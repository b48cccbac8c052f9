"""Large objects that cannot be read: named without being built (LI-09)."""

import tracemalloc

import pytest

from rollout_operator.model.decode.objects import decode_pod, salvage
from rollout_operator.model.errors import DecodeError

BLOCK = b'{"f:a":' * 90 + b"{}" + b"}" * 90
OWNERS = b'[{"uid":"u-set","controller":true}]'


def _body(filler: bytes) -> bytes:
    return (
        b'{"kind":"Pod","metadata":{"name":"a-0","namespace":"prod","uid":"u","resourceVersion":"7",'
        b'"labels":{"rollout-group":"g"},"ownerReferences":%b,"managedFields":[%b]},'
        b'"status":{"phase":5}}' % (OWNERS, filler)
    )


@pytest.mark.parametrize("count", [1, 1_700], ids=["small", "1.2 MB"])
def test_li09_a_large_object_that_cannot_be_read_is_named_without_being_built(count: int) -> None:
    """LI-09: the loop stands still for as long as a third of a second otherwise."""
    body = _body(b",".join([BLOCK] * count))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as caught:
            decode_pod(body)
        found = salvage("Pod", body, caught.value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert str(caught.value) == "Pod prod/a-0: status.phase: expected str, got int: 5"
    assert (found.name, found.uid, found.owner_uid, found.group) == ("a-0", "u", "u-set", "g")
    assert peak < 3 * len(body) + 100_000
