"""One context out of one or more files (D-76): which entry counts, and what is wrong with them.

That kubectl takes the same files in the same way is shown in `test_as_kubectl`.
"""

import base64
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout_operator.kube.kubeconfig import Kubeconfig, KubeconfigChoice, read_kubeconfig
from rollout_operator.model.names import ConfigError
from tests.world.pki import Pki, make_pki

V1 = "client.authentication.k8s.io/v1"
EXEC = {"apiVersion": V1, "command": "sh", "interactiveMode": "Never"}
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n").decode()
BAD_PORT = "needs a port from 1 to 65535"
ENCRYPTED = base64.b64encode(b"-----BEGIN %s-----\nMIIB\n" % b"ENCRYPTED PRIVATE KEY").decode()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture
def whole(tmp_path: Path, pki: Pki) -> Path:
    """Return a file with two contexts of one cluster, whose CA stands beside it."""
    (tmp_path / "a").mkdir()
    shutil.copy(pki.ca, tmp_path / "a/ca.crt")
    return write(
        tmp_path / "a/config",
        {
            "current-context": "prod",
            "contexts": [
                {"name": "prod", "context": {"cluster": "k", "user": "u", "namespace": "mimir"}},
                {"name": "staging", "context": {"cluster": "k", "user": "v"}},
            ],
            "clusters": [
                {
                    "name": "k",
                    "cluster": {"server": "https://one:6443", "certificate-authority": "ca.crt"},
                }
            ],
            "users": [
                {"name": "u", "user": {"token": "of-u"}},
                {"name": "v", "user": {"token": "of-v", "tokenFile": "t"}},
            ],
        },
    )


def choose(*files: Path, context: str = "", server: str = "") -> KubeconfigChoice:
    return KubeconfigChoice(files=files, origin="kubeconfig", context=context, server=server)


def read_one(tmp_path: Path, *, user: object = None, cluster: object = None) -> Kubeconfig:
    """Read a file with one cluster and one user."""
    server = {"server": "https://one:6443"}
    cluster = {**server, **cluster} if isinstance(cluster, dict) else cluster or server
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    return read_kubeconfig(choose(write(tmp_path / "one/config", content)))


def test_the_current_context_with_its_own_server_and_namespace(whole: Path) -> None:
    config = read_kubeconfig(choose(whole))

    assert config.namespace == "mimir"
    assert (config.server, config.authority) == ("https://one:6443", whole.parent / "ca.crt")
    assert (config.user.authorization, config.user.token_file) == ("Bearer of-u", None)


def test_another_context_is_chosen_by_its_name(whole: Path) -> None:
    config = read_kubeconfig(choose(whole, context="staging"))

    assert config.namespace == ""
    assert (config.user.authorization, config.user.token_file) == (
        "Bearer of-v",
        whole.parent / "t",
    )


def test_the_operators_flag_replaces_the_server(whole: Path) -> None:
    assert read_kubeconfig(choose(whole, server="https://other")).server == "https://other"


