"""The harness itself: what it takes for equal, what it records, and that it breaks nothing off."""

import pytest
import yaml

from tests.contract.plays import list_sequences
from tests.contract.recorded import HOW, Recording, list_outdated, name_problem
from tests.contract.transcript import Transcript
from tests.stories import check_tables
from tests.world.assets import VERSION

UID, OTHER = (f"{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")
RECORDING = Recording(kubernetes=VERSION, answers={"gets/a": ["200"], "gets/b": ["404"]})
OLDER = "v1.36.9"
STALE = f"recorded, but there is no such sequence: {HOW}"


def _render(bodies: str, *, has_texts: bool = True) -> list[str]:
    transcript = Transcript("ns")
    for body in yaml.safe_load(bodies.replace("UID", UID).replace("OTHER", OTHER)):
        transcript.add({"did": "get", "status": 200, "body": body})
    return transcript.render(has_texts=has_texts)


def compare(case: str) -> str:
    """Compare two transcripts; messages alone may be left out on demand."""
    one, other = case.split(" ~ ")
    is_equal = _render(one) == _render(other)
    is_same = _render(one, has_texts=False) == _render(other, has_texts=False)
    return "equal" if is_equal else "equal but for texts" if is_same else "not equal"


test_what_is_equal = check_tables(__file__, harness=compare)


def test_sequences_have_names_of_their_own() -> None:
    names = [str(each) for each in list_sequences()]

    assert len(names) == len(set(names))
    assert len(names) >= 300


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("gets/a", ["200"], []),
        ("gets/new", ["200"], [f"gets/new: no answer of Kubernetes {VERSION} is recorded: {HOW}"]),
        ("gets/b", ["200"], ["--- recorded", "+++ lab", "@@ -1 +1 @@", "-404", "+200"]),
        ("gets/a", [], ["--- recorded", "+++ lab", "@@ -1 +0,0 @@", "-200"]),
    ],
)
def test_an_answer_that_is_not_recorded_says_how_to_do_so(
    name: str, answer: list[str], said: list[str]
) -> None:
    changed = f"{name}: not what Kubernetes {VERSION} answered; if the sequence has changed: {HOW}"
    head = [changed] if len(said) > 1 else []
    assert name_problem(name, answer, RECORDING, "lab").splitlines() == [*head, *said]


def test_what_is_out_of_date() -> None:
    assert [*list_outdated(RECORDING, ["gets/a", "gets/b", "gets/new"])] == []
    assert [*list_outdated(RECORDING, ["gets/renamed", "gets/b"])] == [f"gets/a: {STALE}"]
    older = Recording(kubernetes=OLDER, answers={})
    assert [*list_outdated(older, [])] == [
        f"Kubernetes {OLDER} is recorded, and {VERSION} used: {HOW}"
    ]
