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
from tests.world.kubectl import KUBECTL
from tests.world.pki import Pki, make_pki

pytestmark = pytest.mark.controlplane

POD: Final = "/api/v1/namespaces/mimir/pods/a-0"
V1: Final = "client.authentication.k8s.io/v1"
V1BETA1: Final = "client.authentication.k8s.io/v1beta1"
OF_INTEREST: Final = ("authorization", "impersonate-", "proxy-")
EXEC: Final = {"apiVersion": V1, "command": "../bin/login", "interactiveMode": "IfAvailable"}

SAME: Final = "same"
BOTH_REFUSE: Final = "both refuse"
"""kubectl fails as well; ours names the field, or the certificate."""

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
    """One kubeconfig. `PORT`, `PROXY`, `CA`, `CERT` and `KEY` in its values are filled in."""

    def __init__(
        self,
        name: str,
        expected: str = SAME,
        *,
        cluster: Mapping[str, object] | None = None,
        user: Mapping[str, object] | None = None,
        prints: Mapping[str, object] | None = None,
        second: Json | None = None,
        **content: object,
    ) -> None:
        self.name, self.expected, self.second = name, expected, second
        trusted = {"server": "https://127.0.0.1:PORT", "certificate-authority": "ca.crt"}
        # None takes a field away.
        self.content: Json = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {**trusted, **(cluster or {})}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            **content,
        }
        self.prints = prints if prints is not None else {"token": "made"}


def exec_with(**fields: object) -> Mapping[str, object]:
    return {"exec": {**EXEC, **fields}}


