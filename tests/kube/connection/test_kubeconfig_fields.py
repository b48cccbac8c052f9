"""What is reported of a field that is wrong: file, field and no secret (FLAG-14)."""

import base64
import stat
from pathlib import Path

import pytest

from rollout_operator.kube.connection.kubeconfig_fields import check_cluster, check_user
from rollout_operator.model.errors import ConfigError

WHERE = "file: users[name=u].user"
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n").decode()


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
