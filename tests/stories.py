"""Texts of commands with the outcome beside each; `pytest --update-golden` writes the outcomes.

A story plays its commands in one world, and whatever happens shows on the line of the command that
it follows:

    -- refused by another client afterwards (LI-05)
    review a 3 | allowed; 0.1 POST a-4 a-3
    60s        | 36.4 DELETE a-3 a-4

In a table each line is a case of its own, beneath a heading that says what its cases show:

    # numbers that are none (ZPDB-12 to 15)
    maxUnavailable: -1 | problem=invalid value: max unavailable must be 0 <= val, got -1

An outcome of several lines goes on beneath, each line behind a `|`. What stands before the first
story or heading says what the file is about.

A test of tables is `test_case = check_tables(__file__, names=show_name)`, one of stories
`test_story = check_stories(__file__, names=NameStage)`: both name the texts beside the module.

To write a new one, type title and commands, have the outcomes written, and read them: they are
what the test claims to be right. The command `?` fails with a list of all commands.
"""

import asyncio
import inspect
import re
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from tests.goldens import Golden

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

T = TypeVar("T")

_BAR: Final = re.compile(r"(?:^|\s)\|(?:\s|$)")
_WIDTH: Final = 28
_TURNS: Final = 30
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The commands of a story, or the case on a line of a table, and the outcome of each."""

    path: Path
    number: int
    title: str
    first: int
    """Its first line in the file, below the title, and the one after its last."""
    end: int = 0
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def commands(self) -> list[str]:
        return [command for command, _ in self.lines]

    def check(self, found: Sequence[str] | str, golden: Golden) -> None:
        """Compare what came of each command with the file, or write it."""
        outcomes = [found] if isinstance(found, str) else found
        lines = tuple(zip(self.commands, outcomes, strict=True))
        if lines == self.lines:
            return
        kept = self.path.read_text("utf-8")
        # Stories above may have been written since the tests were collected: lines have moved.
        [now] = [one for one in _parse(self.path, kept) if one.number == self.number]
        old = kept.splitlines()
        text = "\n".join([*old[: now.first], *self._render(lines), *old[now.end :]])
        golden.check(self.path, f"{text}\n")

    def _render(self, lines: Sequence[tuple[str, str]]) -> list[str]:
        width = max(len(command) for command, _ in lines)
        return [
            f"{'' if place else command:{width}} | {part}".rstrip()
            for command, outcome in lines
            for place, part in enumerate(outcome.split("\n"))
        ]


def read_words(words: Iterable[str], known: str = "") -> dict[str, str]:
    """Return the values of words such as `times=9`; one alone is there without a value."""
    how = dict(word.partition("=")[::2] for word in words)
    assert not known or how.keys() <= {*known.split()}, f"{how}, but there are: {known}"
    return how


def read_stories(*paths: Path) -> "list[ParameterSet]":
    """Return each story, and each line of a table, in these files as a case with its title."""
    return [
        pytest.param(story, id=f"{path.stem}: {story.title}")
        for path in sorted(paths)
        for story in _parse(path, path.read_text("utf-8"))
    ]


def by_verb(module: Mapping[str, Any], other: Callable[[str], str]) -> Callable[[str], str]:
    """Return what shows `verb: rest` by `show_verb` of a module, and all else by `other`."""

    def show(case: str) -> str:
        verb, _, rest = case.partition(": ")
        one = module.get(f"show_{verb}")
        return str(one(rest)) if one else other(case)

    return show


def check_tables(file: str, folder: str = ".", /, **show: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test of the tables beside a module, which shows what comes of the case on a line.

    What else a function has to be given to show it are fixtures.
    """

    def find(story: Story, given: Mapping[str, object]) -> Any:
        one = show[story.path.stem]
        [case] = story.commands
        return one(case, **{name: given[name] for name in _list_wanted(one)[1:]})

    def check(story: Story, golden: Golden, **given: object) -> None:
        story.check(find(story, given), golden)

    async def check_later(story: Story, golden: Golden, **given: object) -> None:
        story.check(await find(story, given), golden)

    wanted = [name for one in show.values() for name in _list_wanted(one)[1:]]
    is_later = any(map(inspect.iscoroutinefunction, show.values()))
    return _parametrize(check_later if is_later else check, _find(file, folder, show), wanted)


