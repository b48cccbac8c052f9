"""JSON of a label selector → `LabelSelector`, refused where the API's own selectors would be."""

from collections.abc import Collection
from typing import Final

from rollout_operator.model.decode.installation import WireSelector, convert_selector
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.policy.label_syntax import SelectorRefused, check_selector

# Each is compared with every object in question, by a process that acts for other tenants as well.
MOST_TERMS: Final = 64


def parse_selector(wire: WireSelector, path: str) -> LabelSelector:
    """Return a selector. Raises InvalidInput, which names field and value."""
    selector = convert_selector(wire)
    _check_length(f"{path}.matchLabels", selector.labels)
    _check_length(f"{path}.matchExpressions", selector.terms)
    for place, term in enumerate(selector.terms):
        _check_length(f"{path}.matchExpressions[{place}].values", term.values)
    try:
        check_selector(selector)
    except SelectorRefused as error:
        raise InvalidInput(f"{path}{error.below}: {error}") from error
    return selector


def _check_length(path: str, items: Collection[object]) -> None:
    if len(items) > MOST_TERMS:
        raise InvalidInput(f"{path}: it has {len(items)} items, at most {MOST_TERMS}")
