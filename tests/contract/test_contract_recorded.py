"""What is recorded of the real control plane, and what is said where it is out of date."""

from pathlib import Path

import pytest

from tests.contract.recorded import (
    HOW,
    Recording,
    list_outdated,
    name_problem,
    read_recording,
    write_recording,
)
from tests.world.assets import VERSION

RECORDING = Recording(kubernetes=VERSION, answers={"gets/a": ["200"], "gets/b": ["404"]})
OLDER = "v1.36.9"
CHANGED = f"not what Kubernetes {VERSION} answered; if the sequence has changed: {HOW}"


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        pytest.param("gets/a", ["200"], [], id="as recorded"),
        pytest.param(
            "gets/new",
            ["200"],
            [f"gets/new: no answer of Kubernetes {VERSION} is recorded: {HOW}"],
            id="never recorded",
        ),
        pytest.param(
            "gets/b",
            ["200"],
            [
                f"gets/b: {CHANGED}",
                *("--- recorded", "+++ lab", "@@ -1 +1 @@", "-404", "+200"),
            ],
            id="changed",
        ),
        pytest.param(
            "gets/a",
            ["200", "404"],
            [
                f"gets/a: {CHANGED}",
                *("--- recorded", "+++ lab", "@@ -1 +1,2 @@", " 200", "+404"),
            ],
            id="longer",
        ),
        pytest.param(
            "gets/a",
            [],
            [
                f"gets/a: {CHANGED}",
                *("--- recorded", "+++ lab", "@@ -1 +0,0 @@", "-200"),
            ],
            id="without an answer",
        ),
    ],
)
def test_an_answer_that_is_not_recorded_says_how_to_do_so(
    name: str, answer: list[str], said: list[str]
) -> None:
    assert name_problem(name, answer, RECORDING, "lab").splitlines() == said


@pytest.mark.parametrize(
    ("recording", "names", "said"),
    [
        pytest.param(RECORDING, ["gets/a", "gets/b"], [], id="of today"),
        pytest.param(RECORDING, ["gets/a", "gets/b", "gets/new"], [], id="its test says so itself"),
        pytest.param(
            RECORDING,
            ["gets/renamed", "gets/b"],
            [f"gets/a: recorded, but there is no such sequence: {HOW}"],
            id="renamed",
        ),
        pytest.param(
            RECORDING,
            [],
            [f"gets/{name}: recorded, but there is no such sequence: {HOW}" for name in "ab"],
            id="without any sequence",
        ),
        pytest.param(
            Recording(kubernetes=OLDER, answers={}),
            [],
            [f"Kubernetes {OLDER} is recorded, and {VERSION} used: {HOW}"],
            id="of another version",
        ),
    ],
)
def test_what_is_out_of_date(recording: Recording, names: list[str], said: list[str]) -> None:
    assert [*list_outdated(recording, names)] == said


def test_a_recording_is_completed_and_stale_answers_leave_it(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    assert read_recording(folder=folder) == Recording(kubernetes=VERSION, answers={})

    write_recording(RECORDING, {"gets/a", "gets/b"}, folder)
    (file,) = folder.iterdir()
    assert file.name == f"{VERSION.removeprefix('v').rpartition('.')[0]}.json.xz"
    assert read_recording(folder=folder) == RECORDING

    more = Recording(kubernetes=VERSION, answers={"gets/0": ["409"], "gets/b": ["410"]})
    write_recording(more, {"gets/0", "gets/b"}, folder)
    assert read_recording(folder=folder) == more


def test_an_equal_recording_is_not_written_and_versions_do_not_mix(tmp_path: Path) -> None:
    names = {"gets/a", "gets/b"}
    write_recording(RECORDING, names, tmp_path)
    (file,) = tmp_path.iterdir()
    file.chmod(0o444)
    written = file.stat()

    write_recording(Recording(kubernetes=VERSION, answers={"gets/b": ["404"]}), names, tmp_path)
    assert file.stat() == written

    file.chmod(0o644)
    patched = Recording(kubernetes=f"{VERSION.rpartition('.')[0]}.99", answers={"gets/b": ["404"]})
    write_recording(patched, names, tmp_path)
    write_recording(Recording(kubernetes=OLDER, answers={"gets/a": ["1"]}), names, tmp_path)
    assert read_recording(folder=tmp_path) == patched
    assert read_recording(OLDER, tmp_path).answers == {"gets/a": ["1"]}
