"""Every reason has a meaning, and many a remedy, in plain words."""

import pytest

from rollout_operator.model.outcome import Code, render_path

LONGEST = 100


@pytest.mark.parametrize("code", list(Code))
def test_each_line_is_short_and_plain(code: Code) -> None:
    """D-40."""
    assert code.meaning
    for text in (code.meaning, code.remedy):
        assert len(text) <= LONGEST
        assert text == text.strip(" .")
        assert not text or text.isprintable()


def test_the_link_leads_to_the_code() -> None:
    assert render_path(Code.PAUSED) == "/reasons#paused"
