"""What forged reviews ask for (SEC-09), as the faults that send them tell.

Whatever a forgery leaves behind belongs to who forged it, and to no genuine review beside it: only
to one that asks for that very thing, and not for a dry run.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, cast

import msgspec

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, text
from rollout_operator.lab.model.history import Fault
from tests.simulation.views import Book

FORGED: Final = "hook_forged"


def tell_asked(body: bytes) -> str:
    """Return in words what a review is about, for the text of a fault."""
    review = cast(JsonObject, msgspec.json.decode(body))
    request = child(review, "request")
    about = child(request, "object")
    name = text(request, "name") or text(about, "metadata", "name")
    is_dry = bool(request.get("dryRun")) or bool(child(about, "deleteOptions").get("dryRun"))
    return _word(text(request, "namespace"), name, is_dry=is_dry)


def list_earnest(book: Book, path: str, name: str) -> Iterator[timedelta]:
    """Yield when forged reviews on a path asked about an object, and not for a dry run."""
    asked = _word(book.promises.namespace, name, is_dry=False)
    for fault in book.faults:
        if fault.kind == FORGED and _reads(fault, path, asked):
            yield fault.at


def _word(namespace: str, name: str, *, is_dry: bool) -> str:
    return f"{'a dry run' if is_dry else 'in earnest'} about {namespace}/{name}"


def _reads(fault: Fault, path: str, asked: str) -> bool:
    place, _, what = fault.text.partition(": ")
    return place.removeprefix("at ").partition("?")[0] == path and what == asked
