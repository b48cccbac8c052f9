"""Whatever pods say is an answer; cases are in pod_answer.txt."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.decode.objects import decode_pod_answer
from rollout_operator.model.scaling import PodAnswer

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def decode(body: bytes, status: int = 200) -> PodAnswer:
    return decode_pod_answer("zone-a-4", status, body, NOW)


@given(st.binary(max_size=80) | st.text(st.sampled_from('{}[]":timestamp0123456789.-e ')))
def test_nothing_that_pods_say_is_an_error(said: bytes | str) -> None:
    """SI-23, FP-25."""
    word = decode(said if isinstance(said, bytes) else said.encode())

    assert (word.since is None) is bool(word.problem)
    assert word.problem.isascii()
    assert word.problem.isprintable()
    assert len(word.problem) < 200
