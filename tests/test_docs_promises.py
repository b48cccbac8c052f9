"""Each id of a promise that the repository refers to is explained in docs/promises.md."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.code_rules import ROOT

FAMILIES: Final = (
    *("SI", "LI", "FP", "SEC", "D", "W", "ADM", "CA", "CLUS", "DELAY", "DEP", "DEPLOY", "FLAG"),
    *("FQDN", "HTTP", "LOG", "METR", "MIRR", "NODOWN", "POD", "PREP", "PROC", "RATE", "RBAC"),
    *("READY", "ROLL", "SCALE", "SEED", "SORT", "T", "TLS", "TRACE", "ZONE", "ZPDB", "ZVAL"),
    *("MAZ", "MT", "REL", "RELB", "RT"),
)

PAGE: Final = Path("docs/promises.md")
# A promise that only documents speak of is one that nothing proves.
PROVING: Final = ("rollout_operator", "tests", "benchmarks")
SPEAKING: Final = (
    "manifests", "docs", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"
)  # fmt: skip
SUFFIXES: Final = {".py", ".md", ".yaml", ".txt", ".go"}
# The page itself, and this file, which makes ids up.
SKIPPED: Final = {PAGE, Path(__file__).relative_to(ROOT)}

_RANGE: Final = {" to ", ".."}
# `SI-10`, `SI-10, 11 and 13`, `SI-01 to 08`, `SI-01 to SI-08`, `LI-02..04`, `SI-09/18/21`.
_IDS: Final = re.compile(
    rf"\b(?P<family>{'|'.join(FAMILIES)})-(?P<first>\d{{2,3}})\b"
    r"(?P<more>(?:(?:/|, | and | or | to |\.\.)(?:(?P=family)-)?\d{2,3}\b(?![.%]\d))*)"
)
# Names of tests begin with an id, as `test_si17_` and `test_t_12_` do.
_OF_TEST: Final = re.compile(
    rf"\bdef test_(?P<family>{'|'.join(FAMILIES).lower()})_?(?P<number>\d{{2,3}})_"
)
# What looks like an id, and stands for something that every reader can look up elsewhere.
_LIKE_AN_ID: Final = re.compile(r"(?<![\w.-])(?P<family>[A-Z]{1,7})-\d{1,3}\b(?![-.]?\w)")
_ELSEWHERE: Final = {"UTF", "SHA", "FNV", "P"}
_MORE: Final = re.compile(r"(?P<how>/|, | and | or | to |\.\.)(?:[A-Z]+-)?(?P<number>\d+)")
_ROW: Final = re.compile(r"\| (?P<id>[A-Z]+-\d+) \|")


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """One id at one place; the numbers inside of a range, such as `SI-01 to 08`, are implied."""

    id: str
    path: Path
    line: int
    is_implied: bool = False

    def __str__(self) -> str:
        return f"{self.path.as_posix()}:{self.line}: {self.id}"


def list_ids(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the ids of a line, and for each whether a range implies it."""
    if match := _OF_TEST.search(text):
        yield f"{match['family'].upper()}-{match['number']}", False
    for match in _IDS.finditer(text):
        family, before = match["family"], match["first"]
        yield f"{family}-{before}", False
        for more in _MORE.finditer(match["more"]):
            number = more["number"]
            if len(number) != len(before):  # "D-52, 100 ms" is an id and a span
                break
            if more["how"] in _RANGE:
                for between in range(int(before) + 1, int(number)):
                    yield f"{family}-{between:0{len(number)}}", True
            yield f"{family}-{number}", False
            before = number


def list_mentions(root: Path, tops: Iterable[str]) -> Iterator[Mention]:
    """Yield the ids in the files and folders `tops`, in the order of their paths."""
    for top in tops:
        for path in sorted((root / top).rglob("*")) or [root / top]:
            where = path.relative_to(root)
            if path.is_dir() or where in SKIPPED or (top != str(where) and _is_data(path)):
                continue
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                for name, is_implied in list_ids(line):
                    yield Mention(id=name, path=where, line=number, is_implied=is_implied)


