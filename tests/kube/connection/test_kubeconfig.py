"""One context out of one or more files (D-76): which entry counts, and what is wrong with them.

That kubectl takes the same files in the same way is shown in `test_as_kubectl`.
"""

import base64
import os
import shutil
import stat
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rollout_operator.kube.kubeconfig import Kubeconfig, KubeconfigChoice, read_kubeconfig
from rollout_operator.model.names import ConfigError
from tests.stories import check_tables
from tests.world.pki import Pki, make_pki

PEM: Final = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n").decode()
LOCKED: Final = base64.b64encode(b"-----BEGIN ENCRYPTED PRIVATE" + b" KEY-----\nMIIB\n").decode()
WORDS: Final = {
    "EXEC": "apiVersion: V1, interactiveMode: Never",
    "V1": "client.authentication.k8s.io/v1",
    "LOCKED": LOCKED,
    "PEM": PEM,
    "SECRET64": base64.b64encode(b"secret").decode(),
}


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
    cluster = {"server": "https://one:6443", "certificate-authority": "ca.crt"}
    content = {
        "current-context": "prod",
        "contexts": [
            {"name": "prod", "context": {"cluster": "k", "user": "u", "namespace": "mimir"}},
            {"name": "staging", "context": {"cluster": "k", "user": "v"}},
        ],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [
            {"name": "u", "user": {"token": "of-u"}},
            {"name": "v", "user": {"token": "of-v", "tokenFile": "t"}},
        ],
    }
    return write(tmp_path / "a/config", content)


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


def parse(text: str) -> Any:
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    return yaml.safe_load(text)


def show(config: Kubeconfig, folder: Path) -> str:
    """Return what is taken of the files."""
    user = config.user
    parts: dict[str, object] = {
        "in": config.namespace,
        "CA": config.authority,
        "as": user.authorization,
        "token file": user.token_file,
        "program": user.program and user.program.command,
        "headers": ", ".join(f"{name}: {value}" for name, value in user.headers),
    }
    shown = [f"{name} {value}" for name, value in parts.items() if value]
    return "; ".join([config.server, *shown]).replace(f"{folder}/", "")


def tell(command: str, tmp_path: Path, whole: Path) -> str:
    folder = tmp_path
    verb, _, rest = command.partition(" ")
    try:
        if verb == "cluster":
            config = read_one(folder, cluster=parse(rest))
        elif verb == "user":
            config = read_one(folder, user=parse(rest))
        elif verb == "beside":
            config = read_kubeconfig(choose(whole, write(folder / "b/config", parse(rest))))
        else:
            words = dict(word.split("=") for word in rest.split())
            config = read_kubeconfig(choose(whole, **words))
    except ConfigError as error:
        text = str(error)
        assert text.startswith(f"kubeconfig {folder}/")
        assert "secret" not in text
        where = ("clusters[name=k].cluster.", "users[name=u].user.", f"{folder}/")
        for one in where:
            text = text.replace(one, "")
        return text.removeprefix("kubeconfig ").removeprefix("one/config: ").rstrip()
    return show(config, folder)


test_d_76_what_is_read_or_what_is_wrong = check_tables(__file__, kubeconfig=tell)


def test_of_several_files_the_first_that_names_something_wins(
    whole: Path, tmp_path: Path, pki: Pki
) -> None:
    """And paths start at the file that they stand in, as for kubectl. A file may be empty."""
    (tmp_path / "b").mkdir()
    shutil.copy(pki.cert, tmp_path / "b/me.crt")
    shutil.copy(pki.key, tmp_path / "b/me.key")
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    content = {
        "contexts": [{"name": "both", "context": {"cluster": "k", "user": "u"}}],
        "clusters": None,
        "users": [{"name": "u", "user": user}, None],
    }
    first = write(tmp_path / "b/config", content)
    empty = tmp_path / "empty"
    empty.touch()
    config = read_kubeconfig(choose(empty, first, whole, context="both"))
    assert config.user.certificate == first.parent / "me.crt"
    assert config.user.key == first.parent / "me.key"
    assert (config.server, config.authority) == ("https://one:6443", whole.parent / "ca.crt")
    # The first file has no current context: the second one says which it is.
    assert read_kubeconfig(choose(first, whole)).namespace == "mimir"


def test_a_program_with_a_slash_stands_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kdash-rs/kdash#541, kube-rs/kube#2037: without a slash it is looked up in our own PATH."""

    def place(fields: str) -> str:
        program = read_one(tmp_path, user=parse(f"{{exec: {{EXEC, {fields}}}}}")).user.program
        assert program is not None
        return os.path.relpath(Path(program.command).resolve(), tmp_path)

    for folder in ("one/bin", "other"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("login", "../login"):
            file = tmp_path / folder / name
            file.write_text("")
            file.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert place("command: bin/login") == "one/bin/login"
    assert place("command: ./bin/../login") == "one/login"
    assert place("command: ../other/login") == "other/login"
    assert place(f"command: {tmp_path}/other/login") == "other/login"
    assert place("command: login, env: [{name: PATH, value: /no/such}]") == "other/login"


def test_a_time_is_text(tmp_path: Path) -> None:
    """As kubectl reads a namespace or a token of this form."""
    file = tmp_path / "config"
    file.write_text(
        "current-context: 2026-01-02\n"
        "contexts: [{name: 2026-01-02, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://one'}}]\n"
    )
    assert read_kubeconfig(choose(file)).server == "https://one"
