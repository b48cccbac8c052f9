"""The client on the reference registry that wants tokens of a token server (RELB-29)."""

from collections.abc import AsyncIterator, Iterator

import pytest

from rollout_operator.model.releases.reference import parse_reference
from rollout_operator.oci.errors import RegistryDenied
from tests.oci.registries import NAME, Reader, open_reader
from tests.oci.test_reference_registry import access
from tests.world.images import authorization, push_image
from tests.world.pki import make_pki
from tests.world.registry import serving
from tests.world.tokens import TokenServer, render_auth, serving_tokens, sign_token

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module", name="served")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, TokenServer]]:
    """Serve one release; only who has a token may read it."""
    folder = tmp_path_factory.mktemp("registry")
    pki = make_pki(folder)
    with serving_tokens(pki) as tokens, serving(folder, render_auth(tokens, pki)) as host:
        shown = authorization.set(f"Bearer {sign_token(pki, [f'repository:{NAME}:pull,push'])}")
        push_image(host, "1.0.0", title="App")
        authorization.reset(shown)
        yield host, tokens


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    reader = open_reader()
    yield reader
    await reader.sender.close()


async def test_one_token_is_good_for_a_repository(
    served: tuple[str, TokenServer], reader: Reader
) -> None:
    """RELB-29: it is requested once, to pull, with the password of the pull secret."""
    host, tokens = served
    tokens.requested.clear()
    image = parse_reference(f"{host}/{NAME}:1.0.0")

    found = await reader.client.fetch_release(image, access(host))
    assert found.title == "App"
    assert await reader.client.fetch_release(image, access(host)) == found
    assert tokens.requested == [f"repository:{NAME}:pull"]


async def test_without_a_password_there_is_no_token(
    served: tuple[str, TokenServer], reader: Reader
) -> None:
    """RELB-29."""
    host, tokens = served
    tokens.requested.clear()
    image = parse_reference(f"{host}/{NAME}:1.0.0")

    with pytest.raises(RegistryDenied, match="it does not accept the pull secret's entry"):
        await reader.client.fetch_release(image, access(host, "wrong"))
    assert tokens.requested == []
