"""Marks of downscales: what is read from them, and when a mark is all that has changed (SI-02)."""

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import DOWNSCALE_INTENT, PREPARE_DOWNSCALE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.planning.requests import (
    differ_in_intent,
    find_intent,
    needs_intent,
    render_intent,
)
from tests.builders import sts

MARKED = '{"id":"7-1","replicasFrom":3,"replicasTo":1}'


def marked(text: str | None, **fields: object) -> StatefulSet:
    """Return a set of three replicas with a mark."""
    annotations = {} if text is None else {DOWNSCALE_INTENT: text}
    return replace(sts("a", replicas=3), annotations=annotations, **fields)


def test_a_mark_has_no_character_that_go_writes_in_another_way() -> None:
    text = render_intent(sts("a", replicas=3), 1, "7-1")
    assert text == MARKED
    assert not set("<>&") & set(text)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        pytest.param(None, None, id="no mark"),
        pytest.param(MARKED, (3, 1), id="of ours"),
        pytest.param('{"id":"7","replicasFrom":3,"replicasTo":1,"more":0}', (3, 1), id="of later"),
        pytest.param("", (3, 0), id="empty: it may take all"),
        pytest.param('{"id":"7","replicasFrom":"3","replicasTo":1}', (3, 0), id="no number"),
        pytest.param("[" * 100_000, (3, 0), id="hostile"),
    ],
)
def test_what_a_mark_announces(text: str | None, counts: tuple[int, int] | None) -> None:
    found = find_intent(marked(text))
    assert counts == (found and (found.replicas_from, found.replicas_to))
    assert found is None or (found.zone, found.is_marked) == ("zone-a", True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(MARKED, "zone-a is being scaled down from 3 to 1 replicas", id="of ours"),
        pytest.param(
            "{gone",
            f'StatefulSet zone-a: annotation {DOWNSCALE_INTENT}: "{{gone" is no mark of a'
            " downscale, and counts as one of all",
            id="D-40 no operator scales it down to 0",
        ),
    ],
)
def test_a_mark_that_cannot_be_read_is_reported_with_object_field_and_value(
    text: str, shown: str
) -> None:
    found = find_intent(marked(text))
    assert found is not None
    assert found.text == shown


@pytest.mark.parametrize(
    ("new", "is_all"),
    [
        pytest.param(marked("b", resource_version="9"), True, id="another mark"),
        pytest.param(marked(None, resource_version="9"), True, id="no mark"),
        pytest.param(marked(None, replicas=2), False, id="replicas too"),
    ],
)
def test_a_mark_is_all_that_has_changed(new: StatefulSet, is_all: bool) -> None:
    assert differ_in_intent(marked("a"), new) is is_all


def test_only_downscales_that_no_review_announces_need_one() -> None:
    labelled = marked(None, labels={PREPARE_DOWNSCALE: "true"})
    assert (needs_intent(marked(None)), needs_intent(labelled)) == (True, False)
