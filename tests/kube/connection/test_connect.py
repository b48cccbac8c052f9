"""Finding the API server (FLAG-13, FLAG-14, DEP-11): in a cluster, by kubeconfig, over TLS."""

import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Access, Transport, connect
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import ConfigError, Denied, Unreachable
from rollout_operator.telemetry.metrics import Metrics
from tests.goldens import Golden
from tests.kube.fake_api import FakeApi, refuse, reply
from tests.stories import Story, read_stories
from tests.world.pki import LIFE, Pki, make_pki

POD = "/api/v1/namespaces/prod/pods/a-0"


@dataclass
class Kubeconfig:
    """A file with one cluster, one user and one context; a test changes what it is about."""

    file: Path
    cluster: dict[str, object] = field(default_factory=lambda: {"server": "https://unused:1"})
    user: dict[str, object] = field(default_factory=dict)
    content: dict[str, object] = field(default_factory=dict)

    def write(self) -> Path:
        content: dict[str, object] = {
            "current-context": "c",
            "contexts": [
                {"name": "other", "context": {"cluster": "x", "user": "x"}},
                {"name": "c", "context": {"cluster": "k", "user": "u"}},
            ],
            "clusters": [{"name": "k", "cluster": self.cluster}],
            "users": [{"name": "u", "user": self.user}],
        }
        self.file.write_text(yaml.safe_dump({**content, **self.content}))
        return self.file


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Kubeconfig:
    return Kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def other_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("other"))


def serving(pki: Pki, *, requires_clients: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.cert, pki.key)
    if requires_clients:
        context.load_verify_locations(pki.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.fixture
def account(tmp_path: Path, pki: Pki) -> Path:
    (tmp_path / "token").write_text("projected\n")
    (tmp_path / "ca.crt").write_bytes(pki.ca.read_bytes())
    return tmp_path


@asynccontextmanager
async def pod_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApi]:
    """Run an API server that has one pod."""
    async with FakeApi(tls) as server:
        server.on("GET", POD, reply({}))
        yield server


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Client]:
    clock = LoopClock()
    transport = await connect(access, clock)
    try:
        yield client_over(transport)
    finally:
        await transport.close()


def client_over(transport: Transport) -> Client:
    return Client(transport, RateLimiter(0, 0), Metrics())


async def fetch_by(file: Path, url: str, environ: Mapping[str, str] | None = None) -> bytes:
    access = Access(namespace="ops", api_url=url, config_file=str(file), environ=environ or {})
    async with connected(access) as client:
        return await client.fetch(PODS, "prod", "a-0")


async def reason_of(access: Access) -> str:
    with pytest.raises(ConfigError) as caught:
        await connect(access, LoopClock())
    message = str(caught.value)
    assert message.isprintable(), "it must be one line"
    return message


# --- TLS ---------------------------------------------------------------------------------------


async def test_flag_14_a_ca_in_the_file_is_what_we_trust(pki: Pki, kubeconfig: Kubeconfig) -> None:
    kubeconfig.cluster["certificate-authority-data"] = data(pki.ca)
    kubeconfig.user["token"] = "inline"
    async with FakeApi(serving(pki)) as server:
        server.on("GET", POD, reply(b'{"kind":"Pod"}'))
        assert await fetch_by(kubeconfig.write(), server.url) == b'{"kind":"Pod"}'
        # A relative path starts at the file.
        del kubeconfig.cluster["certificate-authority-data"]
        (kubeconfig.file.parent / "ca.crt").write_bytes(pki.ca.read_bytes())
        kubeconfig.cluster["certificate-authority"] = "ca.crt"
        await fetch_by(kubeconfig.write(), server.url)
    shown = [request.headers["authorization"] for request in server.requests]
    assert shown == ["Bearer inline"] * 2


async def test_another_ca_or_name_is_refused(
    pki: Pki, other_pki: Pki, kubeconfig: Kubeconfig
) -> None:
    """A name beside the address is what the certificate must show."""
    kubeconfig.cluster["certificate-authority-data"] = data(other_pki.ca)
    async with FakeApi(serving(pki)) as server:
        with pytest.raises(Unreachable, match="is signed by an authority that is not trusted"):
            await fetch_by(kubeconfig.write(), server.url)
        kubeconfig.cluster |= {
            "certificate-authority-data": data(pki.ca),
            "tls-server-name": "elsewhere.example.org",
        }
        with pytest.raises(Unreachable, match=r"elsewhere\.example\.org"):
            await fetch_by(kubeconfig.write(), server.url)
    assert server.requests == []