def test_of_several_files_the_first_that_names_something_wins(
    whole: Path, tmp_path: Path, pki: Pki
) -> None:
    """And paths start at the file that they stand in, as for kubectl. A file may be empty."""
    (tmp_path / "b").mkdir()
    shutil.copy(pki.cert, tmp_path / "b/me.crt")
    shutil.copy(pki.key, tmp_path / "b/me.key")
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    first = write(
        tmp_path / "b/config",
        {
            "contexts": [{"name": "both", "context": {"cluster": "k", "user": "u"}}],
            "clusters": None,
            "users": [{"name": "u", "user": user}, None],
        },
    )
    empty = tmp_path / "empty"
    empty.touch()

    config = read_kubeconfig(choose(empty, first, whole, context="both"))

    assert config.user.certificate == first.parent / "me.crt"
    assert config.user.key == first.parent / "me.key"
    assert (config.server, config.authority) == ("https://one:6443", whole.parent / "ca.crt")
    # The first file has no current context: the second one says which it is.
    assert read_kubeconfig(choose(first, whole)).namespace == "mimir"


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ("prd", "contexts[name=prd].context is not there; did you mean prod?"),
        ("zzz", "contexts[name=zzz].context is not there; there is only prod, staging"),
    ],
)
def test_a_context_that_is_not_there(whole: Path, context: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_kubeconfig(choose(whole, context=context))

    assert str(caught.value) == f"kubeconfig {whole}: {problem}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            {"kind": "Pod", "apiVersion": "v1"},
            'it is not a kubeconfig: "Pod of v1", not Config of v1',
        ),
        ({"users": [{"name": "a"}, {"name": "a"}]}, "users[name=a] is there twice"),
        ({"users": [{"user": {"token": 7}}]}, "users[0].user.token: Expected str, got int"),
        ({"clusters": ["secret"]}, "clusters[0]: Expected object, got str"),
    ],
)
def test_what_is_wrong_with_a_file_counts_wherever_it_stands(
    whole: Path, tmp_path: Path, content: object, problem: str
) -> None:
    file = write(tmp_path / "b/config", content)

    with pytest.raises(ConfigError) as caught:
        read_kubeconfig(choose(whole, file))

    assert str(caught.value) == f"kubeconfig {file}: {problem}"


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"server": ""}, "server is not set"),
        ({"server": "one:6443"}, 'server: "one:6443" must begin with https://'),
        ({"server": "https://"}, 'server: "https://" names no host'),
        ({"server": "https://:443"}, 'server: "https://:443" names no host'),
        ({"server": "https://a:b"}, f'server: "https://a:b" {BAD_PORT}'),
        ({"server": "https://a:0"}, f'server: "https://a:0" {BAD_PORT}'),
        ({"server": "https://127.0.0.1:99999"}, f'server: "https://127.0.0.1:99999" {BAD_PORT}'),
        (
            {"server": "https://a b"},
            'server: "https://a b" contains a space or a control character',
        ),
        ({"server": "https://[::1"}, 'server: "https://[::1" has an invalid host'),
        ({"server": "https://[::1]x:1"}, 'server: "https://[::1]x:1" has an invalid host'),
        ({"server": "https://1.2.3.999"}, 'server: "https://1.2.3.999" has an invalid host'),
        ({"server": "https://a..b"}, 'server: "https://a..b" has an invalid host'),
        (
            {"server": "https://me:secret@one"},
            "server: a user, a query or a fragment in the URL is not supported",
        ),
        ({"certificate-authority": "ca"}, "certificate-authority: there is no file {base}/ca"),
        ({"certificate-authority-data": PEM}, "certificate-authority: it holds no certificate"),
        (
            {"certificate-authority": "config"},
            "certificate-authority: {base}/config is not PEM: no line begins with -----BEGIN ",
        ),
        (
            {"certificate-authority": "ca", "certificate-authority-data": PEM},
            "certificate-authority: certificate-authority-data is set as well",
        ),
        ({"proxy-url": "p:3128"}, "proxy-url must begin with http:// or https://"),
        (
            {"proxy-url": "socks5://me:secret@p:1"},
            "proxy-url must begin with http:// or https://",
        ),
        ({"proxy-url": "http://me:secret@p:99999"}, f"proxy-url {BAD_PORT}"),
        ({"proxy-url": "http://me:secret@"}, "proxy-url names no host"),
    ],
)
def test_the_field_of_a_cluster_is_named(
    cluster: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_one(tmp_path, cluster=cluster)

    base = tmp_path / "one"
    where = f"kubeconfig {base}/config: clusters[name=k].cluster."
    assert str(caught.value) == where + message.format(base=base)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"client-certificate-data": "?secret"}, "client-certificate-data is not base64"),
        (
            {"client-key-data": base64.b64encode(b"secret").decode()},
            "client-key-data is not PEM in base64: no line begins with -----BEGIN ",
        ),
        (
            {"client-key-data": ENCRYPTED},
            "client-key-data is encrypted, which is not supported",
        ),
        (
            {"client-key-data": PEM, "client-key": "b"},
            "client-key: client-key-data is set as well",
        ),
        ({"client-key": "a/b.key"}, "client-key: there is no file {base}/a/b.key"),
        (
            {"client-certificate-data": PEM},
            "client-key is not set, and client-certificate is",
        ),
        ({"token": "sec\nret"}, "token: it holds no token: 7 bytes"),
        ({"username": "me", "tokenFile": "t"}, "username: a token is set as well"),
        (
            {"auth-provider": {"name": "oidc"}},
            "auth-provider is not supported: name a login program in exec",
        ),
        ({"as-uid": "7"}, "as-uid is set, and as is not"),
        ({"as-user-extra": {"a": ["b"]}}, "as-user-extra is set, and as is not"),
        ({"as": "me\nx: y"}, "as holds a character that no header may have"),
        ({"exec": EXEC | {"command": None}}, "exec.command is not set"),
        ({"exec": EXEC | {"command": "no-such"}}, 'exec.command: there is no program "no-such"'),
        (
            {"exec": EXEC | {"command": "no-such", "installHint": "get it\nfrom \x1b[1mus\n"}},
            'exec.command: there is no program "no-such": get it from \\u001b[1mus',
        ),
        ({"exec": EXEC | {"command": "./sh"}}, 'exec.command: there is no program "./sh"'),
        (
            {"exec": {"command": "sh"}},
            f'exec.apiVersion: "" is neither {V1} nor {V1}beta1',
        ),
        (
            {"exec": EXEC | {"interactiveMode": "Sometimes"}},
            'exec.interactiveMode: "Sometimes" is none of Never, IfAvailable, Always',
        ),
        (
            {"exec": {"command": "sh", "apiVersion": V1}},
            'exec.interactiveMode: "" is none of Never, IfAvailable, Always',
        ),
        ({"exec": EXEC | {"env": [{"value": "x"}]}}, "exec.env: a variable has no name"),
    ],
)
def test_the_field_of_a_user_is_named_and_its_value_is_not(
    user: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_one(tmp_path, user=user)

    base = tmp_path / "one"
    where = f"kubeconfig {base}/config: users[name=u].user."
    assert str(caught.value) == where + message.format(base=base)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("https://one:6443/", "https://one:6443"),
        ("HTTPS://One", "https://One"),
        ("https://rancher/k8s/clusters/c-1/", "https://rancher/k8s/clusters/c-1"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
    ],
)
def test_spellings_of_a_url(server: str, url: str, tmp_path: Path) -> None:
    assert read_one(tmp_path, cluster={"server": server}).server == url


