"""The whole judgement of one simulated run, and what each promise is judged by."""

from collections.abc import Mapping
from typing import Final

from rollout_lab.model.history import History

from tests.judge import (
    batches,
    budgets,
    departures,
    downscales,
    gates,
    releases,
    requests,
    reviews,
    rollouts,
    scaling,
)
from tests.judge.book import read_book
from tests.judge.liveness import judge_liveness
from tests.judge.promises import Promises as Promises
from tests.judge.promises import Verdict as Verdict
from tests.judge.promises import Violation as Violation

DEFAULT: Final = Promises()

# All others are: each has a history in the tables of the tests that breaks it.
NOT_JUDGED: Final[Mapping[str, str]] = {
    "SI-19": "no certificates in this world",
    "SI-20": "no certificates in this world",
    "SI-23": "outputs are scanned elsewhere",
    "LI-03": "seen by LI-02 only: a view that stays frozen never comes to rest",
    "LI-04": "seen by LI-01 only: a view without a list never comes to rest",
    "LI-06": "not yet",
    "LI-08": "seen by LI-01 only; how soon another process acts is shown by tests of failovers",
    "LI-09": "seen by LI-01 only: each group is judged by itself",
    "LI-12": "measured on real clocks",
    "LI-13": "no certificates in this world",
    "LI-14": "the process itself is not simulated",
    "LI-15": "no process is forbidden to patch in these schedules",
}


def judge_book(history: History, promises: Promises = DEFAULT) -> Verdict:
    """Return what is to be said of a run, in the order of time."""
    book = read_book(history, promises)
    found = [
        *rollouts.list_broken(book),
        *rollouts.list_foreign(book),
        *gates.list_broken(book),
        *batches.list_broken(book),
        *departures.list_broken(book),
        *releases.list_broken(book),
        *downscales.list_broken(book),
        *budgets.list_overlaps(book),
        *reviews.list_broken(book),
        *reviews.list_unrequested_records(book),
        *requests.list_excess(book),
        *requests.list_misrecorded(book),
        *scaling.list_broken(book),
        *requests.list_contested(book),
        *requests.list_unelected(book),
    ]
    said = list(judge_liveness(book))
    found += [one for one in said if isinstance(one, Violation)]
    found.sort(key=lambda one: (one.at, one.invariant))
    counted = [one for one in found if one.is_promised or promises.reserves]
    return Verdict(
        violations=tuple(counted),
        undetermined=tuple(one for one in said if isinstance(one, str)),
        unpromised=tuple(one for one in found if one not in counted),
    )


def list_observed_violations(history: History, promises: Promises) -> list[Violation]:
    """Return what deletes and evictions break in a history that was watched from outside."""
    book = read_book(history, promises)
    return [*rollouts.list_broken(book), *batches.list_broken(book), *departures.list_broken(book)]


def list_observed_downscales(history: History, promises: Promises) -> list[Violation]:
    """Return what SI-10 and SI-11 have against a history that was watched from outside."""
    return list(downscales.list_observed(read_book(history, promises)))
