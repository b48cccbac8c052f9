"""Which credential of a pull secret is sent to which registry (REL-38, RELB-29, RT-93, RT-94)."""

import base64
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.releases import parse_repository
from rollout_operator.oci.exchange import Keyring, RegistryCredential, decode_pull_secret
from tests.examples import repeatable


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(auths: Mapping[str, object]) -> Mapping[str, bytes]:
    """Return the data of a Secret of type `kubernetes.io/dockerconfigjson`."""
    return {".dockerconfigjson": json.dumps({"auths": auths}).encode()}


def keyring(*keys: str) -> Keyring:
    """Return a keyring whose credentials are named by their keys."""
    return decode_pull_secret(secret({key: {"auth": encode("robot:hidden")} for key in keys}))


@pytest.mark.parametrize(
    ("keys", "image", "chosen"),
    [
        pytest.param("ghcr.io", "ghcr.io/team/app", "ghcr.io", id="RT-94 equal"),
        pytest.param("quay.io", "ghcr.io/team/app", None, id="RT-94 another host"),
        ("https://ghcr.io", "ghcr.io/team/app", "https://ghcr.io"),
        ("https://ghcr.io/v2/", "ghcr.io/team/app", "https://ghcr.io/v2/"),
        ("http://ghcr.io/v1", "ghcr.io/team/app", "http://ghcr.io/v1"),
        ("GHCR.IO", "ghcr.io/team/app", "GHCR.IO"),
        ("ghcr.io/", "ghcr.io/team/app", "ghcr.io/"),
        ("https://index.docker.io/v1/", "nginx", "https://index.docker.io/v1/"),
        ("docker.io", "nginx", "docker.io"),
        ("registry-1.docker.io", "docker.io/team/app", "registry-1.docker.io"),
        ("index.docker.io", "index.docker.io/team/app", "index.docker.io"),
        ("docker.io/team", "team/app", "docker.io/team"),
        ("docker.io/other", "team/app", None),
        ("evil-docker.io", "nginx", None),
        ("a.b:5000", "a.b:5000/app", "a.b:5000"),
        ("a.b", "a.b:5000/app", None),
        ("a.b:5000", "a.b/app", None),
        ("[::1]:5000", "[::1]:5000/app", "[::1]:5000"),
        ("ghcr.io/team", "ghcr.io/team/app", "ghcr.io/team"),
        ("ghcr.io/team/app", "ghcr.io/team/app", "ghcr.io/team/app"),
        ("ghcr.io/v2/team", "ghcr.io/team/app", "ghcr.io/v2/team"),
        ("ghcr.io/team/app", "ghcr.io/team", None),
        ("ghcr.io/other", "ghcr.io/team/app", None),
        ("ghcr.io/team", "ghcr.io/teamwork/app", "ghcr.io/team"),
        ("*.ghcr.io", "eu.ghcr.io/app", "*.ghcr.io"),
        ("*.ghcr.io", "ghcr.io/app", None),
        ("*.io", "eu.ghcr.io/app", None),
        ("*", "ghcr.io/app", None),
        ("*.*.io", "eu.ghcr.io/app", "*.*.io"),
        ("e?.ghcr.io", "eu.ghcr.io/app", "e?.ghcr.io"),
        ("e[t-v].ghcr.io", "eu.ghcr.io/app", "e[t-v].ghcr.io"),
        ("e[^t-v].ghcr.io", "eu.ghcr.io/app", None),
        ("*.ghcr.io:5000", "eu.ghcr.io/app", None),
        ("*.ghcr.io/team", "eu.ghcr.io/team/app", "*.ghcr.io/team"),
        ("eu.ghcr.io *.ghcr.io", "eu.ghcr.io/app", "eu.ghcr.io"),
        ("*.ghcr.io eu.ghcr.io", "eu.ghcr.io/app", "eu.ghcr.io"),
        ("ghcr.io ghcr.io/team ghcr.io/te", "ghcr.io/team/app", "ghcr.io/team"),
        ("https://ghcr.io ghcr.io", "ghcr.io/team/app", "https://ghcr.io"),
        ("", "ghcr.io/team/app", None),
    ],
)
def test_keys_match_as_for_the_kubelet(keys: str, image: str, chosen: str | None) -> None:
    """RELB-29: scheme, path, port, wildcards and the names of Docker Hub."""
    found = keyring(*keys.split()).choose(parse_repository(image))
    assert (found.key if found else None) == chosen


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"auth": encode("robot:hidden")}, {"username": "robot", "password": "hidden"}),
        ({"auth": encode("robot:a:b")}, {"username": "robot", "password": "a:b"}),
        ({"auth": encode("robot:x").rstrip("=")}, {"username": "robot", "password": "x"}),
        ({"auth": f"{encode('robot:x')}\n"}, {"username": "robot", "password": "x"}),
        ({"auth": encode("robot:x\x00\x00")}, {"username": "robot", "password": "x"}),
        ({"username": "a", "password": "b"}, {"username": "a", "password": "b"}),
        (
            {"username": "a", "password": "b", "auth": encode("robot:hidden")},
            {"username": "robot", "password": "hidden"},
        ),
        ({"identitytoken": "t", "auth": encode("0:")}, {"username": "0", "identity_token": "t"}),
        ({"registrytoken": "t"}, {"registry_token": "t"}),
        ({"username": "a", "password": "b", "email": "c@d", "x": [1]},
         {"username": "a", "password": "b"}),
        ({}, None),
        ({"auth": ""}, None),
        ({"username": None, "auth": None}, None),
    ],
)  # fmt: skip
def test_an_entry_is_read_in_all_spellings(
    entry: Mapping[str, object], expected: Mapping[str, str] | None
) -> None:
    """RELB-29, RT-93: `auth` wins, and an entry that says nothing is none."""
    of_secret = [
        secret({"ghcr.io": entry}),
        {".dockercfg": json.dumps({"ghcr.io": entry}).encode()},
    ]
    for data in of_secret:
        found = decode_pull_secret(data).choose(parse_repository("ghcr.io/team/app"))
        assert found == (
            None if expected is None else RegistryCredential(key="ghcr.io", **expected)
        )


