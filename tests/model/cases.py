"""What tables of cases have in common: how the input is written, and how the outcome is shown."""

import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec
import pytest
import yaml

from rollout_operator.model.names import DecodeError, InvalidInput

_LONG: Final = re.compile(r"\{([^{}]+) \* (\d+)\}")
_MANY: Final = re.compile(r"\* (\d+)")
_REPEATED: Final = re.compile(r"([^\\\s])\1{59,}")
# Texts that JSON would take for something else, or that begin or end out of sight.
_ODD: Final = re.compile(r'[\s"\[{].*|.*\s|null|true|false|-?\d+(?:\.\d+)?|', re.DOTALL)
_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status", "webhooks")


def bend(tree: Any, changes: str, at: str = "spec") -> Any:
    """Return an object with the changes of a case: YAML, by the path of a field.

    A path begins at the object or, as most do, below `at`; `this` is the whole object. A field that
    is `absent` is taken away; `{x * 1025}` in a text stands for so many, as `[x, "* 65"]` in lists.
    """
    tree = deepcopy(tree)
    for path, value in yaml.safe_load(f"{{{changes}}}").items():
        if path == "this":
            return lengthen(value)
        steps = path.split(".")
        *above, last = steps if steps[0] in _TOP else [*at.split("."), *steps]
        place = tree
        for step in above:
            if isinstance(place, dict) and place.get(step) is None:
                place[step] = {}
            place = place[int(step) if isinstance(place, list) else step]
        if value == "absent":
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = lengthen(value)
    return tree


def lengthen(value: Any) -> Any:
    """Return the value with long texts and lists at their length."""
    if isinstance(value, str):
        return _LONG.sub(lambda match: match[1] * int(match[2]), value)
    if isinstance(value, dict):
        return {lengthen(key): lengthen(one) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) == 2 and isinstance(value[1], str) and (many := _MANY.fullmatch(value[1])):
        value = value[:1] * int(many[1])
    return [lengthen(one) for one in value]


def call(functions: Mapping[str, Callable[..., str]], text: str) -> str:
    """Call one by its name with the texts of a line."""
    name, _, texts = text.partition(" ")
    if name not in functions:
        pytest.fail(f"no such function: {name}; there are {', '.join(functions)}", pytrace=False)
    return attempt(lambda: functions[name](*split_texts(texts)))


def split_texts(line: str) -> list[str]:
    """Return the texts of a line, which are written as in a list of YAML."""
    texts: list[str] = yaml.load(f"[{line}]", yaml.BaseLoader)  # noqa: S506 (it builds texts only)
    return [*map(lengthen, texts)]


def attempt(read: Callable[[], str]) -> str:
    """Return what is read, or the sentence with which it is refused."""
    try:
        found = read()
    except DecodeError as error:
        found = f"unreadable: {error}"
    except InvalidInput as error:
        found = f"refused: {error}"
    return shorten(found)


def tell(found: Any, plain: Any = None) -> str:
    """Return the fields with another value than those of `plain`, or all but empty ones."""
    fields = _fields(found)
    if plain is None:
        return "\n".join(f"{name}={show(value)}" for name, value in fields.items() if value)
    kind = [] if type(found) is type(plain) else [type(found).__name__]
    known = _fields(plain)
    changed = [f"{key}={show(one)}" for key, one in fields.items() if known.get(key, "") != one]
    return " ".join([*kind, *changed]) or "the same"


def show(value: Any) -> str:
    """Return a value on one line: JSON, with texts that are plain as they are."""
    value = msgspec.to_builtins(value, enc_hook=str)
    is_bare = isinstance(value, str) and value.isprintable() and not _ODD.fullmatch(value)
    return value if is_bare else json.dumps(value)


def _fields(found: Any, path: str = "") -> dict[str, Any]:
    """Return each field, those of structs inside by their path."""
    if not isinstance(found, msgspec.Struct):
        return {path: msgspec.to_builtins(found, enc_hook=str)}
    return {
        key: value
        for field in msgspec.structs.fields(found)
        for key, value in _fields(
            getattr(found, field.name), f"{path}.{field.name}".lstrip(".")
        ).items()
    }


def shorten(text: str) -> str:
    """Return a text with repetitions written as in a case."""
    return _REPEATED.sub(lambda match: f"{{{match[1]} * {len(match[0])}}}", text)
