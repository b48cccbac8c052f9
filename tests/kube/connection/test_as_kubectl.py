"""The same kubeconfig by kubectl and by us: the API server sees the same request (D-76).

A field works as in kubectl or is refused by its name. What is compared is what the server can see:
path, credentials, impersonation, client certificate, server name, way through a proxy; and what a
login program is given. The kubectl is the one that is built: one of a cloud's tools calls
the server first for its version.
"""

import asyncio
import base64
import json
import os
import shutil
import ssl
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import web

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.grammar import parse_mixed
from rollout_operator.kube.api import PODS
from rollout_operator.model.names import OperatorError
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.world.kubectl import KUBECTL
from tests.world.pki import Pki, make_pki

pytestmark = pytest.mark.controlplane

POD: Final = "/api/v1/namespaces/mimir/pods/a-0"
V1: Final = "client.authentication.k8s.io/v1"
OF_INTEREST: Final = ("authorization", "impersonate-", "proxy-")
WORDS: Final = {
    "EXEC": "apiVersion: V1, command: ../bin/login, interactiveMode: IfAvailable",
    "INSECURE": "certificate-authority: null, insecure-skip-tls-verify: true",
    "V1": V1,
}

Json = dict[str, Any]


class Server:
    """An API server with one pod, and a proxy to it, which record what they see."""

    def __init__(self, pki: Pki) -> None:
        self.port = self.proxy_port = 0
        self.seen: list[object] = []
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca))
        self.tls.load_cert_chain(pki.cert, pki.key)
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.tls.sni_callback = self._record_name

    def _record_name(self, stream: object, name: str | None, context: object) -> None:
        self.seen.append(f"server name {name and name.lower()}")

    async def answer(self, request: web.BaseRequest) -> web.Response:
        certificate = request.get_extra_info("peercert")
        headers = sorted(
            (name.lower(), value)
            for name, value in request.headers.items()
            if name.lower().startswith(OF_INTEREST)
        )
        self.seen.append((request.path, headers, certificate and certificate["subject"]))
        return web.json_response({"kind": "Pod", "apiVersion": "v1"})

    async def tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client of the proxy with the server."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        except asyncio.IncompleteReadError:
            writer.close()
            return
        shown = [line for line in head if line.lower().startswith("proxy-authorization")]
        self.seen.append((head[0], *shown))
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(reader, up_writer))
            tasks.create_task(_pump(up_reader, writer))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        runner = web.ServerRunner(
            web.Server(self.answer, access_log=None), handle_signals=False, shutdown_timeout=0.1
        )
        await runner.setup()
        proxy = await asyncio.start_server(self.tunnel, "127.0.0.1", 0)
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.tls).start()
            self.port = runner.addresses[0][1]
            self.proxy_port = proxy.sockets[0].getsockname()[1]
            yield
        finally:
            proxy.close()
            await runner.cleanup()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture(scope="module")
def kubectl() -> str:
    return str(KUBECTL.find(sys.stderr.write) / "kubectl")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


class Case:
    """One kubeconfig of the table."""

    def __init__(self, command: str) -> None:
        text = command.partition(": ")[2]
        for word, meaning in WORDS.items():
            text = text.replace(word, meaning)
        fields = yaml.safe_load(text)
        self.prints = fields.pop("prints", {"token": "made"})
        self.second: Json | None = fields.pop("second", None)
        trusted = {"server": "https://127.0.0.1:PORT", "certificate-authority": "ca.crt"}
        cluster, user = fields.pop("cluster", {}), fields.pop("user", {"token": "t"})
        self.content: Json = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {**trusted, **cluster}}],
            "users": [{"name": "u", "user": user}],
            **fields,
        }


