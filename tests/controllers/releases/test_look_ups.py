"""Look-ups in registries, and by which credentials; no text has values of Secrets."""

import asyncio
import base64
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from rollout_operator.controllers.release_sources import (
    MOST_TAGS,
    PATIENCE,
    LookUpKey,
    ReleaseLookUps,
    read_access,
)
from rollout_operator.controllers.worker import Workers
from rollout_operator.kube.api import SECRETS
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.release_plan import ImageRepository
from rollout_operator.model.releases import ImageReference, ReleaseMetadata, parse_repository
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.exchange import (
    RegistryBusy,
    RegistryDenied,
    RegistryError,
    ReleaseNotFound,
)
from tests.controllers.releases.bench import FakeReleaseApi, ReleaseBench
from tests.planning.releases.builders import head
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time
from tests.world.pki import make_pki

REPOSITORY = ImageRepository(head=head("app"), image=parse_repository("registry.example/app"))
KEY = LookUpKey("app", "1.0.0")
FOUND = ReleaseMetadata(digest="sha256:0", version="v1")
INTERVAL = timedelta(minutes=1)

IMAGE = parse_repository("registry.example/team/app")
HIDDEN = "s3cret"


class FakeRegistries:
    """Answers after some seconds what is scripted, and then always that it was found."""

    def __init__(self, *script: RegistryError, takes: float = 1) -> None:
        self._script = deque(script)
        self._takes = takes
        self.requested: list[str] = []

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        self.requested.append(f"{image} at {elapsed().total_seconds():g}")
        await asyncio.sleep(self._takes)
        if self._script:
            raise self._script.popleft()
        return FOUND


class Rig:
    """Look-ups by one worker, and the Rollouts that were woken."""

    def __init__(self, registries: FakeRegistries) -> None:
        self.registries = registries
        self.woken: list[float] = []
        """After how many seconds, each time."""
        self.look_ups = ReleaseLookUps(registries, FakeReleaseApi(), VirtualClock(), self._wake)

    def _wake(self, rollout: str, wait: timedelta) -> None:
        assert rollout == "app"
        self.woken.append(wait.total_seconds())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ReleaseLookUps]:
        async with asyncio.TaskGroup() as tasks:
            workers = Workers(self.look_ups.queue, self.look_ups.look_up, count=1, rng=lambda: 0.5)
            tasks.create_task(workers.run(), name="workers")
            yield self.look_ups
            self.look_ups.queue.close()

    async def fetch(
        self, key: LookUpKey = KEY, digest: str | None = None
    ) -> tuple[bool, ReleaseMetadata | None]:
        return await self.look_ups.fetch(key, REPOSITORY, INTERVAL, digest)


@in_virtual_time
async def test_ten_passes_within_an_interval_read_once() -> None:
    """RELB-01: and so do those after it, where the registry has answered."""
    rig = Rig(FakeRegistries())
    async with rig.running():
        for _ in range(10):
            assert await rig.fetch() == (True, FOUND)
        await asyncio.sleep(300)
        assert await rig.fetch() == (True, FOUND)
    assert rig.registries.requested == ["registry.example/app:1.0.0 at 0"]
    assert rig.woken == [0]


@in_virtual_time
async def test_a_failed_look_up_is_repeated_after_the_interval() -> None:
    """RELB-01."""
    rig = Rig(FakeRegistries(RegistryDenied("no"), RegistryDenied("no")))
    async with rig.running():
        for _ in range(3):
            assert await rig.fetch() == (False, None)
        assert rig.woken == [0, 60]
        await asyncio.sleep(60)
        assert await rig.fetch() == (False, None)
        await asyncio.sleep(61)
        await rig.fetch()
        await asyncio.sleep(2)
        assert await rig.fetch() == (True, FOUND)
        assert rig.woken == [0, 60, 0, 60, 0]
    assert [one.rpartition(" ")[2] for one in rig.registries.requested] == ["0", "61", "122"]


@in_virtual_time
async def test_a_registry_that_hangs_holds_one_pass_up_for_a_moment() -> None:
    rig = Rig(FakeRegistries(takes=45))
    async with rig.running():
        assert await rig.fetch() == (False, None)
        assert elapsed() == PATIENCE
        assert await rig.fetch() == (False, None)
        assert elapsed() == PATIENCE
        await asyncio.sleep(41)
        assert rig.woken == [0]
        assert await rig.fetch() == (True, FOUND)


@in_virtual_time
async def test_a_tag_that_is_not_there_is_known_not_to_be() -> None:
    """RELB-23."""
    rig = Rig(FakeRegistries(ReleaseNotFound("no")))
    async with rig.running():
        assert await rig.fetch() == (True, None)
        assert rig.woken == [0, 60]


