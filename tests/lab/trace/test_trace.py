"""A history as a story that people read, in a text beside this file, and as a hash of its own."""

from collections.abc import Callable
from typing import Any, Self

import pytest
from msgspec.structs import replace
from rollout_lab.model.history import Called, Commit, History, Said
from rollout_lab.trace.lines import strip_time
from rollout_lab.trace.trace import render_story, render_tail, trace_hash

from rollout_operator.kube.api import PODS
from tests.judge.stage import OPERATOR, PERSON, HistoryBuilder, full, play_records, pod_object, s
from tests.stories import check_tables

HOOK = 'admission webhook "x.example.com" denied the request: '


class TraceWords(HistoryBuilder):
    """What the words of a history do, beside those of the builder."""

    def tell(self, at: float, text: str, actor: str = PERSON) -> Self:
        return self.add(Said, at, actor=actor, text=text)

    def log(self, at: float, message: str, **keys: Any) -> Self:
        shown = "".join(f" {key}={full(f'{value}')}" for key, value in keys.items() if key != "why")
        why = f' why="{keys["why"]}"' if "why" in keys else ""
        return self.tell(at, f'level=info msg="{message}"{shown}{why}', OPERATOR)

    def refuse(self, at: float, name: str, why: str) -> Self:
        """Have a review, and with it a person's request for two pods, be refused."""
        how = {"allowed": False, "status": 429, "message": f"{HOOK}{why}"}
        self.review(at - 0.5, name, 1, **how)
        self.send_request(at, name, status=429, subresource="")
        last = self.history.records[-1]
        assert isinstance(last, Called)
        self.history.records[-1] = replace(last, message=f"{HOOK}{why}")
        return self

    def crash(self, at: float, name: str) -> Self:
        """Have a pod wait after a crash."""
        return self.write(at, PODS, name, pod_object(full(name), ready=False, crashing=True))


def write(text: str) -> History:
    words = TraceWords()
    play_records(words, text)
    return words.history


# One pod is replaced, with all that leads to it and comes of it.
ROLLOUT = """
    zones letters=a update_revision=""; 1 lived started; 1.25 lived ready;
    5 tell "sets the image of zone-a to v2"; 5.1 zone a update_revision=zone-a-7d;
    6 log "Terminating pod" group=g zone=a pod=a-0 why="zone-a-0 is at revision zone-a-5f";
    6 delete a-0; 8 replace a-0 revision=zone-a-7d; 9 zone a current_revision=zone-a-7d
"""


def tell(records: str) -> str:
    """Tell a history: each kind of event has its line, and what is no event has none."""
    rows = render_story(write(f"zones letters=a; {records}"), begin=s(1), width=120)
    return "\n".join(line[11:].split(maxsplit=1)[1] for line in rows) or "nothing"


test_what_matters_is_told = check_tables(__file__, trace=tell)


def test_a_story_may_begin_later_and_end_sooner() -> None:
    """`begin` leaves out what was before; a tail ends with what led to a moment."""
    history = write(ROLLOUT)

    assert [line[:9] for line in render_story(history, begin=s(8))] == [
        "0:00:08.1",
        "0:00:08.2",
        "0:00:09.0",
    ]
    assert render_tail(history, s(6), lines=2) == render_story(history)[6:8]


def test_one_history_has_one_hash() -> None:
    """The same records in the same order, and nothing else: also not the machine's time."""
    first, second = write(ROLLOUT), write(ROLLOUT)
    said = Said(at=s(10), actor=OPERATOR, text="ts=2026-11-21T12:00:00Z msg=Listed objects=3")
    first.add(said)
    second.add(replace(said, text="ts=2027-01-01T00:00:00Z msg=Listed objects=3"))

    assert trace_hash(first) == trace_hash(second)
    assert strip_time("level=info ts=1 msg=its=2") == "level=info msg=its=2"


def change_first(**parts: Any) -> Callable[[History], None]:
    def change(history: History) -> None:
        first = history.records[0]
        assert isinstance(first, Commit)
        if "after" in parts:
            parts["after"] = {**(first.after or {}), **parts["after"]}
        history.records[0] = replace(first, **parts)

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change_first(at=s(0.001)), id="time"),
        pytest.param(change_first(actor="else"), id="actor"),
        pytest.param(change_first(after={"more": 1}), id="object"),
        pytest.param(lambda history: history.records.insert(0, history.records.pop(1)), id="order"),
        pytest.param(lambda history: history.records.pop(), id="one less"),
    ],
)
def test_any_difference_changes_the_hash(change: Callable[[History], object]) -> None:
    first, second = write(ROLLOUT), write(ROLLOUT)
    change(second)

    assert trace_hash(first) != trace_hash(second)
