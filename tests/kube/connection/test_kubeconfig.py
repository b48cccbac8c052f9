"""One context out of one or more files (D-76): which entry counts, and what is wrong with them."""

import base64
import stat
from pathlib import Path

import pytest
import yaml

from rollout_operator.kube.connection.kubeconfig import (
    KubeconfigChoice,
    check_cluster,
    check_user,
    read_kubeconfig,
)
from rollout_operator.model.errors import ConfigError

CLUSTER = {"server": "https://one:6443", "certificate-authority": "ca.crt"}

WHERE = "file: users[name=u].user"
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n").decode()


def write(file: Path, content: dict[str, object]) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Return a file with two contexts of one cluster, whose CA stands beside it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/ca.crt").touch()
    return write(
        tmp_path / "a/config",
        {
            "current-context": "prod",
            "contexts": [
                {"name": "prod", "context": {"cluster": "k", "user": "u", "namespace": "mimir"}},
                {"name": "staging", "context": {"cluster": "k", "user": "v"}},
            ],
            "clusters": [{"name": "k", "cluster": CLUSTER}],
            "users": [
                {"name": "u", "user": {"token": "of-u"}},
                {"name": "v", "user": {"token": "of-v", "tokenFile": "t"}},
            ],
        },
    )


def choose(*files: Path, context: str = "", server: str = "") -> KubeconfigChoice:
    return KubeconfigChoice(files=files, origin="kubeconfig", context=context, server=server)


def cluster_of(content: object) -> object:
    assert isinstance(content, dict)
    return content["clusters"][0]["cluster"]


def user_of(content: object) -> object:
    assert isinstance(content, dict)
    return content["users"][0]["user"]


def test_the_current_context_with_its_own_server_and_namespace(whole: Path) -> None:
    config = read_kubeconfig(choose(whole))

    assert config.namespace == "mimir"
    assert cluster_of(config.content) == {
        "server": "https://one:6443",
        "certificate-authority": str(whole.parent / "ca.crt"),
    }
    assert user_of(config.content) == {"token": "of-u"}
    assert config.token_file is None


def test_another_context_is_chosen_by_its_name(whole: Path) -> None:
    config = read_kubeconfig(choose(whole, context="staging"))

    assert config.namespace == ""
    assert config.token_file == whole.parent / "t"
    assert user_of(config.content) == {}


def test_the_operators_flag_replaces_the_server(whole: Path) -> None:
    config = read_kubeconfig(choose(whole, server="https://other"))

    cluster = cluster_of(config.content)
    assert isinstance(cluster, dict)
    assert cluster["server"] == "https://other"


def test_of_several_files_the_first_that_names_something_wins(whole: Path, tmp_path: Path) -> None:
    """And paths start at the file that they stand in, as for kubectl."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b/me.crt").touch()
    first = write(
        tmp_path / "b/config",
        {
            "contexts": [{"name": "both", "context": {"cluster": "k", "user": "u"}}],
            "users": [{"name": "u", "user": {"client-certificate": "me.crt"}}],
        },
    )

    config = read_kubeconfig(choose(first, whole, context="both"))

    assert user_of(config.content) == {"client-certificate": "me.crt"}
    assert config.base == first.parent
    assert cluster_of(config.content) == {
        "server": "https://one:6443",
        "certificate-authority": str(whole.parent / "ca.crt"),
    }
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


def test_a_cluster_without_a_server_is_no_cluster(tmp_path: Path) -> None:
    file = write(
        tmp_path / "c/config",
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k"}}],
            "clusters": [{"name": "k", "cluster": {}}],
        },
    )

    with pytest.raises(ConfigError) as caught:
        read_kubeconfig(choose(file))

    assert str(caught.value) == f"kubeconfig {file}: clusters[name=k].cluster.server is not set"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"client-certificate-data": "?secret"}, ".client-certificate-data is not base64"),
        (
            {"client-key-data": base64.b64encode(b"secret").decode()},
            ".client-key-data is not PEM in base64: no line begins with -----BEGIN ",
        ),
        ({"client-key-data": 7}, ".client-key-data is not base64"),
        ({"client-key": "a/b.key"}, ".client-key: there is no file {base}/a/b.key"),
        ({"exec": "secret"}, ".exec is not an object"),
        ({"exec": {"command": ["secret"]}}, ".exec.command is not set"),
        ({"exec": {"command": "no-such"}}, '.exec.command: there is no program "no-such"'),
        (
            {"exec": {"command": "no-such", "installHint": "get it\nfrom  us\n"}},
            '.exec.command: there is no program "no-such": get it from us',
        ),
        (
            {"exec": {"command": "sh", "env": [{"name": "PATH", "value": "/no/such"}]}},
            '.exec.command: there is no program "sh"',
        ),
    ],
)
def test_the_field_is_named_and_its_value_is_not(
    user: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_user(WHERE, user, tmp_path)

    assert str(caught.value) == WHERE + message.format(base=tmp_path)
    assert "secret" not in str(caught.value)


def test_a_ca_that_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^c\.certificate-authority: there is no file .*/ca$"):
        check_cluster("c", {"certificate-authority": "ca"}, tmp_path)


def test_what_the_library_can_use_passes(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("x")
    program = tmp_path / "program"
    program.write_text("x")
    program.chmod(stat.S_IRWXU)

    check_cluster(WHERE, {"certificate-authority": "ca"}, tmp_path)
    check_cluster(WHERE, {"certificate-authority-data": f"{PEM}\n"}, tmp_path)
    # The data counts where there are both.
    check_user(WHERE, {"client-key-data": PEM, "client-key": "gone"}, tmp_path)
    check_user(WHERE, {"exec": {"command": str(program)}}, tmp_path)
    env = [{"name": "A", "value": "b"}, {"name": "PATH", "value": str(tmp_path)}]
    check_user(WHERE, {"exec": {"command": "program", "env": env}}, tmp_path)
    check_user(WHERE, {}, tmp_path)
