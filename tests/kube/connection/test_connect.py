"""Finding the API server (FLAG-13, FLAG-14, DEP-11): in a cluster, by kubeconfig, over TLS."""

import base64
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Access, connect
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import ApiError, ConfigError
from rollout_operator.telemetry.metrics import Metrics
from tests import stories
from tests.kube.fake_api import Answer, FakeApi, refuse, reply
from tests.stories import check_stories, check_tables
from tests.world.pki import LIFE, Pki, make_pki

POD: Final = "/api/v1/namespaces/prod/pods/a-0"
ANSWERS: Final[dict[str, Answer]] = {
    "ok": reply(b'{"kind":"Pod"}'), "refused": refuse(401, "Unauthorized", "")
}  # fmt: skip


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pki]:
    """Return those whose certificate is served: the one that is trusted, and others."""
    ages = {"pki": timedelta(0), "other": timedelta(0), "old": 2 * LIFE, "early": -2 * LIFE}
    return {name: make_pki(tmp_path_factory.mktemp(name), age=age) for name, age in ages.items()}


class ConnectStage(stories.Steps):
    """An API server with a pod, and a kubeconfig or a service account that lead to it."""

    def __init__(self, tmp_path: Path, authorities: dict[str, Pki], lines: list[str]) -> None:
        self.folder, self.authorities, self.lines = tmp_path, authorities, lines
        self.pki = authorities["pki"]
        self.file = tmp_path / "kubeconfig"
        self.cluster: dict[str, object] = {"server": "https://unused:1"}
        self.user: dict[str, object] = {}
        self.content: dict[str, object] = {}
        self.environ: dict[str, str] = {}
        self.url = ""
        self.shown = 0
        for name, text in (("token", b"projected\n"), ("ca.crt", self.pki.ca.read_bytes())):
            (tmp_path / name).write_bytes(text)

    async def do_serve(self, how: str, *answers: str) -> None:
        """Serve in the `clear`, by the certificate of an authority, or to known `clients`."""
        tls = None
        if how != "clear":
            self.pki = self.authorities.get(how, self.pki)
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(self.pki.cert, self.pki.key)
            if how == "clients":
                tls.load_verify_locations(self.pki.ca)
                tls.verify_mode = ssl.CERT_REQUIRED
        server = FakeApi(tls, host="0.0.0.0")  # noqa: S104 (it has another address as well)
        self.server = await self.stack.enter_async_context(server)
        self.server.on("GET", POD, *(ANSWERS[one] for one in answers or ["ok"]))
        self.url, self.shown = self.server.url, 0

    async def do_at(self, url: str) -> None:
        """Call another URL; PORT is that of the server."""
        self.url = url.replace("PORT", self.server.url.rpartition(":")[2])

    async def do_cluster(self, *fields: str) -> None:
        self.cluster |= self._read(*fields)

    async def do_user(self, *fields: str) -> None:
        self.user |= self._read(*fields)

    async def do_config(self, *fields: str) -> None:
        self.content = self._read(*fields)

    def _read(self, *fields: str) -> dict[str, Any]:
        """Read `key=value`: `CA`, `CERT` and `KEY` are of the server's authority, in base64."""
        files = {"CA": self.pki.ca, "CERT": self.pki.cert, "KEY": self.pki.key}
        found: dict[str, Any] = {}
        for key, _, value in (field.partition("=") for field in fields):
            text = base64.b64encode(files[value].read_bytes()) if value in files else None
            value = value.replace("SERVER", self.server.url)
            found[key] = yaml.safe_load(value) if text is None else text.decode()
        return found

    async def do_environ(self, *words: str) -> None:
        at = self.server.url
        self.environ = dict(word.replace("SERVER", at).split("=") for word in words)

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

    async def do_fetch(self, *writes: str) -> str:
        """Read the pod by the kubeconfig; then again after each text is written to the token."""
        file = self.write()
        before = file.read_bytes()
        access = Access(
            namespace="ops", api_url=self.url, config_file=str(file), environ=self.environ
        )
        found = await self._fetch(access, *writes)
        assert file.read_bytes() == before
        return found

    async def do_inside(self, *writes: str) -> str:
        """Read the pod as in a cluster."""
        host, _, port = self.url.removeprefix("https://").partition(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        access = Access(namespace="ops", service_account=self.folder, environ=environ)
        return await self._fetch(access, *writes)

    async def _fetch(self, access: Access, *writes: str) -> str:
        try:
            async with connected(access) as client:
                found = (await client.fetch(PODS, "prod", "a-0")).decode()
                for text in writes:
                    file = self.folder / str(self.user.get("tokenFile", "token"))
                    file.write_text(f"{text}\n")
                    found = (await client.fetch(PODS, "prod", "a-0")).decode()
                return found
        except ApiError as error:
            return f"{type(error).__name__}: {self._digest(f'{error}')}"

    def _digest(self, text: str) -> str:
        assert text.isprintable()
        assert not {"_ssl.c", "ssl:True", "SSLCert"} & set(text.split())
        text = text.removeprefix("cannot get pods/a-0 in namespace prod: ")
        text = text.replace(self.url.partition("://")[2], "AT").replace(f"{self.file}", "FILE")
        return re.sub(r"(no TLS with AT: )[a-z ]+;", r"\1...;", text)

    async def do_sent(self) -> str:
        """Show what the requests since the last time say of us."""
        requests, self.shown = self.server.requests[self.shown :], len(self.server.requests)
        at = self.server.url.partition("://")[2]
        shown = [
            ", ".join(
                f"{name} {one.headers[name]}".replace(at, "AT")
                for name in ("host", "authorization", "impersonate-user")
                if name in one.headers
            )
            for one in requests
        ]
        return "; ".join(shown) or "nothing"

    async def do_warned(self) -> str:
        [line] = [line for line in self.lines if line.startswith("level=warn")]
        return self._digest(line.partition(" msg=")[2].strip())


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Client]:
    transport = await connect(access, LoopClock())
    try:
        yield Client(transport, RateLimiter(0, 0), Metrics())
    finally:
        await transport.close()