@pytest.fixture
def home(tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with all files that the table names; we work in a folder beside it."""
    config = tmp_path / "config"
    for folder in ("config", "bin", "path", "elsewhere", "second"):
        (tmp_path / folder).mkdir()
    shutil.copy(pki.ca, config / "ca.crt")
    shutil.copy(pki.cert, tmp_path / "login.crt")
    shutil.copy(pki.key, config / "login.key")
    shutil.copy(pki.accounts_key, config / "other.key")
    body, kind = base64.b64encode(bytes(64)).decode(), "ENCRYPTED PRIVATE KEY"
    (config / "locked.key").write_text(f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
    (config / "token").write_text("of-file\n")
    (tmp_path / "second/token").write_text("of-second")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def fill(content: Mapping[str, object], server: Server, pki: Pki) -> Any:
    def data(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    text = json.dumps(content).replace("PORT", f"{server.port}")
    text = text.replace("PROXY", f"{server.proxy_port}").replace('"CA"', f'"{data(pki.ca)}"')
    return json.loads(
        text.replace('"CERT"', f'"{data(pki.cert)}"').replace('"KEY"', f'"{data(pki.key)}"')
    )


def _find_program(content: Json) -> Json:
    users = content["users"]
    return (isinstance(users, list) and users[0]["user"].get("exec")) or {"apiVersion": V1}


def write_program(case: Case, home: Path, pki: Pki) -> None:
    text = json.dumps({"apiVersion": "VERSION", "kind": "ExecCredential", "status": case.prints})
    for word, file in (("CERT", pki.cert), ("KEY", pki.key)):
        text = text.replace(f'"{word}"', json.dumps(file.read_text()))
    version = _find_program(case.content)["apiVersion"]
    (home / "printed").write_text(text.replace("VERSION", version))
    for place in ("bin/login", "path/login-of-path"):
        file = home / place
        file.write_text(
            f'#!/bin/sh\nprintf \'%s|\' "$KUBERNETES_EXEC_INFO" "$A" "$B" "$PWD" "$@" '
            f">> {home}/got\n/bin/cat {home}/printed\n"
        )
        file.chmod(stat.S_IRWXU)


def take_got(home: Path) -> list[object]:
    """Return what the program got each time, in one form."""
    file = home / "got"
    if not file.exists():
        return []
    info, *rest = file.read_text().split("|")
    file.unlink()
    return [json.loads(info), rest]


async def run_kubectl(kubectl: str, files: str) -> str:
    """Return the error, empty where there is none."""
    process = await asyncio.create_subprocess_exec(
        kubectl,
        "--request-timeout=5s",
        "get",
        "--raw",
        POD,
        env={**os.environ, "KUBECONFIG": files},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    return error.decode() if process.returncode else ""


async def run_ours(files: str) -> str:
    environ = {**os.environ, "KUBECONFIG": files}
    try:
        async with open_client(choose_access(parse_mixed(ACCESS_FLAGS, ()), environ)) as client:
            await client.fetch(PODS, "mimir", "a-0")
    except OperatorError as error:
        return f"{error}"
    return ""


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("as_kubectl.txt")))
async def test_d_76_a_kubeconfig_works_as_in_kubectl_or_is_refused_by_name(
    story: Story, golden: Golden, home: Path, pki: Pki, kubectl: str
) -> None:
    case, server = Case(story.commands[0]), Server(pki)
    async with server.running():
        file = home / "config/config"
        file.write_text(yaml.safe_dump(fill(case.content, server, pki)))
        files = str(file)
        if case.second is not None:
            second = home / "second/config"
            second.write_text(yaml.safe_dump(case.second) if case.second else "")
            files = f"{files}{os.pathsep}{second}"
        write_program(case, home, pki)

        theirs, error = [], await run_kubectl(kubectl, files)
        theirs, server.seen = server.seen, []
        theirs += take_got(home)
        ours = await run_ours(files)
        seen = [*server.seen, *take_got(home)]

    assert ours.isprintable(), "it is one line"
    [(_, field)] = story.lines
    if error == ours == "" and seen == theirs:
        found = "same"
    elif field not in ("same", "both refuse") and field in ours:
        found = field
    elif error and ours:
        found = "both refuse"
    else:
        found = f"kubectl {error or theirs}, ours {ours or seen}"
    story.check(found, golden)