def _is_data(path: Path) -> bool:
    return path.suffix not in SUFFIXES


def list_strange(root: Path) -> Iterator[Mention]:
    """Yield what looks like an id of a family that nothing explains."""
    for top in PROVING:
        for path in sorted((root / top).rglob("*.py")):
            if path.relative_to(root) in SKIPPED:
                continue
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                for match in _LIKE_AN_ID.finditer(line):
                    if match["family"] not in {*FAMILIES, *_ELSEWHERE}:
                        yield Mention(id=match[0], path=path.relative_to(root), line=number)


def list_rows(root: Path) -> Iterator[Mention]:
    """Yield the ids that the page explains."""
    for number, line in enumerate((root / PAGE).read_text().splitlines(), start=1):
        if row := _ROW.match(line):
            yield Mention(id=row["id"], path=PAGE, line=number)


def check(root: Path) -> list[str]:
    """Return what the page lacks, and what it has too much."""
    rows = list(list_rows(root))
    explained, proven = {row.id for row in rows}, list(list_mentions(root, PROVING))
    used = {mention.id for mention in proven}
    return [
        *(
            f"{mention} has no row in {PAGE.as_posix()}"
            for mention in (*proven, *list_mentions(root, SPEAKING))
            if mention.id not in explained and not mention.is_implied
        ),
        *(f"{row} is used by neither package nor test" for row in rows if row.id not in used),
        *(
            f"{row} has a row before"
            for place, row in enumerate(rows)
            if row.id in {other.id for other in rows[:place]}
        ),
    ]


def test_every_id_is_explained_and_every_explained_id_is_used() -> None:
    assert check(ROOT) == []


def test_no_id_is_of_a_family_without_a_row() -> None:
    assert [str(mention) for mention in list_strange(ROOT)] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("UTF-16, SHA-256, P-256, OPSI-01, SI-1, SI-1000, SI-01x", ""),
        ("SI-01, W-02 (D-03), SI-09/18/21", "SI-01 W-02 D-03 SI-09 SI-18 SI-21"),
        ("SI-04, 07 and 08 or 10, LI-02", "SI-04 SI-07 SI-08 SI-10 LI-02"),
        ("SI-01 to SI-03, SI-17; LI-02..04", "SI-01 (SI-02) SI-03 SI-17 LI-02 (LI-03) LI-04"),
        ("D-52, 100 ms", "D-52"),
        ("def test_d_99_a(): ...", "D-99"),
    ],
)
def test_short_forms_are_read(text: str, ids: str) -> None:
    found = [f"({name})" if is_implied else name for name, is_implied in list_ids(text)]

    assert " ".join(found) == ids


def test_what_is_missing_or_too_much_is_found(tmp_path: Path) -> None:
    page = "| id | promise |\n| SI-01 | a |\n| SI-01 | again |\n| SI-02 | by documents alone |\n"
    files = {
        PAGE.as_posix(): page,
        "tests/test_x.py": "# SI-01, SI-99, NDS-01 SHA-256",
        "docs/x.md": "LI-99 SI-02",
        "README.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in {*PROVING, *SPEAKING} - {"tests", "docs", *files}:
        (tmp_path / name).touch() if "." in name or name == "Makefile" else (
            tmp_path / name
        ).mkdir()

    assert check(tmp_path) == [
        "tests/test_x.py:1: SI-99 has no row in docs/promises.md",
        "docs/x.md:1: LI-99 has no row in docs/promises.md",
        "docs/promises.md:4: SI-02 is used by neither package nor test",
        "docs/promises.md:3: SI-01 has a row before",
    ]
    assert [mention.id for mention in list_strange(tmp_path)] == ["NDS-01"]
