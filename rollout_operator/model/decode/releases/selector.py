"""JSON of a label selector → `LabelSelector`, refused where the API's own selectors would be."""

from rollout_operator.model.decode.installation import WireSelector, convert_selector
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector, SelectorTerm
from rollout_operator.model.policy.label_syntax import check_label_key, check_label_value
from rollout_operator.model.units import quote


def parse_selector(wire: WireSelector, path: str) -> LabelSelector:
    """Return a selector. Raises InvalidInput, which names field and value."""
    selector = convert_selector(wire)
    try:
        for key, value in selector.labels.items():
            check_label_key(key)
            check_label_value(value)
    except InvalidInput as error:
        raise InvalidInput(f"{path}.matchLabels: {error}") from error
    for place, term in enumerate(selector.terms):
        try:
            _check_term(term)
        except InvalidInput as error:
            raise InvalidInput(f"{path}.matchExpressions[{place}]: {error}") from error
    return selector


def _check_term(term: SelectorTerm) -> None:
    """Refuse a term that is not known: it would select everything."""
    check_label_key(term.key)
    if term.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
        raise InvalidInput(f"{quote(term.operator)} is not In, NotIn, Exists or DoesNotExist")
    if bool(term.values) is not (term.operator in {"In", "NotIn"}):
        needs = "takes no value" if term.values else "needs a value"
        raise InvalidInput(f"{term.operator} {needs}")
    for value in term.values:
        check_label_value(value)