def check_stories(
    file: str, folder: str = ".", /, **stages: "Callable[..., Stage]"
) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return a test of the stories beside a module; what a stage has to be given are fixtures."""

    async def check(story: Story, golden: Golden, **given: object) -> None:
        stage = stages[story.path.stem]
        own = {name: given[name] for name in _list_wanted(stage)}
        story.check(await stage(**own).play(story.commands), golden)

    wanted = [name for one in stages.values() for name in _list_wanted(one)]
    return _parametrize(check, _find(file, folder, stages), wanted)


def _list_wanted(call: Callable[..., object]) -> list[str]:
    """Return what it has to be given."""
    return [
        one.name
        for one in inspect.signature(call).parameters.values()
        if one.kind is not one.VAR_KEYWORD and one.default is one.empty
    ]


def _find(file: str, folder: str, names: Iterable[str]) -> Iterator[Path]:
    return (Path(file).parent / folder / f"{name}.txt" for name in names)


def _parametrize(
    check: Callable[..., Any], paths: Iterable[Path], wanted: Iterable[str]
) -> Callable[..., Any]:
    """Return a test of each case in these files, which pytest gives the fixtures of these names."""
    names = dict.fromkeys(("story", "golden", *wanted))
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    check.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    test: Callable[..., Any] = pytest.mark.parametrize("story", read_stories(*paths))(check)
    return test


def _parse(path: Path, text: str) -> list[Story]:
    blocks: list[Story] = []
    heading = ""
    for number, line in enumerate(text.splitlines()):
        if line.startswith("# "):
            heading = line[2:]
        elif line.startswith("-- "):
            heading = ""
            blocks.append(Story(path=path, number=len(blocks), title=line[3:], first=number + 1))
        elif line.strip() and (heading or blocks):
            bar = _BAR.search(line)
            before, after = (line[: bar.start()], line[bar.end() :]) if bar else (line, "")
            command, outcome = before.strip(), after.strip()
            if heading and command:
                title = f"{heading}: {command}"
                blocks.append(Story(path=path, number=len(blocks), title=title, first=number))
            *lines, last = [*blocks[-1].lines, (command, outcome)]
            if not command:
                command, above = lines.pop()
                last = (command, f"{above}\n{outcome}")
            blocks[-1] = replace(blocks[-1], lines=(*lines, last), end=number + 1)
    empty = [one.title for one in blocks if not one.lines]
    assert not empty, f"{path}: no commands: {empty}"
    return blocks


class Stage:
    """What plays the commands of stories: `go a b` calls `do_go("a", "b")`, `5s` `do_wait(5.0)`.

    A subclass is the world of a subject: it has a method for each command, and `look` for what has
    happened since. It shows a digest: codes, calls, writes and times, not whole messages.
    """

    @cached_property
    def stack(self) -> AsyncExitStack:
        """What is entered here is left at the end of the story, last first."""
        return AsyncExitStack()

    async def play(self, commands: Sequence[str]) -> list[str]:
        async with self.stack:
            await self.set_up()
            return [await self.act(command) for command in commands]

    async def set_up(self) -> None:
        """Do what comes before the first command."""

    def start(
        self, work: Coroutine[Any, Any, T], name: str | None = None, *, may_fail: bool = False
    ) -> asyncio.Task[T]:
        """Do this in a task, which is cancelled at the end of the story; its error fails that."""
        task = asyncio.create_task(work, name=name)

        async def end() -> None:
            task.cancel()
            [found] = await asyncio.gather(task, return_exceptions=True)
            if isinstance(found, Exception) and not may_fail:
                raise found

        self.stack.push_async_callback(end)
        return task

    async def act(self, command: str) -> str:
        """Do what the command says; return the answer and what else happened."""
        word, *rest = shlex.split(command)
        if span := _SPAN.fullmatch(word):
            said = await self.do_wait(float(span[1]) * _SECONDS[span[2]], *rest)
        else:
            said = await self.find_command(word, rest)(*rest)
        return "; ".join([*([said] if said else []), *self.look()])

    def find_command(self, word: str, rest: Sequence[str]) -> Callable[..., Awaitable[str | None]]:
        """Return the method of a command; fail with all commands, or with the words it takes."""
        do: Callable[..., Awaitable[str | None]] | None = getattr(self, f"do_{word}", None)
        if do is None:
            names = [name.removeprefix("do_") for name in dir(self) if name.startswith("do_")]
            found = "\n".join(self._list_words(name) for name in names)
            pytest.fail(f"no such command: {word}; there are\n{found}", pytrace=False)
        try:
            inspect.signature(do).bind(*rest)
        except TypeError as error:
            said = " ".join([word, *rest])
            pytest.fail(f"{said}: {error}\n{self._list_words(word)}", pytrace=False)
        return do

    def _list_words(self, name: str) -> str:
        """Return the words of a command, `[one]` that may be left out, and what it is for."""
        do = getattr(self, f"do_{name}")
        words = [
            f"{one.name}..." if one.kind is one.VAR_POSITIONAL
            else one.name if one.default is one.empty
            else f"[{one.name}]"
            for one in inspect.signature(do).parameters.values()
        ]  # fmt: skip
        about, _, _ = (inspect.getdoc(do) or "").partition("\n")
        return f"  {' '.join([name, *words]):{_WIDTH}}  {about}".rstrip()

    async def do_wait(self, seconds: float) -> str | None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        return None

    async def settle(self) -> None:
        """Let every task run until it waits; no time passes."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def look(self) -> list[str]:
        """Return what has happened since the last command."""
        return []


class Steps(Stage):
    """A stage that takes several commands a line: `go a; 5s > look` shows what follows the `>`."""

    async def act(self, command: str) -> str:
        silent, _, shown = command.rpartition(" > ")
        for one in filter(None, silent.split("; ")):
            await super().act(one)
        found = [await super(Steps, self).act(one) for one in shown.split("; ")]
        return "; ".join(filter(None, found))