test_story = check_stories(__file__, reach=ConnectStage)


async def show_refusal(command: str, tmp_path: Path, authorities: dict[str, Pki]) -> str:
    """FLAG-14: before anything is sent, and without the password of a proxy."""
    stage = ConnectStage(tmp_path, authorities, [])
    verb, _, rest = command.partition(" ")
    stage.content = yaml.safe_load(rest) if verb == "config" else {}
    stage.write()
    if verb == "file":
        text = rest.encode("latin-1").decode("unicode_escape").encode("latin-1")
        stage.file.write_bytes(text)
    elif verb == "gone":
        stage.file.unlink()
    elif verb == "account":
        name, _, content = rest.partition(" ")
        (tmp_path / name).unlink()
        if content:
            (tmp_path / name).write_text(content.strip("'"))
    words = dict(word.split("=") for word in rest.split()) if verb == "access" else {}
    url = words.pop("url", "" if verb in ("account", "access") else "https://127.0.0.1:1")
    if not url:
        words = {"KUBERNETES_SERVICE_HOST": "k", "KUBERNETES_SERVICE_PORT": "443", **words}
    access = Access(
        namespace="ops",
        api_url=url,
        config_file=str(stage.file) if url else "",
        service_account=tmp_path,
        environ={name: value for name, value in words.items() if value},
    )
    with pytest.raises(ConfigError) as caught:
        await connect(access, LoopClock())
    message = str(caught.value).partition(" [X509")[0]
    assert message.isprintable(), "it must be one line"
    assert "pw" not in message
    return message.replace(f"{stage.file}", "FILE").replace(f"{tmp_path}/", "")


test_flag_14_what_cannot_be_called_is_named_with_its_source = check_tables(
    __file__, connect=show_refusal
)
