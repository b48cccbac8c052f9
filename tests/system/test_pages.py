"""How pages of the documents are read, without a control plane."""

from pathlib import Path
from typing import Final

import pytest

from tests.system.pages import Command, Meanwhile, Terminal, is_printed, read_files, read_steps

PAGE: Final = r"""# A page

```yaml
# zone.yaml
kind: StatefulSet
```

```yaml
not: a file
```

```console
$ kubectl apply \
    -f zone.yaml   # exit code 1
denied ...
$ kubectl get pods
```

<!-- test: an hour passes -->

```bash
$ never run
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return a page as a file."""
    at = tmp_path / "page.md"
    at.write_text(PAGE)
    return at


def test_commands_and_what_happens_between_them(page: Path) -> None:
    assert list(read_steps(page)) == [
        Command("kubectl apply -f zone.yaml", 1, ("denied ...",)),
        Command("kubectl get pods", 0, ()),
        Meanwhile("an hour passes"),
    ]


def test_only_blocks_with_a_name_are_files(page: Path) -> None:
    assert read_files(page) == {"zone.yaml": "kind: StatefulSet\n"}


@pytest.mark.parametrize(
    ("line", "is_there"),
    [
        ("zone-a 3/3 ...", True),
        ("...3/3 40s", True),
        ("zone-a 2/3", False),
        ("zone-b", False),
        ("zone.a", False),
    ],
)
def test_blanks_and_dots_stand_for_any(line: str, is_there: bool) -> None:
    output = "NAME     READY   AGE\nzone-a   3/3     40s\n"

    assert is_printed(line, output) is is_there


async def test_what_a_page_and_its_test_say_must_agree(page: Path, tmp_path: Path) -> None:
    terminal = Terminal(kubeconfig=tmp_path / "none", folder=tmp_path)

    with pytest.raises(AssertionError, match="an hour passes"):
        await terminal.follow(page)