@in_virtual_time
async def test_a_registry_that_wants_longer_is_left_alone_longer() -> None:
    rig = Rig(FakeRegistries(RegistryBusy("later", retry_after=timedelta(hours=1))))
    async with rig.running():
        await rig.fetch()
        assert rig.woken == [0, 3600]


@in_virtual_time
async def test_another_digest_is_another_image() -> None:
    """RELB-04."""
    rig = Rig(FakeRegistries())
    async with rig.running():
        await rig.fetch(digest="sha256:1")
        await rig.fetch(digest="sha256:2")
    assert len(rig.registries.requested) == 2


@in_virtual_time
async def test_what_is_remembered_of_a_rollout_is_bounded_and_forgotten_with_it() -> None:
    rig = Rig(FakeRegistries())
    async with rig.running():
        for number in range(MOST_TAGS + 1):
            await rig.fetch(LookUpKey("app", f"{number}"))
        await rig.fetch(LookUpKey("app", "0"))
        assert len(rig.registries.requested) == MOST_TAGS + 2
        rig.look_ups.forget("app")
        await rig.fetch(LookUpKey("app", "0"))
        assert len(rig.registries.requested) == MOST_TAGS + 3


@in_virtual_time
async def test_a_secret_that_is_missing_counts_as_a_failure(lines: list[str]) -> None:
    """The log names the Rollout: its remedy sends people there."""
    rig = Rig(FakeRegistries())
    missing = ImageRepository(head=head("app"), image=REPOSITORY.image, pull_secret="none")
    async with rig.running():
        assert await rig.look_ups.fetch(KEY, missing, INTERVAL) == (False, None)
    assert rig.registries.requested == []
    (line,) = [line for line in lines if "Release not looked up" in line]
    assert " rollout=app tag=1.0.0 " in line


def count_warnings(lines: list[str]) -> int:
    return sum("level=warn" in line and "Release not looked up" in line for line in lines)


@in_virtual_time
async def test_a_warning_comes_when_it_changes_and_then_ever_more_rarely(lines: list[str]) -> None:
    """Each minute is too often for what only a person mends."""
    rig = Rig(FakeRegistries(*[RegistryDenied("no")] * 60, RegistryDenied("never")))
    async with rig.running():
        for _ in range(60):
            await rig.fetch()
            await asyncio.sleep(61)
        # The first, and after 2, 4, 8, 16 and 32 in a row.
        assert count_warnings(lines) == 6
        await rig.fetch()
        await asyncio.sleep(2)
        assert count_warnings(lines) == 7
        await asyncio.sleep(60)
        await rig.fetch()
        await asyncio.sleep(2)
        assert await rig.fetch() == (True, FOUND)


@in_virtual_time
async def test_a_repository_that_is_missing_is_reported_as_rarely(lines: list[str]) -> None:
    bench = ReleaseBench()
    bench.use(Rig(FakeRegistries()).look_ups)
    for _ in range(10):
        await bench.step()
    assert count_warnings(lines) == 4
    assert "ImageRepository prod/app: there is none" in "".join(lines)


def api_with(**data: str) -> FakeReleaseApi:
    """Return an API server with the Secret `s`."""
    api = FakeReleaseApi()
    body = api.add(SECRETS, "s", {})
    body["data"] = {
        key.replace("__", "."): base64.b64encode(value.encode()).decode()
        for key, value in data.items()
    }
    return api


def repository(**fields: str | bool) -> ImageRepository:
    return ImageRepository(head=head("app"), image=IMAGE, **fields)  # type: ignore[arg-type]


async def test_without_secrets_a_registry_is_read_without_credentials() -> None:
    """REL-38."""
    api = FakeReleaseApi()
    access = await read_access(api, repository(provider="generic", is_insecure=True))
    assert access.keyring.choose(IMAGE) is None
    assert (access.is_insecure, access.route.trust, access.route.proxy) == (True, None, None)
    assert api.calls == []


async def test_credentials_are_those_of_the_pull_secret() -> None:
    """REL-26, REL-38, RT-93: whatever the provider."""
    auth = base64.b64encode(f"amy:{HIDDEN}".encode()).decode()
    config = json.dumps({"auths": {"https://registry.example/v2/": {"auth": auth}}})
    api = api_with(__dockerconfigjson=config)
    access = await read_access(api, repository(pull_secret="s", provider="aws"))
    found = access.keyring.choose(IMAGE)
    assert found is not None
    assert (found.username, found.password) == ("amy", HIDDEN)


