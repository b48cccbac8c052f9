"""A page as a browser reads it: its elements with their attributes, and its text."""

from collections.abc import Iterator
from html.parser import HTMLParser

from rollout_operator.model.description import Description
from rollout_operator.web.admin import list_page
from rollout_operator.web.cards import SectionRenderer

VOID = {"meta", "link", "br", "rect", "path", "circle", "use"}
INLINE = {"a", "b", "code", "span", "time", "svg", "use", "rect", "path"}
# Whatever leads somewhere, or runs.
ACTIVE = {"href", "src", "action", "formaction", "style", "srcdoc", "data", "poster", "background"}


class Elements(HTMLParser):
    """Reads one page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.unclosed: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        self._separate(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._separate(tag)
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.texts.append(data)

    def _separate(self, tag: str) -> None:
        if tag not in INLINE:
            self.texts.append("\n")

    @property
    def lines(self) -> list[str]:
        """Return what a person reads, each block on a line."""
        lines = (" ".join(line.split()) for line in "".join(self.texts).split("\n"))
        return [line for line in lines if line]

    @property
    def text(self) -> str:
        """Return what a person reads."""
        return " ".join("".join(self.texts).split())

    def find(self, kind: str) -> list[dict[str, str]]:
        """Return the attributes of the elements of one CSS class."""
        return [one for _, one in self.tags if kind in one.get("class", "").split()]

    def list_active(self) -> Iterator[str]:
        """Yield what leads somewhere or runs, but for links within the pages of the operator."""
        for tag, attributes in self.tags:
            for key, value in attributes.items():
                if key.startswith("on") or (key in ACTIVE and not _is_ours(value)):
                    yield f"{tag} {key}={value}"


def _is_ours(value: str) -> bool:
    path = value.partition("#")[0]
    return path in {
        "", "status", "status.json", "status.schema.json", "reasons", "metrics",
    } or value.startswith("data:image/svg+xml,")  # fmt: skip


async def read_page(description: Description) -> Elements:
    """Return the page of a description, checked for what no page may have."""
    sections = (await SectionRenderer().render(description)).sections
    pieces = list_page(description.namespace, description.now, sections.values())
    elements = Elements(b"".join(pieces).decode())
    assert [*elements.list_active()] == []
    assert (elements.unclosed, elements.open) == ([], [])
    ids = [one["id"] for _, one in elements.tags if "id" in one]
    assert len(ids) == len({*ids})
    assert [one for one, _ in elements.tags].count("script") == 1
    return elements