@pytest.mark.parametrize(
    ("age", "cluster", "problem"),
    [
        pytest.param(
            LIFE, {}, "the certificate of {at} has expired; have it renewed, or correct the clock",
            id="expired",
        ),
        pytest.param(
            -LIFE, {}, "the certificate of {at} is not valid yet; correct the clock", id="too new"
        ),
        pytest.param(
            None, {"certificate-authority-data": None},
            "the certificate of {at} is signed by an authority that is not trusted; see that the"
            " CA that is given, such as certificate-authority of a kubeconfig, is that of this",
            id="of another CA",
        ),
        pytest.param(
            None, {"tls-server-name": "b.example.org"},
            "the certificate of {at} is made out for other names (Hostname mismatch, certificate"
            " is not valid for 'b.example.org'.); call it by a name that it has",
            id="of another name",
        ),
        pytest.param(
            None, {"server": "https://127.0.0.2:{port}"}, "127.0.0.2", id="of another address"
        ),
    ],
)  # fmt: skip
async def test_d_76_what_is_wrong_with_a_certificate_is_said_in_words(
    pki: Pki,
    tmp_path: Path,
    kubeconfig: Kubeconfig,
    age: timedelta | None,
    cluster: dict[str, str | None],
    problem: str,
) -> None:
    used = pki if age is None else make_pki(tmp_path, age=2 * age)
    kubeconfig.cluster["certificate-authority-data"] = data(used.ca)
    async with FakeApi(serving(used), host="0.0.0.0") as server:  # noqa: S104 (another address)
        at = server.url.removeprefix("https://")
        port = at.rpartition(":")[2]
        url = (cluster.get("server") or server.url).format(port=port)
        kubeconfig.cluster |= {key: value for key, value in cluster.items() if key != "server"}
        with pytest.raises(Unreachable) as caught:
            await fetch_by(kubeconfig.write(), url)
    assert problem.format(at=at) in str(caught.value)
    assert not {"_ssl.c", "ssl:True", "SSLCert"} & set(str(caught.value).split())
    assert str(caught.value).isprintable()


async def test_a_server_that_speaks_no_tls_is_named(kubeconfig: Kubeconfig) -> None:
    async with pod_server() as server:
        url = server.url.replace("http://", "https://")
        with pytest.raises(Unreachable) as caught:
            await fetch_by(kubeconfig.write(), url)
    assert f"no TLS with {url.removeprefix('https://')}: " in str(caught.value)
    assert "it may serve http:// there" in str(caught.value)


async def test_not_verifying_is_possible_and_warned_about(
    pki: Pki, kubeconfig: Kubeconfig, lines: list[str]
) -> None:
    kubeconfig.cluster["insecure-skip-tls-verify"] = True
    async with pod_server(serving(pki)) as server:
        await fetch_by(kubeconfig.write(), server.url)
    [warning] = [line for line in lines if line.startswith("level=warn")]
    assert "Not verifying the certificate of the API server" in warning
    assert str(kubeconfig.file) in warning


async def test_a_client_certificate_identifies_us(pki: Pki, kubeconfig: Kubeconfig) -> None:
    kubeconfig.cluster["certificate-authority-data"] = data(pki.ca)
    kubeconfig.user |= {
        "client-certificate-data": data(pki.cert),
        "client-key-data": data(pki.key),
    }
    async with pod_server(serving(pki, requires_clients=True)) as server:
        await fetch_by(kubeconfig.write(), server.url)
    assert "authorization" not in server.requests[0].headers


# --- kubeconfig --------------------------------------------------------------------------------


async def test_flag_13_the_url_replaces_the_server_and_the_file_stays(
    kubeconfig: Kubeconfig,
) -> None:
    file = kubeconfig.write()
    before = file.read_bytes()
    async with pod_server() as server:
        await fetch_by(file, server.url)
    assert server.requests[0].headers["host"] == server.url.removeprefix("http://")
    assert file.read_bytes() == before


async def test_dep_11_a_token_file_wins_over_a_token_and_is_read_again(
    pki: Pki, kubeconfig: Kubeconfig
) -> None:
    """The token counts while the file cannot be read."""
    file = kubeconfig.file.parent / "t"
    kubeconfig.cluster["certificate-authority-data"] = data(pki.ca)
    kubeconfig.user |= {"token": "old", "tokenFile": "t"}
    async with FakeApi(serving(pki)) as server:
        access = Access(
            namespace="ops", api_url=server.url, config_file=str(kubeconfig.write()), environ={}
        )
        refused = refuse(401, "Unauthorized", "")
        server.on("GET", POD, reply({}), refused, reply({}), refused, reply({}))
        async with connected(access) as client:
            await client.fetch(PODS, "prod", "a-0")
            file.write_text("first\n")
            await client.fetch(PODS, "prod", "a-0")
            file.write_text("second")
            await client.fetch(PODS, "prod", "a-0")
    shown = [
        request.headers["authorization"].removeprefix("Bearer ") for request in server.requests
    ]
    assert shown == ["old", "old", "first", "first", "second"]


