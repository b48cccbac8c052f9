"""How keys and values of labels are spelled, as the API server judges them."""

import re
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import quote

_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)


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


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _is_prefix(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and _PREFIX.fullmatch(text) is not None
