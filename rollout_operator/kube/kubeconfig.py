"""Read a kubeconfig: one context with its cluster and user, and the credential it leads to.

Each field works as in kubectl, by the rules of client-go's `clientcmd`, or is refused by name. Of
several files the first to name an entry wins, and paths start at the file they are written in.
Messages never show a value of a user, nor what a login program prints.

Projected tokens change every hour or so under the same path. Files are read again every half
minute, and everything is loaded again when the server refuses it. If that fails, the old value
stays: it may still be good.
"""

import asyncio
import base64
import binascii
import json
import os
import shutil
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote as percent_encode
from urllib.parse import urlsplit, urlunsplit

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.programs import run_program
from rollout_operator.model.names import ConfigError
from rollout_operator.model.units import Confidential, find_url_problem, quote
from rollout_operator.telemetry.logs import log

# The kubelet rotates a token at 80 % of its life, so half a minute late is early enough.
REREAD_EVERY: Final = timedelta(seconds=30)
# A refused credential may be loaded by running a program: not for each of a hundred refused calls.
RELOAD_GAP: Final = timedelta(seconds=10)
# A program that prompts for a password on a terminal which is not there would wait for ever.
_LOAD_LIMIT: Final = timedelta(seconds=30)

PROXY_SCHEMES: Final = ("http", "https")

_MAX_TOKEN: Final = 64 * 1024

_Load = Callable[[], Awaitable[str]]
"""Return the value of the Authorization header; raise ConfigError where there is none."""


_NEVER: Final = "Never"
_IF_AVAILABLE: Final = "IfAvailable"
_ALWAYS: Final = "Always"
_MODES: Final = (_NEVER, _IF_AVAILABLE, _ALWAYS)

_KIND: Final = "ExecCredential"

# Some people have hundreds of contexts.
_MOST_NAMES: Final = 5
_PEM: Final = b"-----BEGIN "
_ENCRYPTED: Final = (b"-----BEGIN ENCRYPTED", b"Proc-Type: 4,ENCRYPTED")
_V1: Final = "client.authentication.k8s.io/v1"
_V1BETA1: Final = "client.authentication.k8s.io/v1beta1"
# By this name a cluster has settings for login programs.
_PROGRAM_EXTENSION: Final = "client.authentication.k8s.io/exec"
# Beside letters and digits, what client-go does not encode in the name of a header.
_IN_HEADER_NAMES: Final = "!#$&'*+-.^_`|~"


class Credential:
    """The value of the Authorization header; made with the first value already loaded.

    `reread_every` None: loaded again only after a refusal, and then not more than once per gap.
    """

    def __init__(
        self, value: str, load: _Load, clock: Clock, *, reread_every: timedelta | None = None
    ) -> None:
        self._value = value
        self._load = load
        self._clock = clock
        self._reread_every = reread_every
        self._loaded_at = clock.elapsed()
        self._reload_lock = asyncio.Lock()

    @property
    def value(self) -> str:
        return self._value

    async def show_current(self) -> str:
        """Return the value for a request that is sent now."""
        age = self._clock.elapsed() - self._loaded_at
        if self._reread_every is not None and age >= self._reread_every:
            await self._load_again()
        return self._value

    async def replace_refused(self, refused: str) -> None:
        """Load again because the server refused `refused`, unless another call just did so."""
        async with self._reload_lock:
            is_program = self._reread_every is None
            age = self._clock.elapsed() - self._loaded_at
            if self._value == refused and not (is_program and age < RELOAD_GAP):
                await self._load_again()

    async def _load_again(self) -> None:
        self._loaded_at = self._clock.elapsed()
        try:
            async with asyncio.timeout(_LOAD_LIMIT.total_seconds()):
                value = await self._load()
        except (ConfigError, TimeoutError) as error:
            log.warn("Keeping the credential that cannot be loaded again", err=error)
            return
        if value != self._value:
            log.debug("Using a new credential")
            self._value = value


def _read_token(path: Path) -> str:
    """Return the Authorization header for the token in a file. Raises ConfigError naming it."""
    try:
        with path.open("rb") as file:
            token = file.read(_MAX_TOKEN).strip()
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror or error}") from error
    return _render_bearer(f"token file {path}", token)