@pytest.mark.parametrize("data", [{}, {"token": b"x"}, secret({}), {".dockerconfigjson": b"{}"}])
def test_a_secret_without_credentials_means_none(data: Mapping[str, bytes]) -> None:
    """REL-38, RT-93: the registry is called without."""
    assert decode_pull_secret(data).choose(parse_repository("nginx")) is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(
            (key, text)
            for key in (".dockerconfigjson", ".dockercfg")
            for text in (b"", b"hidden", b"[]", b"\xff", b"[" * 100_000, b"null")
        ),
        (".dockerconfigjson", b'{"auths": "hidden"}'),
    ],
)
def test_a_broken_secret_is_named_by_its_key_alone(key: str, text: bytes) -> None:
    """RELB-29."""
    with pytest.raises(InvalidInput, match=rf"data\[{key}\] of the pull secret is no JSON") as at:
        decode_pull_secret({key: text})
    assert "hidden" not in repr(at.value)
    assert at.value.__context__ is None, "a traceback would show what was read"


@pytest.mark.parametrize(
    "entry",
    [{"auth": encode("hidden")}, {"auth": "%hidden%"}, {"auth": "/w=="},
     {"username": ["hidden"]}, "hidden", None],
)  # fmt: skip
def test_a_broken_entry_stops_its_own_registry_only(entry: object) -> None:
    """RELB-29: by its key, and without what it holds."""
    found = decode_pull_secret(secret({"ghcr.io": entry, "quay.io": {"registrytoken": "t"}}))

    assert found.choose(parse_repository("quay.io/app")) is not None
    assert found.choose(parse_repository("nginx")) is None
    with pytest.raises(InvalidInput, match=r'the pull secret\'s entry "ghcr\.io"') as caught:
        found.choose(parse_repository("ghcr.io/app"))
    assert "hidden" not in repr(caught.value)


def test_no_credential_is_shown() -> None:
    """RELB-29: neither in a log nor in an error."""
    entry = {"auth": encode("mallory:hidden"), "identitytoken": "hidden", "registrytoken": "hidden"}
    found = decode_pull_secret(secret({"ghcr.io": entry}))
    assert "hidden" not in f"{found!r} {found}"
    assert "mallory" not in f"{found!r} {found}"


_KEYS = st.text(alphabet="a.*?[]-^:/v12", max_size=20)


@repeatable(300)
@given(
    st.dictionaries(_KEYS, st.just({"registrytoken": "t"}), max_size=4), st.text("a./:", max_size=9)
)
def test_whatever_stands_in_a_secret_is_chosen_from_or_not(
    auths: Mapping[str, object], image: str
) -> None:
    """RELB-29: no key and no image breaks the choice."""
    try:
        repository = parse_repository(image)
    except InvalidInput:
        repository = parse_repository("a.a/a")
    found = decode_pull_secret(secret(auths)).choose(repository)
    assert found is None or found.key in auths
