"""Specs of schedules that are no JSON; others are in schedule.txt."""

import pytest

from rollout_operator.model.decode.releases import decode_release_schedule
from rollout_operator.model.names import InvalidInput


def test_what_is_no_json_is_refused() -> None:
    for raw in (b"", b"{", b'{"rules": [{"name": "\xff"}]}', b"[" * 100_000):
        with pytest.raises(InvalidInput, match=r"^spec: "):
            decode_release_schedule(raw)