INSECURE: Final = {"certificate-authority": None, "insecure-skip-tls-verify": True}
SETTINGS: Final = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
CASES: Final = (
    Case("CA in a file"),
    Case("CA as data", cluster={"certificate-authority": None, "certificate-authority-data": "CA"}),
    Case("CA twice", BOTH_REFUSE, cluster={"certificate-authority-data": "CA"}),
    Case("CA that is no file", BOTH_REFUSE, cluster={"certificate-authority": "no.crt"}),
    Case("CA unknown", BOTH_REFUSE, cluster={"certificate-authority": None}),
    Case("CA of no certificate", BOTH_REFUSE, cluster={"certificate-authority": "login.key"}),
    Case("not verified", cluster=INSECURE),
    Case("not verified, with a CA", BOTH_REFUSE, cluster={"insecure-skip-tls-verify": True}),
    Case("not verified, as text", BOTH_REFUSE, cluster={"insecure-skip-tls-verify": "yes"}),
    Case("server name", cluster={"tls-server-name": "kubernetes.default.svc"}),
    Case("server name of another", BOTH_REFUSE, cluster={"tls-server-name": "x.example.org"}),
    Case("server name, not verified", cluster={**INSECURE, "tls-server-name": "x.example.org"}),
    Case("compression", cluster={"disable-compression": True}),
    Case("slash at the end", cluster={"server": "https://127.0.0.1:PORT/"}),
    Case("capitals", cluster={"server": "HTTPS://LOCALHOST:PORT"}),
    Case("prefix", cluster={"server": "https://127.0.0.1:PORT/k8s/clusters/c-1"}),
    Case("prefix and slash", cluster={"server": "https://127.0.0.1:PORT/k8s/"}),
    Case("prefix to be encoded", cluster={"server": "https://127.0.0.1:PORT/a%20b"}),
    Case("query", "cluster.server", cluster={"server": "https://127.0.0.1:PORT/a?b=c"}),
    Case("no scheme", "cluster.server", cluster={"server": "127.0.0.1:PORT"}),
    Case("another scheme", "cluster.server", cluster={"server": "ftp://127.0.0.1:PORT"}),
    Case("no port", BOTH_REFUSE, cluster={"server": "https://127.0.0.1:x"}),
    Case("no server", BOTH_REFUSE, cluster={"server": None}),
    Case("proxy", cluster={"proxy-url": "http://127.0.0.1:PROXY"}),
    Case("proxy with a password", cluster={"proxy-url": "http://me:p%40w@127.0.0.1:PROXY"}),
    Case("proxy of SOCKS", "proxy-url", cluster={"proxy-url": "socks5://127.0.0.1:PROXY"}),
    Case("proxy without scheme", BOTH_REFUSE, cluster={"proxy-url": "127.0.0.1:PROXY"}),
    Case("token", user={"token": "abc.def"}),
    Case("token of a number", BOTH_REFUSE, user={"token": 7}),
    Case("token of two lines", BOTH_REFUSE, user={"token": "a\nb"}),
    Case("token file", user={"tokenFile": "token"}),
    Case("token file before token", user={"tokenFile": "token", "token": "t"}),
    Case("token file that is gone", user={"tokenFile": "no-token", "token": "t"}),
    Case("token file alone and gone", BOTH_REFUSE, user={"tokenFile": "no-token"}),
    Case("name and password", user={"username": "me", "password": "p:ä"}),
    Case("name alone", user={"username": "me"}),
    Case("password and token", BOTH_REFUSE, user={"username": "me", "token": "t"}),
    Case("certificate", user={"client-certificate": "../login.crt", "client-key": "login.key"}),
    Case("certificate as data", user={"client-certificate-data": "CERT", "client-key-data": "KEY"}),
    Case(
        "certificate and key apart",
        user={"client-certificate": "../login.crt", "client-key-data": "KEY"},
    ),
    Case(
        "certificate and token",
        user={"client-certificate-data": "CERT", "client-key-data": "KEY", "token": "t"},
    ),
    Case("certificate without key", BOTH_REFUSE, user={"client-certificate": "../login.crt"}),
    Case(
        "certificate twice",
        BOTH_REFUSE,
        user={
            "client-certificate": "../login.crt",
            "client-certificate-data": "CERT",
            "client-key": "login.key",
        },
    ),
    Case("key alone", user={"client-key": "login.key", "token": "t"}),
    Case(
        "key of another",
        BOTH_REFUSE,
        user={"client-certificate-data": "CERT", "client-key": "other.key"},
    ),
    Case(
        "key encrypted",
        BOTH_REFUSE,
        user={"client-certificate-data": "CERT", "client-key": "locked.key"},
    ),
    Case(
        "impersonation",
        user={
            "token": "t",
            "as": "jane",
            "as-uid": "1",
            "as-groups": ["a", "b"],
            "as-user-extra": {"x/y z": ["1", "2"]},
        },
    ),
    Case("impersonation of nobody", BOTH_REFUSE, user={"token": "t", "as-groups": ["a"]}),
    Case("provider", "auth-provider", user={"auth-provider": {"name": "oidc", "config": {}}}),
    Case("program", user=exec_with()),
    Case(
        "program of the older version",
        user={"exec": {"apiVersion": V1BETA1, "command": "../bin/login"}},
    ),
    Case(
        "program of the oldest version",
        BOTH_REFUSE,
        user=exec_with(apiVersion=f"{V1[:-2]}v1alpha1"),
    ),
    Case("program of PATH", user=exec_with(command="login-of-path")),
    Case(
        "program of a PATH of its own",
        user=exec_with(command="login-of-path", env=[{"name": "PATH", "value": "/no/such"}]),
    ),
    Case(
        "program that is not there",
        BOTH_REFUSE,
        user=exec_with(command="login", installHint="get it"),
    ),
    Case(
        "program with arguments and variables",
        user=exec_with(
            args=["a", "b c"],
            env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B"}],
        ),
    ),
    Case(
        "program that knows the cluster",
        user=exec_with(provideClusterInfo=True),
        cluster={"extensions": [SETTINGS]},
    ),
    Case(
        "program that knows all of the cluster",
        user=exec_with(provideClusterInfo=True),
        cluster={
            "server": "https://127.0.0.1:PORT/k8s/",
            "tls-server-name": "localhost",
            "proxy-url": "http://127.0.0.1:PROXY",
            "disable-compression": True,
        },
    ),
    Case("program without a terminal", user=exec_with(interactiveMode="Never")),
    Case("program for a person", BOTH_REFUSE, user=exec_with(interactiveMode="Always")),
    Case("program of an unknown mode", BOTH_REFUSE, user=exec_with(interactiveMode=None)),
    Case("program with a nameless variable", BOTH_REFUSE, user=exec_with(env=[{"value": "x"}])),
    Case(
        "program with a certificate",
        user=exec_with(),
        prints={"clientCertificateData": "CERT", "clientKeyData": "KEY"},
    ),
    Case(
        "program with both",
        user=exec_with(),
        prints={"clientCertificateData": "CERT", "clientKeyData": "KEY", "token": "t"},
    ),
    Case(
        "program with half a certificate",
        BOTH_REFUSE,
        user=exec_with(),
        prints={"clientKeyData": "KEY"},
    ),
    Case("program with nothing", BOTH_REFUSE, user=exec_with(), prints={}),
    Case("program that fails", BOTH_REFUSE, user=exec_with(command="false")),
    Case("program beside a token", user={**exec_with(), "token": "t"}),
    Case(
        "program beside a certificate",
        user={**exec_with(), "client-certificate-data": "CERT", "client-key-data": "KEY"},
    ),
    Case(
        "program beside a provider",
        BOTH_REFUSE,
        user={**exec_with(), "auth-provider": {"name": "oidc"}},
    ),
    Case(
        "nulls",
        clusters=[
            {
                "name": "k",
                "cluster": {
                    "server": "https://127.0.0.1:PORT",
                    "certificate-authority": "ca.crt",
                    "tls-server-name": None,
                },
            }
        ],
        users=[{"name": "u", "user": {"token": "t", "exec": None}}],
        preferences=None,
    ),
    Case(
        "unknown fields",
        users=[{"name": "u", "user": {"token": "t", "colour": "red"}}],
        colour="red",
    ),
    Case("another kind", BOTH_REFUSE, kind="Pod", apiVersion="v1"),
    Case("another version", BOTH_REFUSE, kind="Config", apiVersion="v2"),
    Case("a name twice", BOTH_REFUSE, users=[{"name": "u", "user": {}}, {"name": "u", "user": {}}]),
    Case("no list", BOTH_REFUSE, users={"u": {"token": "t"}}),
    Case(
        "user of a second file",
        users=None,
        second={"users": [{"name": "u", "user": {"tokenFile": "token"}}]},
    ),
    Case(
        "user of the first file",
        second={"users": [{"name": "u", "user": {"as": "jane"}}], "current-context": "d"},
    ),
    Case("empty second file", second={}),
)


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


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_d_76_a_kubeconfig_works_as_in_kubectl_or_is_refused_by_name(
    case: Case, home: Path, pki: Pki, kubectl: str
) -> None:
    server = Server(pki)
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

    if case.expected == SAME:
        assert (error, ours) == ("", "")
        assert seen == theirs
    else:
        assert ours.isprintable(), "it is one line"
        assert ours
        if case.expected == BOTH_REFUSE:
            assert error, "kubectl takes it"
        else:
            assert case.expected in ours
