"""Each id of a promise that the repository refers to is explained in docs/promises.md."""

import re
from collections.abc import Iterator
from typing import Final

from tests.code_rules import ROOT

PROMISES: Final = "docs/promises.md"
# A promise that only documents speak of is one that nothing proves.
PROVING: Final = ("rollout_operator", "tests", "benchmarks")
SPEAKING: Final = ("manifests", "docs", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
SUFFIXES: Final = {".py", ".md", ".yaml", ".txt", ".go", ".toml", ""}
# What looks like an id, and stands for something that every reader can look up elsewhere.
ELSEWHERE: Final = {"UTF", "SHA", "FNV", "P"}
# `SI-10`, `SI-10, 11 and 13`, `SI-01 to 08`, `SI-09/18/21`; a range implies what lies between.
_IDS: Final = re.compile(
    r"(?<![\w.-])([A-Z]{1,7})-(\d{2,3})\b(?![-:]?\w)"
    r"((?:(?:/|, | and | or | to |\.\.)(?:\1-)?\d{2,3}\b(?![.%]\d))*)"
)
# Names of tests begin with an id, as `test_si17_` and `test_t_12_` do.
_OF_TEST: Final = re.compile(r"\bdef test_([a-z]+?)_?(\d{2,3})_")


def list_ids(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the ids of a text, and for each whether a range implies it."""
    for family, number in _OF_TEST.findall(text):
        yield f"{family.upper()}-{number}", True
    for family, before, more in _IDS.findall(text):
        yield f"{family}-{before}", False
        for how, number in re.findall(r"(/|, | and | or | to |\.\.)(?:[A-Z]+-)?(\d+)", more):
            if len(number) != len(before):  # "D-52, 100 ms" is an id and a span
                break
            between = range(int(before) + 1, int(number) * (how in {" to ", ".."}))
            yield from ((f"{family}-{one:0{len(number)}}", True) for one in between)
            yield f"{family}-{number}", False
            before = number


def list_mentions(*tops: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the files below these places with the ids in them."""
    for top in tops:
        for path in sorted((ROOT / top).rglob("*")) or [ROOT / top]:
            where = str(path.relative_to(ROOT))
            if path.is_file() and path.suffix in SUFFIXES and where != PROMISES:
                for one, is_implied in list_ids(path.read_text()):
                    yield where, one, is_implied


def test_every_id_is_explained_and_every_explained_id_is_used() -> None:
    rows = re.findall(r"^\| ([A-Z]+-\d+) \|", (ROOT / PROMISES).read_text(), re.MULTILINE)
    families = {one.partition("-")[0] for one in rows}
    mentions = [*list_mentions(*PROVING)]
    unknown = {
        f"{where}: {one}"
        for where, one, is_implied in (*mentions, *list_mentions(*SPEAKING))
        if one not in rows and not is_implied and one.partition("-")[0] not in ELSEWHERE
    }
    assert len(rows) == len({*rows})
    assert {*families} >= {"SI", "LI", "SEC", "DEP"}
    assert unknown == set()
    assert {*rows} - {one for _, one, _ in mentions} == set(), "neither package nor test has them"