async def test_a_user_may_be_missing_and_a_password_may_do(
    pki: Pki, kubeconfig: Kubeconfig
) -> None:
    kubeconfig.cluster["certificate-authority-data"] = data(pki.ca)
    kubeconfig.content["contexts"] = [{"name": "c", "context": {"cluster": "k"}}]
    async with pod_server(serving(pki)) as server:
        await fetch_by(kubeconfig.write(), server.url)
        kubeconfig.content.clear()
        kubeconfig.user |= {"username": "me", "password": "pw"}
        await fetch_by(kubeconfig.write(), server.url)
    first, second = server.requests
    assert "authorization" not in first.headers
    assert second.headers["authorization"] == "Basic bWU6cHc="


async def test_no_credential_is_sent_in_the_clear(kubeconfig: Kubeconfig) -> None:
    """As by kubectl. A program is not even run; who is impersonated is no secret."""
    kubeconfig.user |= {"token": "t", "as": "jane", "exec": {"command": "no-such"}}
    async with pod_server() as server:
        await fetch_by(kubeconfig.write(), server.url)
    [request] = server.requests
    assert "authorization" not in request.headers
    assert request.headers["impersonate-user"] == "jane"


async def test_a_proxy_of_the_file_or_of_the_environment_is_used(kubeconfig: Kubeconfig) -> None:
    """A request through an HTTP proxy names the whole URL."""
    target = "http://api.invalid:8080"
    async with pod_server() as proxy:
        await fetch_by(kubeconfig.write(), target, {"HTTP_PROXY": proxy.url})
        kubeconfig.cluster["proxy-url"] = proxy.url
        await fetch_by(kubeconfig.write(), target, {"NO_PROXY": "*"})
    assert [request.headers["host"] for request in proxy.requests] == ["api.invalid:8080"] * 2


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("connect.txt")))
async def test_flag_14_what_cannot_be_called_is_named_with_its_source(
    story: Story, golden: Golden, account: Path, kubeconfig: Kubeconfig
) -> None:
    """FLAG-14: before anything is sent, and without the password of a proxy."""
    [command] = story.commands
    verb, _, rest = command.partition(" ")
    kubeconfig.content = yaml.safe_load(rest) if verb == "config" else {}
    kubeconfig.write()
    if verb == "file":
        text = rest.encode("latin-1").decode("unicode_escape").encode("latin-1")
        kubeconfig.file.write_bytes(text)
    elif verb == "gone":
        kubeconfig.file.unlink()
    elif verb == "account":
        name, _, content = rest.partition(" ")
        (account / name).unlink()
        if content:
            (account / name).write_text(content.strip("'"))
    words = dict(word.split("=") for word in rest.split()) if verb == "access" else {}
    url = words.pop("url", "" if verb in ("account", "access") else "https://127.0.0.1:1")
    if not url:
        words = {"KUBERNETES_SERVICE_HOST": "k", "KUBERNETES_SERVICE_PORT": "443", **words}
    access = Access(
        namespace="ops",
        api_url=url,
        config_file=str(kubeconfig.file) if url else "",
        service_account=account,
        environ={name: value for name, value in words.items() if value},
    )
    message = (await reason_of(access)).partition(" [X509")[0]
    assert "pw" not in message
    shown = message.replace(f"{kubeconfig.file}", "FILE").replace(f"{account}/", "")
    story.check(shown, golden)


# --- in a cluster ------------------------------------------------------------------------------


def in_cluster(account: Path, url: str = "https://127.0.0.1:1") -> Access:
    host, _, port = url.removeprefix("https://").partition(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    return Access(namespace="ops", service_account=account, environ=environ)


async def test_refused_credentials_come_with_what_helps_their_owner(
    account: Path, pki: Pki, kubeconfig: Kubeconfig
) -> None:
    """PROC-02: a person has no pod to restart, and a pod cannot log in."""
    async with FakeApi(serving(pki)) as server:
        server.on("GET", POD, refuse(401, "Unauthorized", ""))
        async with connected(in_cluster(account, server.url)) as client:
            with pytest.raises(Denied, match="credentials; restart the pod where"):
                await client.fetch(PODS, "prod", "a-0")
        kubeconfig.cluster["certificate-authority-data"] = data(pki.ca)
        with pytest.raises(Denied, match="credentials; log in again, or fix"):
            await fetch_by(kubeconfig.write(), server.url)


async def test_dep_11_in_a_cluster_the_service_account_is_used(account: Path, pki: Pki) -> None:
    async with FakeApi(serving(pki)) as server:
        server.on("GET", POD, refuse(401, "Unauthorized", ""), reply({}))
        async with connected(in_cluster(account, server.url)) as client:
            (account / "token").write_text("rotated\n")
            await client.fetch(PODS, "prod", "a-0")
    shown = [request.headers["authorization"] for request in server.requests]
    assert shown == ["Bearer projected", "Bearer rotated"]


async def test_in_a_cluster_another_ca_is_refused(account: Path, other_pki: Pki) -> None:
    async with (
        FakeApi(serving(other_pki)) as server,
        connected(in_cluster(account, server.url)) as client,
    ):
        with pytest.raises(Unreachable, match="is signed by an authority that is not trusted"):
            await client.fetch(PODS, "prod", "a-0")
