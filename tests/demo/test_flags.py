"""What `make demo-cluster ARGS=...` takes."""

from datetime import timedelta

import pytest

from tests.demo.__main__ import main
from tests.demo.flags import Settings, read_settings


def test_flags_are_taken() -> None:
    words = "--pods=2 -limit=2 -ready-after 300ms -plain -keep"

    assert read_settings(words.split()) == Settings(
        pods=2, limit=2, ready_after=timedelta(milliseconds=300), is_plain=True, is_kept=True
    )


@pytest.mark.parametrize("words", ["-pods=0", "-ready-after=0s", "-ready-after=x", "-keeep", "x"])
def test_mistakes_end_with_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())

    assert ended.value.code == 2
    assert words.split("=")[0].split()[0] in capsys.readouterr().err
