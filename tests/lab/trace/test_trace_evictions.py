"""What a reader is told of evictions: one line each, whatever it took."""

from dataclasses import replace
from typing import Any, Final

from rollout_operator.kube.api import PODS
from rollout_operator.lab.model.history import Called
from rollout_operator.lab.trace.trace import render_story
from tests.judge.builder import PERSON, HistoryBuilder

HOOK: Final = 'admission webhook "x.example.com" denied the request: '
ABOUT: Final[dict[str, Any]] = {
    "path": "/admission/pod-eviction",
    "resource": "pods/eviction",
}


def ask(told: HistoryBuilder, at: float, name: str, *, dry: bool = False, **parts: Any) -> None:
    """Add an eviction by a person; `message` is that of a refusal."""
    message = parts.pop("message", "")
    body = {"deleteOptions": {"dryRun": ["All"]}} if dry else {}
    told.call(at, "create", PODS, name, actor=PERSON, subresource="eviction", body=body, **parts)
    last = told.history.records[-1]
    assert isinstance(last, Called)
    told.history.records[-1] = replace(last, message=message)


def render(told: HistoryBuilder) -> list[str]:
    return [line[11:].split(maxsplit=1)[1] for line in render_story(told.history)]


def test_refusals_of_several_pods_are_one_line_and_name_the_reason_once() -> None:
    told = HistoryBuilder()
    told.lived(0, "started", PERSON)
    for at, name in ((2.1, "zone-a-0"), (2.2, "zone-a-1")):
        told.review(at, name, 9, allowed=False, status=429, message=f"{HOOK}no room", **ABOUT)
    ask(told, 3, "zone-a-1", status=429, message=f"{HOOK}no room")

    assert render(told) == ["*** started", "zone-a-0, zone-a-1 eviction refused: 429: no room"]


def test_what_refuses_after_the_webhook_has_a_line_of_its_own() -> None:
    told = HistoryBuilder()
    told.lived(0, "started", PERSON)
    told.review(2, "zone-a-0", 1, **ABOUT)
    ask(told, 3, "zone-a-0", status=429, message="it would violate the budget")

    assert render(told)[1:] == [
        "zone-a-0 eviction allowed",
        "create of zone-a-0/eviction is refused: 429: it would violate the budget",
    ]


def test_a_dry_run_is_told_as_one_whichever_way_it_was_asked() -> None:
    told = HistoryBuilder()
    told.review(2, "zone-a-0", 1, **ABOUT)
    ask(told, 2, "zone-a-0", dry=True)
    told.review(3, "zone-a-1", 99, **{**ABOUT, "dry_run": True})

    assert render(told) == ["zone-a-0, zone-a-1 dry run of its eviction allowed"]


def test_a_review_without_an_answer_is_told_with_the_cause() -> None:
    told = HistoryBuilder()
    told.review(3, "zone-a-0", 9, allowed=False, status=-1, message="no answer in 10s", **ABOUT)

    assert render(told) == ["zone-a-0 eviction not answered: no answer in 10s"]


def test_the_delete_that_an_eviction_leads_to_is_not_told_apart() -> None:
    told = HistoryBuilder()
    told.lived(0, "started", PERSON)
    told.call(6, "delete", PODS, "zone-a-0", actor=PERSON)
    ask(told, 6, "zone-a-0")
    told.call(7, "delete", PODS, "zone-a-1", actor=PERSON)

    assert render(told)[1:] == ["deletes zone-a-1"]