def test_a_program_with_a_slash_stands_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kdash-rs/kdash#541, kube-rs/kube#2037: without a slash it is looked up in our own PATH."""

    def place(command: str, **fields: Any) -> str:
        program = read_one(
            tmp_path, user={"exec": EXEC | {"command": command, **fields}}
        ).user.program
        assert program is not None
        return str(Path(program.command).resolve().relative_to(tmp_path))

    for folder in ("one/bin", "other"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("login", "../login"):
            file = tmp_path / folder / name
            file.write_text("")
            file.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))

    assert place("bin/login") == "one/bin/login"
    assert place("./bin/../login") == "one/login"
    assert place("../other/login") == "other/login"
    assert place(str(tmp_path / "other/login")) == "other/login"
    assert place("login", env=[{"name": "PATH", "value": "/no/such"}]) == "other/login"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"token": "t"}, id="token"),
        pytest.param({"tokenFile": "t"}, id="token file"),
        pytest.param({"username": "me"}, id="name and password"),
    ],
)
def test_a_program_is_not_run_beside_another_credential(
    other: dict[str, object], tmp_path: Path
) -> None:
    user = read_one(tmp_path, user={"exec": {"command": "no-such"}, **other}).user
    assert user.program is None


def test_impersonation_is_a_matter_of_headers(tmp_path: Path) -> None:
    user = {
        "as": "jane",
        "as-uid": "1",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.org/a b": ["x", "y"]},
    }
    assert read_one(tmp_path, user=user).user.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.org%2Fa%20b", "x"),
        ("Impersonate-Extra-example.org%2Fa%20b", "y"),
    )


def test_a_time_is_text(tmp_path: Path) -> None:
    """As kubectl reads a namespace or a token of this form."""
    file = tmp_path / "config"
    file.write_text(
        "current-context: 2026-01-02\n"
        "contexts: [{name: 2026-01-02, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://one'}}]\n"
    )
    assert read_kubeconfig(choose(file)).server == "https://one"