async def test_a_proxy_has_its_user_in_its_url() -> None:
    """RELB-29."""
    api = api_with(address="http://proxy.example:3128", username="amy", password="a/b@c")
    access = await read_access(api, repository(proxy="s"))
    assert access.route.proxy == "http://amy:a%2Fb%40c@proxy.example:3128"
    plain = await read_access(api_with(address="https://proxy.example"), repository(proxy="s"))
    assert plain.route.proxy == "https://proxy.example"


@pytest.mark.parametrize("key", ["ca__crt", "caFile"])
async def test_a_ca_is_trusted_beside_those_of_the_system(key: str, tmp_path: Path) -> None:
    """RELB-29: by either name that Flux knows."""
    ca = make_pki(tmp_path).ca.read_text()
    access = await read_access(api_with(**{key: ca}), repository(certificates="s"))
    trust = access.route.trust
    assert trust is not None
    assert trust.verify_mode is ssl.CERT_REQUIRED
    assert (
        trust.cert_store_stats()["x509_ca"]
        > ssl.create_default_context().cert_store_stats()["x509_ca"]
    )


@pytest.mark.parametrize(
    ("certificate", "key"), [("tls__crt", "tls__key"), ("certFile", "keyFile")]
)
async def test_a_client_certificate_is_shown_to_a_registry_that_wants_one(
    certificate: str, key: str, tmp_path: Path
) -> None:
    """RELB-29: by either name that Flux knows; the key stands in no file."""
    pki = make_pki(tmp_path)
    wanting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.ca)
    wanting.load_cert_chain(pki.cert, pki.key)
    wanting.verify_mode = ssl.CERT_REQUIRED
    shown: list[object] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.append(writer.get_extra_info("peercert")["subject"])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=wanting)
    port = server.sockets[0].getsockname()[1]
    data = {"ca__crt": pki.ca, certificate: pki.cert, key: pki.key}
    api = api_with(**{name: path.read_text() for name, path in data.items()})
    trust = (await read_access(api, repository(certificates="s"))).route.trust
    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        assert await reader.read() == b""
        writer.close()
    assert shown == [((("commonName", "test world"),),)]


async def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    """RELB-29: no registry is called for it."""
    pki = make_pki(tmp_path)
    key = serialization.load_pem_private_key(pki.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(HIDDEN.encode()),
    )
    api = api_with(tls__crt=pki.cert.read_text(), tls__key=locked.decode())
    with pytest.raises(InvalidInput, match="without a password"):
        await read_access(api, repository(certificates="s"))


@pytest.mark.parametrize(
    ("fields", "data", "problem"),
    [
        ({"provider": "aws"}, {}, "spec.provider: credentials of aws are not fetched here"),
        ({"pull_secret": "none"}, {}, "secret none: there is none"),
        ({"pull_secret": "s"}, {"__dockerconfigjson": HIDDEN}, "is no JSON of Docker's"),
        ({"certificates": "s"}, {"tls__crt": HIDDEN}, "tls.crt and tls.key are no certificate"),
        ({"certificates": "s"}, {"tls__key": HIDDEN}, "tls.crt and tls.key are no certificate"),
        ({"certificates": "s"}, {"ca__crt": HIDDEN}, "ca.crt holds no certificates"),
        ({"certificates": "s"}, {}, "ca.crt holds no certificates"),
        ({"proxy": "s"}, {"address": f"socks5://{HIDDEN}"}, "address is no URL of a proxy"),
        ({"proxy": "s"}, {"address": f"http://{HIDDEN}:99999"}, "address is no URL of a proxy"),
        ({"proxy": "s"}, {}, "address is no URL of a proxy"),
    ],
)
async def test_what_a_person_must_change_is_named(
    fields: dict[str, str], data: dict[str, str], problem: str
) -> None:
    """RELB-29: and nothing out of a Secret is shown."""
    with pytest.raises(InvalidInput, match=problem) as caught:
        await read_access(api_with(**data), repository(**fields))
    assert HIDDEN not in str(caught.value)
    assert caught.value.__cause__ is None or HIDDEN not in str(caught.value.__cause__)


async def test_a_secret_that_cannot_be_read_shows_nothing() -> None:
    api = FakeReleaseApi()
    api.add(SECRETS, "s", {})["data"] = {".dockerconfigjson": f"{HIDDEN}!"}
    with pytest.raises(InvalidInput, match="its data cannot be read") as caught:
        await read_access(api, repository(pull_secret="s"))
    assert caught.value.__cause__ is None