def _render_bearer(where: str, token: bytes) -> str:
    """Return the Authorization header. Raises ConfigError, which shows nothing of the token."""
    # Anything else would end the header early, or be refused with an error that shows the token.
    if not token or not all(33 <= byte <= 126 for byte in token):
        raise ConfigError(f"{where}: it holds no token: {len(token)} bytes")
    return f"Bearer {token.decode()}"


def token_file(path: Path, clock: Clock, *, otherwise: str = "") -> Credential:
    """Return the credential in a file that may change.

    Where it cannot be read, `otherwise` counts; where that is empty, raises ConfigError.
    """

    async def load() -> str:
        return read()

    def read() -> str:
        try:
            return _read_token(path)
        except ConfigError:
            if not otherwise:
                raise
            return otherwise

    return Credential(read(), load, clock, reread_every=REREAD_EVERY)


class LoginProgram(Confidential, msgspec.Struct, frozen=True, kw_only=True):
    """The program that a kubeconfig names in `users[].user.exec`."""

    where: str
    """The files and the path to it, the start of each message about it."""
    command: str
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    api_version: str
    interactive_mode: str = _IF_AVAILABLE
    cluster: Mapping[str, Any] | None = None


class ProgramCredentials(Confidential, msgspec.Struct, frozen=True, rename="camel"):
    """What the program printed: a token, a certificate with its key, or both."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Printed(Confidential, msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    status: ProgramCredentials | None = None


async def run_login(program: LoginProgram) -> ProgramCredentials:
    """Return the credentials; a person may be asked for something meanwhile. Raises ConfigError."""
    is_interactive = _is_interactive(program)
    # A person needs minutes where no time is too long; nobody answers a question without one.
    limit = None if is_interactive else _LOAD_LIMIT.total_seconds()
    try:
        async with asyncio.timeout(limit):
            printed, code = await _run(program, is_interactive=is_interactive)
    except TimeoutError as error:
        raise ConfigError(f"{program.where}: no credential within {limit:.0f}s") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or f"{error}"
        raise ConfigError(f"{program.where}.command: {quote(program.command)}: {why}") from error
    if code:
        how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise ConfigError(f"{program.where}.command: {quote(program.command)} {how}")
    return _read(program, printed)


def _is_interactive(program: LoginProgram) -> bool:
    # Without standard input Python has none of its own.
    is_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if program.interactive_mode == _ALWAYS and not is_terminal:
        raise ConfigError(
            f"{program.where}.interactiveMode: it is {_ALWAYS}, and standard input is not a"
            " terminal"
        )
    return is_terminal and program.interactive_mode != _NEVER


async def _run(program: LoginProgram, *, is_interactive: bool) -> tuple[bytes, int]:
    spec: dict[str, Any] = {"interactive": is_interactive}
    if program.cluster is not None:
        spec["cluster"] = program.cluster
    info = {"kind": _KIND, "apiVersion": program.api_version, "spec": spec}
    return await run_program(
        [program.command, *program.arguments],
        is_interactive=is_interactive,
        env={**os.environ, **program.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)},
    )


def _read(program: LoginProgram, printed: bytes) -> ProgramCredentials:
    import yaml  # a process in a cluster never needs it

    where = f"{program.where}.command: what {quote(program.command)} printed"
    try:
        try:
            content = json.loads(printed)
        except ValueError:
            content = yaml.safe_load(printed)  # which client-go takes as well
        answer = msgspec.convert(content, _Printed)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ConfigError(f"{where} is not JSON") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    if (answer.apiVersion, answer.kind) != (program.api_version, _KIND):
        shown = quote(f"{answer.kind} of {answer.apiVersion}")
        raise ConfigError(f"{where} is {shown}, not {_KIND} of {program.api_version}")
    given = answer.status or ProgramCredentials()
    if bool(given.client_certificate_data) != bool(given.client_key_data):
        raise ConfigError(f"{where} has a certificate or a key, not both")
    if not given.token and not given.client_key_data:
        raise ConfigError(f"{where} has neither a token nor a certificate")
    if given.token:
        _render_bearer(f"{where}: status.token", given.token.encode())
    return given


Pem = Path | bytes
"""A file, or what one would hold."""
_T = TypeVar("_T")


class KubeconfigChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which files make a kubeconfig, and what of it is used."""

    files: tuple[Path, ...]
    origin: str = "-kubernetes.config-file"
    """The flag that names them, or what they are: each message about them begins with it."""
    context: str = ""
    server: str = ""
    """URL in the place of the cluster's server; empty: its own."""

    @property
    def names(self) -> str:
        return os.pathsep.join(map(str, self.files))


