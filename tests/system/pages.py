"""Pages of the documents whose commands are run: what they say, and whether it comes out so.

A block `console` has commands after `$ `, each followed by what it prints: lines that its output
must have, in which blanks and `...` stand for any. A block whose first line is `# NAME.yaml` is a
file that the commands find. A comment `<!-- test: WORDS -->` is a place where the test has
something happen that no command does, as hours that pass.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.world.kubectl import KUBECTL

DOCS: Final = Path(__file__).parents[2] / "docs"
ANYTHING: Final = "..."
LIMIT_SECONDS: Final = 150
_STEPS: Final = re.compile(r"```console\n(.*?)```|<!-- test: (.*?) -->", re.DOTALL)
_FILES: Final = re.compile(r"```yaml\n# ([\w-]+\.yaml)\n(.*?)```", re.DOTALL)
_NEW_LINE: Final = re.compile(r"\\\n\s*")

Happening = Callable[[], Awaitable[object]]


class Command(msgspec.Struct, frozen=True):
    line: str
    code: int
    printed: tuple[str, ...]


class Meanwhile(msgspec.Struct, frozen=True):
    """What happens at a place of a page without a command."""

    words: str


def read_steps(page: Path) -> Iterator[Command | Meanwhile]:
    """Yield what a page has done, in its order."""
    for block, words in _STEPS.findall(page.read_text()):
        if words:
            yield Meanwhile(words)
            continue
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *printed = _NEW_LINE.sub("", text).splitlines()
            line, _, code = line.partition("# exit code ")
            yield Command(line.strip(), int(code or 0), tuple(printed))


def read_files(page: Path) -> dict[str, str]:
    return dict(_FILES.findall(page.read_text()))


def is_printed(line: str, output: str) -> bool:
    words = [re.escape(" ".join(part.split())) for part in line.split(ANYTHING)]
    pattern = re.compile(r".*".join(words))
    return any(pattern.search(" ".join(each.split())) for each in output.splitlines())


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """Where the commands of pages are run."""

    kubeconfig: Path
    folder: Path
    """Where they begin, with the files of the page."""
    words: Mapping[str, str] = {}
    """What stands in a page, as a port or a namespace, and what it is here."""
    happenings: Mapping[str, Happening] = {}
    environment: Mapping[str, str] = {}
    """Variables in place of the tests' own."""

    async def follow(self, page: Path) -> None:
        """Do all that a page says. Raises AssertionError for what does not come out so."""
        steps = list(read_steps(page))
        said = {step.words for step in steps if isinstance(step, Meanwhile)}
        assert said == {*self.happenings}, f"{page.name}: {said} and {[*self.happenings]}"
        for name, text in read_files(page).items():
            (self.folder / name).write_text(self._translate(text))
        for step in steps:
            match step:
                case Meanwhile(words=words):
                    await self.happenings[words]()
                case Command():
                    await self._run(step)

    async def _run(self, command: Command) -> None:
        ended = await asyncio.to_thread(
            subprocess.run,
            ("bash", "-c", self._translate(command.line)),
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        output = ended.stdout.decode()
        assert ended.returncode == command.code, (command, ended.returncode, output)
        printed = [self._translate(line) for line in command.printed]
        missing = [line for line in printed if not is_printed(line, output)]
        assert not missing, "\n".join([f"$ {command.line}", output, "not printed:", *missing])

    def _translate(self, text: str) -> str:
        for word, here in self.words.items():
            text = text.replace(word, here)
        return text

    def _environment(self) -> dict[str, str]:
        ours = str(Path(sys.executable).parent)
        given = {**os.environ, **self.environment}
        path = os.pathsep.join((ours, str(KUBECTL.locate().parent), given["PATH"]))
        return {**given, "KUBECONFIG": str(self.kubeconfig), "PATH": path}
