"""Names of images, as container engines read them (RELB-29, RT-95)."""

from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.releases import check_tag, parse_reference
from tests.examples import repeatable


@repeatable(500)
@given(st.text(alphabet="aZ09._-:/@[]%?#\\ \n\u00e4", max_size=40))
def test_no_text_leads_out_of_the_path_of_a_url(text: str) -> None:
    """RELB-29: whatever is accepted, and it is read the same again."""
    try:
        reference = parse_reference(text)
    except InvalidInput:
        return
    assert parse_reference(str(reference)) == reference
    assert not set(reference.repository.name) & set("%?#\\ \n@:")
    assert ".." not in reference.repository.name
    assert reference.tag is None or check_tag(reference.tag) == reference.tag