class UserCredentials(Confidential, msgspec.Struct, frozen=True, kw_only=True):
    """What shows the API server who we are."""

    where: str = ""
    certificate: Pem | None = None
    key: Pem | None = None
    authorization: str = ""
    token_file: Path | None = None
    """Counts before `authorization` while it can be read."""
    program: LoginProgram | None = None
    headers: Sequence[tuple[str, str]] = ()


class Kubeconfig(Confidential, msgspec.Struct, frozen=True, kw_only=True):
    """One context of a kubeconfig, checked."""

    label: str
    """Origin and files, the start of each message about it."""
    namespace: str
    """That of the context; empty where it names none."""
    server: str
    server_name: str
    """The name that the certificate of the server shows; empty: that in the URL."""
    is_insecure: bool
    authority: Pem | None
    """None: the certificate authorities of the system."""
    proxy: str
    """Empty: that of the environment."""
    user: UserCredentials


# The fields of the files. Those that are not named here have no effect in kubectl either.


class _Extension(msgspec.Struct):
    name: str = ""
    extension: Any = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    """Login programs are told; our requests never want compressed answers."""
    extensions: list[_Extension] = []


class _Variable(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Program(msgspec.Struct, rename="camel"):
    command: str = ""
    args: list[str] = []
    env: list[_Variable] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(Confidential, msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    username: str = ""
    password: str = ""
    auth_provider: Any = None
    exec: _Program | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedContext(msgspec.Struct):
    name: str = ""
    context: _Context = msgspec.field(default_factory=_Context)


class _NamedCluster(msgspec.Struct):
    name: str = ""
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


class _NamedUser(Confidential, msgspec.Struct):
    name: str = ""
    user: _User = msgspec.field(default_factory=_User)


class _File(Confidential, msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    current_context: str = msgspec.field(default="", name="current-context")
    contexts: list[_NamedContext] = []
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []


class _Part(msgspec.Struct, frozen=True):
    path: str
    """Files and path, the start of each message about it."""
    base: Path

    def refuse(self, field: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.path}.{field}{problem}")

    def read_pem(self, field: str, path: str, data: str) -> Pem | None:
        """Return the file or the data of a field, None where neither is set."""
        if path and data:
            raise self.refuse(field, f": {field}-data is set as well")
        if data:
            return self._decode(f"{field}-data", data)
        if not path:
            return None
        file = self.base / path
        try:
            content = file.read_bytes()
        except FileNotFoundError as error:
            raise self.refuse(field, f": there is no file {file}") from error
        except OSError as error:
            raise self.refuse(field, f": {file}: {error.strerror or error}") from error
        if _PEM not in content:
            raise self.refuse(field, f": {file} is not PEM: no line begins with {_PEM.decode()}")
        self._refuse_encrypted(field, content)
        return file

    def _decode(self, field: str, data: str) -> bytes:
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.refuse(field, " is not base64") from error
        if _PEM not in content:
            begins = _PEM.decode()
            raise self.refuse(field, f" is not PEM in base64: no line begins with {begins}")
        self._refuse_encrypted(field, content)
        return content

    def _refuse_encrypted(self, field: str, content: bytes) -> None:
        # OpenSSL would ask for the password on the terminal.
        if any(mark in content for mark in _ENCRYPTED):
            raise self.refuse(field, " is encrypted, which is not supported")


def read_kubeconfig(choice: KubeconfigChoice) -> Kubeconfig:
    """Return the chosen context with what it names. Raises ConfigError naming file and field."""
    label = f"{choice.origin} {choice.names}"
    files = [(file, _read_file(file, f"{choice.origin} {file}")) for file in choice.files]
    current = (content.current_context for _, content in files if content.current_context)
    name = choice.context or next(current, "")
    if not name:
        raise ConfigError(f"{label}: current-context is not set")
    contexts = (
        (file, one.name, one.context) for file, content in files for one in content.contexts
    )
    clusters = (
        (file, one.name, one.cluster) for file, content in files for one in content.clusters
    )
    users = ((file, one.name, one.user) for file, content in files for one in content.users)
    _, context = _choose(f"{label}: contexts", name, contexts)
    part, cluster = _choose(f"{label}: clusters", context.cluster, clusters)
    where = f"{part.path}.server"
    if choice.server:
        where = "-kubernetes.api-url"
        cluster = msgspec.structs.replace(cluster, server=choice.server)
    server = _read_server(where, cluster.server)
    if cluster.proxy_url and (problem := find_url_problem(cluster.proxy_url, PROXY_SCHEMES)):
        raise part.refuse("proxy-url", f" {problem}")
    authority = part.read_pem(
        "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data
    )
    if authority is not None:
        _check_authority(part, authority)
    if authority is not None and cluster.insecure_skip_tls_verify:
        raise part.refuse("insecure-skip-tls-verify", ": certificate-authority is set as well")
    kubeconfig = Kubeconfig(
        label=label,
        namespace=context.namespace,
        server=server,
        server_name=cluster.tls_server_name,
        is_insecure=cluster.insecure_skip_tls_verify,
        authority=authority,
        proxy=cluster.proxy_url,
        user=UserCredentials(),
    )
    if not context.user:
        return kubeconfig
    part, user = _choose(f"{label}: users", context.user, users)
    credentials = _read_user(part, user, kubeconfig, cluster)
    return msgspec.structs.replace(kubeconfig, user=credentials)


def _parse_yaml(content: bytes) -> object:
    """Return the first document, in which times are text, as for client-go.

    Raises ValueError with the place, never with the content, which may hold a token.
    """
    import yaml  # a process in a cluster never needs it

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own)
            first: [(tag, form) for tag, form in resolvers if not tag.endswith(":timestamp")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return _drop_nulls(Loader(content).get_data())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f" at line {mark.line + 1}" if mark is not None else "") from None


def _drop_nulls(value: object) -> object:
    """Return decoded YAML without fields that are null, which are as good as not set."""
    if isinstance(value, dict):
        return {f"{key}": _drop_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [{} if item is None else _drop_nulls(item) for item in value]
    return value


def _read_file(file: Path, label: str) -> _File:
    try:
        content = _parse_yaml(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{label}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{label}: it is not YAML{error}") from None
    if content is None:
        return _File()
    if not isinstance(content, dict):
        raise ConfigError(f"{label}: it is not a kubeconfig: no mapping of fields")
    try:
        decoded = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        problem, _, path = f"{error}".replace("`", "").partition(" - at $")
        raise ConfigError(f"{label}: {path.removeprefix('.')}: {problem}") from None
    if decoded.apiVersion not in {"", "v1"} or decoded.kind not in {"", "Config"}:
        what = quote(f"{decoded.kind} of {decoded.apiVersion}")
        raise ConfigError(f"{label}: it is not a kubeconfig: {what}, not Config of v1")
    for plural in ("contexts", "clusters", "users"):
        names = [entry.name for entry in getattr(decoded, plural)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"{label}: {plural}[name={twice[0]}] is there twice")
    return decoded


def _choose(where: str, name: str, entries: Iterable[tuple[Path, str, _T]]) -> tuple[_Part, _T]:
    field = where.rpartition(" ")[2].removesuffix("s")
    names: list[str] = []
    for file, own, value in entries:
        if own == name:
            return _Part(f"{where}[name={name}].{field}", file.resolve().parent), value
        names.append(own)
    raise ConfigError(f"{where}[name={name}].{field} is not there{_suggest(name, names)}")


def _suggest(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    shown = ", ".join(names[:_MOST_NAMES])
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return f"; there is only {shown}{more}" if names else ""


def _read_server(where: str, text: str) -> str:
    """Return the URL without a slash at its end, where paths are added."""
    if not text:
        raise ConfigError(f"{where} is not set")
    if problem := find_url_problem(text):
        raise ConfigError(f"{where}: {quote(text)} {problem}")
    url = urlsplit(text)
    if url.username is not None or url.query or url.fragment:
        raise ConfigError(f"{where}: a user, a query or a fragment in the URL is not supported")
    return urlunsplit(url).rstrip("/")


def _check_authority(part: _Part, authority: Pem) -> None:
    content = authority.read_bytes() if isinstance(authority, Path) else authority
    try:
        ssl.create_default_context(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise part.refuse("certificate-authority", ": it holds no certificate") from error


def _read_user(
    part: _Part, user: _User, kubeconfig: Kubeconfig, cluster: _Cluster
) -> UserCredentials:
    if user.auth_provider is not None:
        raise part.refuse("auth-provider", " is not supported: name a login program in exec")
    headers = tuple(_list_impersonation(part, user))
    # As by kubectl, no credential is sent in the clear.
    if kubeconfig.server.startswith("http://"):
        return UserCredentials(where=part.path, headers=headers)
    certificate = part.read_pem(
        "client-certificate", user.client_certificate, user.client_certificate_data
    )
    key = part.read_pem("client-key", user.client_key, user.client_key_data)
    if certificate is not None and key is None:
        raise part.refuse("client-key", " is not set, and client-certificate is")
    if (user.username or user.password) and (user.token or user.token_file):
        raise part.refuse("username", ": a token is set as well")
    authorization = ""
    if user.token:
        authorization = _render_bearer(f"{part.path}.token", user.token.encode())
    elif user.username:
        pair = f"{user.username}:{user.password}".encode()
        authorization = f"Basic {base64.b64encode(pair).decode()}"
    # A program is not run where there is another credential.
    has_other = certificate is not None or authorization or user.token_file
    return UserCredentials(
        where=part.path,
        certificate=certificate,
        key=key if certificate is not None else None,
        authorization=authorization,
        token_file=part.base / user.token_file if user.token_file else None,
        program=None
        if user.exec is None or has_other
        else _read_program(part, user.exec, kubeconfig, cluster),
        headers=headers,
    )


def _list_impersonation(part: _Part, user: _User) -> Iterator[tuple[str, str]]:
    named = [
        ("as", "Impersonate-User", [user.as_user]),
        ("as-uid", "Impersonate-Uid", [user.as_uid]),
        ("as-groups", "Impersonate-Group", user.as_groups),
        *(
            ("as-user-extra", f"Impersonate-Extra-{percent_encode(key, _IN_HEADER_NAMES)}", values)
            for key, values in user.as_user_extra.items()
        ),
    ]
    for field, header, values in named:
        for value in filter(None, values):
            if not user.as_user:
                raise part.refuse(field, " is set, and as is not")
            if not value.isprintable():
                raise part.refuse(field, " holds a character that no header may have")
            yield header, value


def _read_program(
    part: _Part, program: _Program, kubeconfig: Kubeconfig, cluster: _Cluster
) -> LoginProgram:
    if not program.command:
        raise part.refuse("exec.command", " is not set")
    version, mode = program.api_version, program.interactive_mode
    if version not in {_V1, _V1BETA1}:
        problem = f": {quote(version)} is neither {_V1} nor {_V1BETA1}"
        raise part.refuse("exec.apiVersion", problem)
    if not mode and version == _V1BETA1:
        mode = _IF_AVAILABLE
    if mode not in _MODES:
        problem = f": {quote(mode)} is none of {', '.join(_MODES)}"
        raise part.refuse("exec.interactiveMode", problem)
    if not all(variable.name for variable in program.env):
        raise part.refuse("exec.env", ": a variable has no name")
    # With a slash a path, which starts at the file; else a name, which is looked up in our PATH.
    path = program.command
    found = shutil.which(str(part.base / path) if os.sep in path else path)
    if found is None or not os.path.isabs(found):
        hint = " ".join(program.install_hint.split())
        advice = f": {quote(hint)[1:-1]}" if hint else ""
        raise part.refuse("exec.command", f": there is no program {quote(path)}{advice}")
    return LoginProgram(
        where=f"{part.path}.exec",
        command=found,
        arguments=tuple(program.args),
        environ={variable.name: variable.value for variable in program.env},
        api_version=version,
        interactive_mode=mode,
        cluster=_tell(kubeconfig, cluster) if program.provide_cluster_info else None,
    )


def _tell(kubeconfig: Kubeconfig, cluster: _Cluster) -> dict[str, Any]:
    """Return what a login program is told of the cluster: fields that are not set are left out."""
    authority = kubeconfig.authority
    content = authority.read_bytes() if isinstance(authority, Path) else authority or b""
    settings = [one.extension for one in cluster.extensions if one.name == _PROGRAM_EXTENSION]
    told = {
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(content).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
    }
    return {
        "server": cluster.server,
        **{field: value for field, value in told.items() if value},
        "config": settings[0] if settings else None,
    }
