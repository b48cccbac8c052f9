"""How labels and selectors of labels are spelled, as the API server judges them."""

import re
from collections.abc import Callable
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector, SelectorTerm
from rollout_operator.model.units import quote

_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)


class SelectorRefused(InvalidInput):
    """A selector is refused for what stands at `below`, such as `.matchExpressions[0].key`."""

    def __init__(self, message: str, below: str) -> None:
        super().__init__(message)
        self.below = below


def check_label_key(text: str) -> str:
    """Return a key such as `topology.kubernetes.io/zone`. Raises InvalidInput."""
    prefix, slash, name = text.rpartition("/")
    if not _is_name(name) or (slash and not _is_prefix(prefix)):
        raise InvalidInput(f"{quote(text)} is no name of a label")
    return text


def check_label_value(text: str) -> str:
    """Return a value, which may be empty. Raises InvalidInput for what no label can have."""
    if text and not _is_name(text):
        raise InvalidInput(f"{quote(text)} is no value of a label")
    return text


def check_selector(selector: LabelSelector) -> None:
    """Refuse what the API's own selectors refuse. Raises SelectorRefused."""
    for key, value in selector.labels.items():
        _check(".matchLabels", check_label_key, key)
        _check(f".matchLabels[{key}]", check_label_value, value)
    for place, term in enumerate(selector.terms):
        _check_term(f".matchExpressions[{place}]", term)


def _check_term(path: str, term: SelectorTerm) -> None:
    """Refuse a term that is not known: it would take everything."""
    _check(f"{path}.key", check_label_key, term.key)
    match term.operator:
        case "In" | "NotIn":
            if not term.values:
                raise SelectorRefused(f"{term.operator} needs a value", f"{path}.values")
        case "Exists" | "DoesNotExist":
            if term.values:
                raise SelectorRefused(f"{term.operator} takes no value", f"{path}.values")
        case _:
            operators = "In, NotIn, Exists or DoesNotExist"
            raise SelectorRefused(f"{quote(term.operator)} is not {operators}", f"{path}.operator")
    for value in term.values:
        _check(f"{path}.values", check_label_value, value)


def _check(below: str, check: Callable[[str], str], text: str) -> None:
    try:
        check(text)
    except InvalidInput as error:
        raise SelectorRefused(str(error), below) from error


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _is_prefix(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and _PREFIX.fullmatch(text) is not None
