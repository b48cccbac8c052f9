"""A page of a repository's tags, and where the next one is.

Of the link to the next page only its query counts: the page is always asked of the same registry,
whatever host the link names. Proxies write wrong ones, and liars others.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from yarl import URL

from rollout_operator.oci.errors import BadAnswer

# Some registries give all tags at once, however many are asked for.
LONGEST_PAGE: Final = 4 * 1024 * 1024
FIRST_PAGE: Final = "tags/list?n=1000"
_LONGEST_LINK: Final = 4 * 1024

_NEXT: Final = re.compile(r'<([^<>]*)>[^<>]*?;[ \t]*rel="?next"?[ \t]*(?:[;,]|$)')


class _Page(msgspec.Struct):
    tags: list[str] | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)


def read_tags(body: bytes) -> list[str]:
    """Return the tags of a page. Raises BadAnswer."""
    try:
        return _PAGE.decode(body).tags or []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    raise BadAnswer("its list of tags is no JSON of tags")


def read_next_page(headers: Iterable[str]) -> str | None:
    """Return what to ask for the next page, None where there is none. Raises BadAnswer."""
    for header in headers:
        if (match := _NEXT.search(header[:_LONGEST_LINK])) is None:
            continue
        try:
            query = URL(match[1], encoded=True).raw_query_string
        except ValueError:
            query = ""
        if not query or not query.isascii() or not query.isprintable():
            raise BadAnswer("its link to more tags is none")
        return f"tags/list?{query}"
    return None
