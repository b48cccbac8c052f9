"""Names of images, as container engines read them (RELB-29, RT-95)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.releases import (
    ImageReference,
    Repository,
    check_tag,
    parse_reference,
    parse_repository,
)
from tests.examples import repeatable

SHA256 = f"sha256:{'0a' * 32}"
SHA512 = f"sha512:{'0a' * 64}"


@pytest.mark.parametrize(
    ("text", "registry", "name", "tag", "digest"),
    [
        ("nginx", "docker.io", "library/nginx", None, None),
        ("nginx:1.27", "docker.io", "library/nginx", "1.27", None),
        ("team/app", "docker.io", "team/app", None, None),
        ("docker.io/nginx", "docker.io", "library/nginx", None, None),
        ("index.docker.io/team/app:1", "docker.io", "team/app", "1", None),
        ("ghcr.io/team/app:v1.2.3", "ghcr.io", "team/app", "v1.2.3", None),
        ("GHCR.io/team/app", "ghcr.io", "team/app", None, None),
        (f"ghcr.io/team/app@{SHA256}", "ghcr.io", "team/app", None, SHA256),
        (f"ghcr.io/team/app:1@{SHA512}", "ghcr.io", "team/app", "1", SHA512),
        ("localhost/app:1", "localhost", "app", "1", None),
        ("localhost:5000", "docker.io", "library/localhost", "5000", None),
        ("localhost:5000/app", "localhost:5000", "app", None, None),
        ("registry:5000/a/b/c:1_2-3.4", "registry:5000", "a/b/c", "1_2-3.4", None),
        ("10.0.0.7:443/app", "10.0.0.7:443", "app", None, None),
        ("[::1]:5000/app:1", "[::1]:5000", "app", "1", None),
        ("Localhost/app", "localhost", "app", None, None),
        ("a.b/x__y/z--w/v.u", "a.b", "x__y/z--w/v.u", None, None),
        (f"a.b/{'x' * 255}:{'y' * 128}", "a.b", "x" * 255, "y" * 128, None),
    ],
)
def test_a_name_is_read(
    text: str, registry: str, name: str, tag: str | None, digest: str | None
) -> None:
    """RELB-29: what names no registry is of Docker Hub."""
    expected = ImageReference(Repository(registry, name), tag=tag, digest=digest)
    assert parse_reference(text) == expected
    assert parse_reference(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", '"" is no part of a repository'),
        ("https://ghcr.io/team/app", "it has no scheme"),
        ("ghcr.io/", '"" is no part of a repository'),
        ("ghcr.io/Team/app", '"Team" is no part'),
        ("Registry/app", '"Registry" is no part'),
        ("ghcr.io/team//app", '"" is no part'),
        ("ghcr.io/team/../app", '".." is no part'),
        ("ghcr.io/team/.app", '".app" is no part'),
        ("ghcr.io/team/a___b", '"a___b" is no part'),
        ("ghcr.io/team/a%2fb", "is no part"),
        ("ghcr.io/team/app?x=y", "is no part"),
        ("ghcr.io/team/app#x", "is no part"),
        ("ghcr.io/team/\u00e4pp", "is no part"),
        ("ghcr.io/team/app\n", "is no part"),
        ("user:secret@ghcr.io/team/app", "is no digest"),
        ("-a.b/app", '"-a.b" is no host'),
        ("a..b/app", '"a..b" is no host'),
        ("a.b:/app", "is no host"),
        ("a.b:x/app", "is no host"),
        ("a.b:0/app", "0 is no port"),
        ("a.b:65536/app", "65536 is no port"),
        ("a_b.c/app", "is no host"),
        ("app:", '"" is no tag'),
        ("app:.1", '".1" is no tag'),
        (f"app:{'x' * 129}", "is no tag"),
        ("app@sha256:00", '"sha256:00" is no digest'),
        (f"app@{SHA256.upper()}", "is no digest"),
        ("app@md5:" + "0" * 32, "is no digest"),
        (f"a.b/{'x' * 256}", "at most 255 characters"),
        ("x" * 2000, "longer than 1024 characters"),
    ],
)
def test_what_is_no_name_is_refused(text: str, problem: str) -> None:
    """RT-95: by its text, and no registry is called."""
    with pytest.raises(InvalidInput) as caught:
        parse_reference(text)
    assert "is no name of an image: " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["ghcr.io/team/app:1", f"ghcr.io/team/app@{SHA256}"])
def test_a_repository_has_no_tag(text: str) -> None:
    """RT-95: as ImageRepository names it."""
    with pytest.raises(InvalidInput, match="it has a tag or a digest"):
        parse_repository(text)


def test_docker_hub_answers_under_another_name() -> None:
    assert parse_repository("nginx").host == "registry-1.docker.io"
    assert parse_repository("ghcr.io/team/app").host == "ghcr.io"


@repeatable(500)
@given(st.text(alphabet="aZ09._-:/@[]%?#\\ \n\u00e4", max_size=40))
def test_no_text_leads_out_of_the_path_of_a_url(text: str) -> None:
    """RELB-29: whatever is accepted, and it is read the same again."""
    try:
        reference = parse_reference(text)
    except InvalidInput:
        return
    assert parse_reference(str(reference)) == reference
    assert not set(reference.repository.name) & set("%?#\\ \n@:")
    assert ".." not in reference.repository.name
    assert reference.tag is None or check_tag(reference.tag) == reference.tag
