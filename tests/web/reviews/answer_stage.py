"""The commands of stories of answers to reviews, byte by byte, and of namespaces that reviews name.

`answer no 429 text="..." warn=a` shows what is behind the uid; `patch` has annotations.
"""

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import PODS, Page, Resource
from rollout_operator.model.names import ApiError, Denied, NotFound, Uid
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.operator.fleet import EMPTY_LASTS, ReviewedNamespaces
from rollout_operator.web.dispatch import render_answer
from tests.stories import Stage, Steps, read_words
from tests.virtual_time import VirtualClock

SET: Final = Scalable(kind="StatefulSet", uid=Uid("s-1"), replicas=2)
REVIEW: Final = Review(version=Version.V1, uid="u-1", operation="UPDATE", old=SET, new=SET)
V1: Final = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1",'
LAST: Final = {"grafana.com/last-downscale": "2026-01-02T03:04:05Z"}
OF: Final[dict[str, Review]] = {
    "bare": REVIEW,
    "annotated": replace(REVIEW, new=replace(SET, has_annotations=True)),
    "created": replace(REVIEW, new=replace(SET, has_annotations=True), operation="CREATE"),
    "scale": replace(REVIEW, new=Scalable(kind="Scale", replicas=1)),
    "absent": replace(REVIEW, new=Unusable("absent")),
    "deleted": replace(REVIEW, operation="DELETE"),
    "v1beta1": replace(REVIEW, version=Version.V1BETA1, uid='<"\u2028\n'),
}


class AnswerStage(Stage):
    """Renders a verdict; the beginning of the answer to the usual review is not shown."""

    async def do_answer(self, word: str, *words: str) -> str:
        """Show the answer: `ok` or `no`, `code=429`, a `text`, `warn` and `patch` it."""
        return _render(word, words)

    async def do_size(self, char: str, number: str, times: str) -> str:
        """Show how long the texts are in an answer with such ones."""
        text = _decode(char) * int(number)
        given = Verdict(
            is_allowed=True,
            reason=Reason(code=Code.NO_DOWNSCALE, text=text),
            warnings=(text,) * int(times),
        )
        response = json.loads(render_answer(REVIEW, given))["response"]
        lengths = [len(one) for one in response["warnings"]]
        is_cut = response["status"]["message"] != text
        message = len(response["status"]["message"])
        return f"message {message}{', cut' * is_cut}, {len(lengths)} warnings of {max(lengths)}"


def _render(word: str, words: Sequence[str]) -> str:
    how = read_words(words, "text code warn patch of")
    given = Verdict(
        is_allowed=word == "ok",
        reason=Reason(code=Code.NO_DOWNSCALE, text=_decode(how.get("text", ""))),
        code=int(how.get("code", 0)),
        warnings=tuple(how["warn"].split(",")) if "warn" in how else (),
        annotations=LAST if "patch" in how else {},
    )
    review = OF[how.get("of", "bare")]
    text = render_answer(review, given, may_patch=how.get("patch") != "no").decode()
    if patch := json.loads(text)["response"].get("patch"):
        text = text.replace(patch, base64.b64decode(patch).decode())
    return text.removeprefix(V1)


def _decode(text: str) -> str:
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


class NamespaceStage(Steps):
    """Namespaces with pods, and an operator that looks after some. Implements `Reader`."""

    def __init__(self) -> None:
        self.filled: set[str] = set()
        self.begun: list[str] = []
        self.reads: list[str] = []
        self.error: ApiError | None = None
        self.hangs = False
        self.reviewed = ReviewedNamespaces(
            self,
            VirtualClock(),
            begin=self.begun.append,
            is_empty=lambda namespace: namespace not in self.filled,
        )

    def look(self) -> list[str]:
        begun, reads = self.begun[:], self.reads[:]
        self.begun.clear()
        self.reads.clear()
        lines = [("begun", begun), ("read", reads)]
        return [f"{word} {_shorten(names)}" for word, names in lines if names]

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        raise NotFound(name)

    async def fetch_page(
        self, resource: Resource, namespace: str, *, limit: int = 500, **how: object
    ) -> Page:
        assert limit == 1, "one object proves it"
        self.reads.append(namespace)
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        is_there = namespace in self.filled and resource == PODS
        items: Sequence[msgspec.Raw] = [msgspec.Raw(b"{}")] if is_there else []
        return Page(items=items, resource_version="1")

    async def do_fill(self, *names: str) -> None:
        """Have pods in namespaces."""
        self.filled |= {*names}

    async def do_review(self, *names: str) -> str:
        """Have reviews name namespaces; show how long that took."""
        begin = VirtualClock().elapsed()
        for name in names:
            await self.reviewed.add(name)
        took = (VirtualClock().elapsed() - begin).total_seconds()
        return f"after {took:g}s" * bool(took)

    async def do_crowd(self, start: str, number: str, pause: str = "0", filled: str = "") -> None:
        """Have so many be named, with a pause after each; `filled` ones hold something later."""
        for one in range(int(number)):
            await self.reviewed.add(f"{start}-{one}")
            if filled:
                self.filled.add(f"{start}-{one}")
            if float(pause):
                await asyncio.sleep(float(pause))

    async def do_fails(self, how: str) -> None:
        self.error, self.hangs = (Denied("no right"), False) if how == "refused" else (None, True)

    async def do_empty(self) -> str:
        """Show of how many empty ones is known."""
        return f"{len(self.reviewed._empty)} known to be empty"

    async def do_later(self) -> None:
        """Let the time pass for which an empty one counts as empty."""
        await asyncio.sleep(EMPTY_LASTS.total_seconds())


def _shorten(names: list[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)} if len(names) < 9 else {}
    return " ".join(name + f" x{n}" * (n > 1) for name, n in counts.items()) or f"{len(names)}"
