"""What is settled before webhooks are put together: the file of client CAs."""

from pathlib import Path

import pytest

from rollout_operator.model.names import ConfigError
from rollout_operator.operator.webhooks import make_serving


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe"])
def test_sec03_a_file_without_a_certificate_is_reported_by_flag_and_path(
    tmp_path: Path, content: bytes
) -> None:
    """Before any Secret is read: a slip here must not cost a good certificate."""
    path = tmp_path / "clients.pem"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as raised:
        make_serving(str(path))

    assert str(raised.value) == (
        f"-server-tls.client-ca-file: {path}: client ca: not a certificate in PEM"
    )


def test_sec03_a_file_that_is_not_there_is_reported_by_flag_and_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"-server-tls\.client-ca-file: .*: No such file"):
        make_serving(str(tmp_path / "none.pem"))


def test_without_the_flag_any_client_is_served() -> None:
    make_serving("")
