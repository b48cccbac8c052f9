"""What pods say of since when they are prepared: DELAY-07, SEED-075, FP-25."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.decode.objects import LONGEST_BODY, decode_pod_answer
from rollout_operator.model.scaling import PodAnswer

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
SECONDS = 1767323045
DAY = 24 * 3600
NO_JSON = "the answer is no JSON object: "
NO_NUMBER = "timestamp is no whole number of seconds above 0"
AHEAD = "timestamp is more than 24h0m0s ahead, perhaps in milliseconds"


def decode(body: bytes, status: int = 200) -> PodAnswer:
    return decode_pod_answer("zone-a-4", status, body, NOW)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"timestamp": 1767323045}', SECONDS),
        (b' \n{"timestamp":1767323045 }\n', SECONDS),
        (b'{"a":[{}],"timestamp":1767319445,"b":null}', SECONDS - 3600),
        (b'{"timestamp":1}', 1),
        (b'{"timestamp":1767409445}', SECONDS + DAY),
        (b'{"timestamp":1,"timestamp":2}', 2),
        (b'{"timestamp":1767323045}' + b" " * (LONGEST_BODY - 24), SECONDS),
    ],
)
def test_a_good_answer_gives_a_time(body: bytes, seconds: int) -> None:
    """SEED-075: Unix seconds; a clock that is ahead of ours by up to a day is believed."""
    assert decode(body) == PodAnswer(called_at=NOW, since=datetime.fromtimestamp(seconds, UTC))


@pytest.mark.parametrize("status", [200, 201, 202, 299])
def test_every_2xx_counts(status: int) -> None:
    """DELAY-07."""
    assert decode(b'{"timestamp":7}', status).since == datetime.fromtimestamp(7, UTC)


@pytest.mark.parametrize("status", [0, 100, 199, 300, 307, 404, 409, 500])
def test_no_other_status_counts(status: int) -> None:
    """DELAY-07, T-05 row 5: whatever the body says."""
    assert decode(b'{"timestamp":7}', status) == PodAnswer(
        called_at=NOW, since=None, problem=f"POST zone-a-4: HTTP status {status}"
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(b"", "the answer is empty", id="nothing"),
        *(
            pytest.param(body, f"{NO_JSON}{body.decode()}", id=f"T-05 row 7 {body.decode()}")
            for body in (
                *(b"OK", b"[1]", b"1767323045", b"null", b'{"timestamp":1}x', b'{"timestamp":1'),
                *(b'{"timestamp":012}', b'{"timestamp":NaN}'),
            )
        ),
        pytest.param(b"{}", "the answer has no timestamp: {}", id="missing"),
        pytest.param(
            b'{"Timestamp":5}', 'the answer has no timestamp: {"Timestamp":5}', id="capitals"
        ),
        pytest.param(b'{"timestamp":0}', f"{NO_NUMBER}: 0", id="zero"),
        pytest.param(b'{"timestamp":-0}', f"{NO_NUMBER}: -0", id="minus zero"),
        pytest.param(b'{"timestamp":-7}', f"{NO_NUMBER}: -7", id="negative"),
        pytest.param(b'{"timestamp":true}', f"{NO_NUMBER}: true", id="a boolean"),
        pytest.param(b'{"timestamp":null}', f"{NO_NUMBER}: null", id="null inside"),
        pytest.param(b'{"timestamp":7.0}', f"{NO_NUMBER}: 7.0", id="a fraction"),
        pytest.param(b'{"timestamp":1e9}', f"{NO_NUMBER}: 1e9", id="an exponent"),
        pytest.param(b'{"timestamp":1e400}', f"{NO_NUMBER}: 1e400", id="infinity"),
        pytest.param(b'{"timestamp":"7"}', f'{NO_NUMBER}: "7"', id="a text"),
        pytest.param(b'{"timestamp":[7]}', f"{NO_NUMBER}: [7]", id="a list inside"),
        pytest.param(b'{"timestamp":1767323045000}', f"{AHEAD}: 1767323045000", id="milliseconds"),
        pytest.param(b'{"timestamp":1767409446}', f"{AHEAD}: 1767409446", id="a day and a second"),
        pytest.param(
            b'{"timestamp":9223372036854775808}', f"{AHEAD}: 9223372036854775808", id="64 bits"
        ),
        pytest.param(
            b'{"timestamp":' + b"9" * 60_000 + b"}", f"{AHEAD}: {'9' * 40}...", id="60,000 digits"
        ),
        pytest.param(
            b" " * (LONGEST_BODY + 1), "the answer is longer than 65536 bytes", id="too long"
        ),
        pytest.param(b'{"a":' + b"[" * 60_000, NO_JSON + '{"a":' + "[" * 35 + "...", id="too deep"),
        pytest.param(
            b"\x1b[31m\xff\n", NO_JSON + "\\x1b[31m\\ufffd\\n", id="SI-23 control characters"
        ),
        pytest.param(
            '{"timestamp":"\u202e"}'.encode(), f'{NO_NUMBER}: "\\u202e"', id="SI-23 odd characters"
        ),
        pytest.param(b"\0" * 40, NO_JSON + "\\x00" * 10 + "...", id="SI-23 zeros"),
    ],
)
def test_no_other_answer_gives_a_time(body: bytes, problem: str) -> None:
    """DELAY-07, FP-25: the pod and the value are named, shortly and on one line (SI-23)."""
    word = decode(body)

    assert word == PodAnswer(called_at=NOW, since=None, problem=f"POST zone-a-4: {problem}")


@given(st.binary(max_size=80) | st.text(st.sampled_from('{}[]":timestamp0123456789.-e ')))
def test_nothing_that_pods_say_is_an_error(said: bytes | str) -> None:
    """SI-23, FP-25."""
    word = decode(said if isinstance(said, bytes) else said.encode())

    assert (word.since is None) is bool(word.problem)
    assert word.problem.isascii()
    assert word.problem.isprintable()
    assert len(word.problem) < 200
