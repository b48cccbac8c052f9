"""JSON of a label selector → `LabelSelector`, refused where the API's own selectors would be."""

from rollout_operator.model.decode.installation import WireSelector, convert_selector
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.policy.label_syntax import SelectorRefused, check_selector


def parse_selector(wire: WireSelector, path: str) -> LabelSelector:
    """Return a selector. Raises InvalidInput, which names field and value."""
    selector = convert_selector(wire)
    try:
        check_selector(selector)
    except SelectorRefused as error:
        raise InvalidInput(f"{path}{error.below}: {error}") from error
    return selector
