"""The harness itself: what it takes for equal, what it records, and that it breaks nothing off."""

from pathlib import Path

import pytest
import yaml

from tests.contract.plays import Needs, Sequence, list_sequences
from tests.contract.recorded import (
    HOW,
    Recording,
    list_outdated,
    name_problem,
    read_recording,
    write_recording,
)
from tests.contract.simulated import play_simulated
from tests.contract.transcript import Transcript
from tests.contract.world import World
from tests.goldens import Golden
from tests.stories import Story, read_stories
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


@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "harness.txt"))
def test_what_is_equal(story: Story, golden: Golden) -> None:
    """Messages alone may be left out on demand."""
    one, other = story.commands[0].split(" ~ ")
    is_equal = _render(one) == _render(other)
    is_same = _render(one, has_texts=False) == _render(other, has_texts=False)
    story.check("equal" if is_equal else "equal but for texts" if is_same else "not equal", golden)


def test_a_sequence_that_breaks_off_says_why() -> None:
    async def play(_world: World) -> None:
        raise KeyError("lost")

    found = play_simulated(Sequence(topic="x", name="y", play=play, needs=Needs.API))

    assert isinstance(found, KeyError)


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


def test_a_recording_is_completed_stale_answers_leave_it_and_versions_do_not_mix(
    tmp_path: Path,
) -> None:
    names = {"gets/a", "gets/b"}
    assert read_recording(folder=tmp_path) == Recording(kubernetes=VERSION, answers={})
    write_recording(RECORDING, names, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{VERSION.removeprefix('v').rpartition('.')[0]}.json.xz"
    assert read_recording(folder=tmp_path) == RECORDING

    written = file.stat()
    write_recording(Recording(kubernetes=VERSION, answers={"gets/b": ["404"]}), names, tmp_path)
    assert file.stat() == written, "an equal one is not written"

    more = Recording(kubernetes=VERSION, answers={"gets/0": ["409"], "gets/b": ["410"]})
    write_recording(more, {"gets/0", "gets/b"}, tmp_path)
    assert read_recording(folder=tmp_path) == more

    patched = Recording(kubernetes=f"{VERSION.rpartition('.')[0]}.99", answers={"gets/b": ["404"]})
    write_recording(patched, names, tmp_path)
    write_recording(Recording(kubernetes=OLDER, answers={"gets/a": ["1"]}), names, tmp_path)
    assert read_recording(folder=tmp_path) == patched
    assert read_recording(OLDER, tmp_path).answers == {"gets/a": ["1"]}
