"""What objects mention, and what is found by it."""

import pytest

from rollout_operator.controllers.releases.tags import list_tags, tag_labels
from rollout_operator.model.labels import LabelSelector, SelectorTerm
from rollout_operator.model.releases.rollout import CheckSelector
from tests.planning.releases.builders import rollout

EXISTS = (SelectorTerm(key="app", operator="Exists"),)


@pytest.mark.parametrize(
    ("selector", "labels", "is_found"),
    [
        (LabelSelector(labels={"app": "a"}), {"app": "a", "b": "c"}, True),
        (LabelSelector(labels={"app": "a"}), {"app": "b"}, False),
        (LabelSelector(labels={"app": "a"}), {}, False),
        (LabelSelector(labels={"app": "a", "tier": "web"}), {"app": "a", "tier": "web"}, True),
        (LabelSelector(labels={"app": "a"}, terms=EXISTS), {"app": "a"}, True),
        (LabelSelector(terms=EXISTS), {"app": "a"}, True),
        (LabelSelector(), {}, True),
        (None, {"app": "a"}, False),
    ],
)
def test_a_rollout_is_found_by_the_labels_of_what_it_selects(
    selector: LabelSelector | None, labels: dict[str, str], is_found: bool
) -> None:
    """REL-54: among thousands, without a read of each of them."""
    of = rollout(checks=CheckSelector(selector=selector))
    found = {*list_tags(of)} & {*tag_labels(labels)}

    assert bool(found) is is_found
    assert is_found or selector is None or not selector.takes(labels)


def test_a_rollout_without_checks_is_not_found() -> None:
    """REL-54."""
    assert [*list_tags(rollout())] == []
