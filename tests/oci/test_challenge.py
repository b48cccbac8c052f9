"""`WWW-Authenticate`, as registries and liars write it (RELB-29)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.oci.tokens import Challenge, parse_challenges
from tests.examples import repeatable

HUB = (
    'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
    'scope="repository:library/nginx:pull"'
)
OF_HUB = Challenge(
    "bearer",
    {
        "realm": "https://auth.docker.io/token",
        "service": "registry.docker.io",
        "scope": "repository:library/nginx:pull",
    },
)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([HUB], [OF_HUB]),
        (["Basic"], [Challenge("basic")]),
        (["", " , "], []),
        (['BASIC Realm="a b"'], [Challenge("basic", {"realm": "a b"})]),
        ([f'Basic realm="x", {HUB}'], [Challenge("basic", {"realm": "x"}), OF_HUB]),
        (["Basic", HUB], [Challenge("basic"), OF_HUB]),
        (['Bearer realm = "a", scope=b'], [Challenge("bearer", {"realm": "a", "scope": "b"})]),
        ([r'Bearer realm="a\"b\\c"'], [Challenge("bearer", {"realm": r'a"b\c'})]),
        (['Bearer realm="a,b=c"'], [Challenge("bearer", {"realm": "a,b=c"})]),
        (['Bearer realm="a",realm="b"'], [Challenge("bearer", {"realm": "a"})]),
        (['Negotiate abc==, Basic realm="x"'],
         [Challenge("negotiate"), Challenge("abc"), Challenge("basic", {"realm": "x"})]),
        (['Bearer realm="never ends'], [Challenge("bearer")]),
        (["Basic"] * 20, [Challenge("basic")] * 8),
    ],
)  # fmt: skip
def test_challenges_are_read(headers: list[str], expected: list[Challenge]) -> None:
    found = parse_challenges(headers)
    # What is no challenge may leave rests, of schemes that no registry has.
    known = {"bearer", "basic"}
    assert [one for one in found if one.scheme in known] == [
        one for one in expected if one.scheme in known
    ]


@repeatable(500)
@given(st.lists(st.text(alphabet='Ba= ,"\\\t\u00e4', max_size=30), max_size=3))
def test_any_text_is_read_or_skipped(headers: list[str]) -> None:
    assert len(parse_challenges(headers)) <= 8


def test_a_long_header_takes_no_time() -> None:
    """SEC-16: only its beginning is read, and each byte of that once."""
    for text in ('a="' + "\\" * 10**6, "a " * 10**6, "=" * 10**6, 'a="b",' * 10**6):
        assert len(parse_challenges([text])) <= 8
