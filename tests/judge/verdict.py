"""The whole judgement of one simulated run, and what each promise is judged by."""

from collections.abc import Mapping
from typing import Final

from rollout_operator.lab.model.history import History
from tests.judge import (
    invariants_budgets,
    invariants_downscales,
    invariants_election,
    invariants_policies,
    invariants_releases,
    invariants_requests,
    invariants_reviews,
    invariants_rollouts,
    invariants_scaling,
)
from tests.judge.book import read_book
from tests.judge.liveness import judge_liveness
from tests.judge.promises import Promises as Promises
from tests.judge.promises import Verdict as Verdict
from tests.judge.promises import Violation as Violation

DEFAULT: Final = Promises()

COVERAGE: Final[Mapping[str, str]] = {
    "SI-01": "judged at the commit of each delete, and of each eviction of a pod under a budget"
    " that the operator allowed; no allowance but the group's members in flight",
    "SI-02": "judged per delete, eviction and downscale, on what has lasted for 5 s; no delete"
    " while another zone is about to lose pods (D-25)",
    "SI-03": "judged at the commit of each delete and eviction, on what has lasted for 5 s",
    "SI-04": "judged at the commit of each delete and eviction, strictly",
    "SI-05": "judged at the commit of each delete and eviction of a pod whose budget counts by"
    " partition; times of readiness to a second",
    "SI-06": "judged per delete: namespace, owner, group",
    "SI-07": "judged per delete: preconditions, revision, pause",
    "SI-08": "judged per delete: strategy, status and revision of all members",
    "SI-09": "judged per delete: live reads of the group by the same process, since its start;"
    " not how old its caches are, of which the history shows nothing; and per downscale that the"
    " operator writes itself",
    "SI-10": "judged per downscale that persists while its webhook is in force",
    "SI-11": "judged per pair of such downscales, on the time of the world; the later one may be of"
    " a zone that follows, without a webhook; what a person writes of the earlier one is the truth",
    "SI-12": "judged per un-prepare: downscales that persist, and reviews that were allowed",
    "SI-13": "judged for prepare-downscale: reviewed, allowed last, and on a read that succeeded",
    "SI-14": "judged per downscale that persists while its webhook is in force",
    "SI-15": "judged: writes of dry runs, calls and records while only dry runs are reviewed,"
    " and records of evictions that no client requests in earnest",
    "SI-16": "judged: refusals of what was just allowed, records written and pods called twice",
    "SI-17": "judged for pods under a budget: a record on the pod, written by compare-and-swap;"
    " else not promised: deletes of a process that had died are listed under it, apart",
    "SI-18": "judged: no delete on a read older than one that got no answer",
    "SI-19": "not here: no certificates in this world",
    "SI-20": "not here: no certificates in this world",
    "SI-21": "judged per call of a pod: whose it is, and its path; its port shows in no record",
    "SI-22": "judged per write, where processes elect one: who held the lease when it was sent",
    "SI-23": "not here: outputs are scanned elsewhere",
    "SI-24": "judged per request",
    "LI-01": "judged: rest in time after the last fault and change, then quiet for an hour; counts"
    " of zones that follow or mirror within the times between zones, by the times in the store",
    "LI-02": "judged as LI-01, with five minutes more where events were lost before",
    "LI-03": "seen by LI-02 only: a view that stays frozen never comes to rest",
    "LI-04": "seen by LI-01 only: a view without a list never comes to rest",
    "LI-05": "judged at the end: no pod is prepared that stays; of delayed downscales also when it"
    " was un-prepared",
    "LI-06": "not yet",
    "LI-07": "judged: records on untouched pods, once all is well; drains as LI-01",
    "LI-08": "seen by LI-01 only; how soon another process acts is shown by tests of failovers",
    "LI-09": "seen by LI-01 only: each group is judged by itself",
    "LI-10": "judged as LI-01, where a pod that waits to be replaced is not ready",
    "LI-11": "judged: reads in each minute at rest, requests in any minute by the rate limits,"
    " reads that lead to no write for minutes, and how often counts are written that something else"
    " puts back",
    "LI-12": "not here: measured on real clocks",
    "LI-13": "not here: no certificates in this world",
    "LI-14": "not here: the process itself is not simulated",
    "LI-15": "not here: no process is forbidden to patch in these schedules",
    "SCALE-05": "judged per count that the operator writes for a zone that follows: one that the"
    " leading zone had",
    "MIRR-04": "judged per count that it writes for a zone that mirrors; LI-01 judges what follows"
    " from it in the end, the status of the object included",
    "DELAY-08": "judged per delayed downscale, by what pods know of themselves: for how long each"
    " had been prepared, and that it had said so",
    "MAZ-25": "judged per delete of a pod of a policy: no label drives it",
    "MAZ-30": "judged per delete, on what the store had; and no number of a batch for other pods",
    "MAZ-31": "judged at the commit of each delete, strictly",
    "MAZ-32": "judged per delete, on what has lasted for 5 s; `minReadySeconds` included",
    "MAZ-33": "judged per delete of a healthy pod",
    "MAZ-36": "judged per delete of a healthy pod, on what has lasted for 5 s in its zone",
    "MAZ-40": "judged per delete of a healthy pod: since when all had been available, to a second",
    "MAZ-43": "as MAZ-40, where a process began in the pause",
    "MAZ-46": "judged per delete: a policy that is paused only carries out what it had recorded",
    "REL-01": "judged per entry that is added to a history: requested by name, or after a bake that"
    " has succeeded, or a failure that was unblocked",
    "REL-50": "judged per entry that was not requested by name, on gates closed for 5 s; for six"
    " minutes where events of gates may have been lost",
    "RELB-10": "judged per annotation that is removed: on record before, with its effect, and per"
    " name of a person: one entry",
    "RELB-15": "judged per tag that Flux is given: on record at the head of the history by then",
    "RELB-42": "judged per entry that was not requested by name, on schedules that have been closed"
    " for half a second, with or without a gate; for six minutes where events may have been lost",
    "RELB-35": "judged per retry that is recorded: the entry is tried again",
    "ROLL-39": "judged per status write that sets the current revision, on what has lasted for 5 s",
}


def judge_book(history: History, promises: Promises = DEFAULT) -> Verdict:
    """Return what is to be said of a run, in the order of time."""
    book = read_book(history, promises)
    found = [
        *invariants_rollouts.list_broken(book),
        *invariants_rollouts.list_foreign(book),
        *invariants_policies.list_broken(book),
        *invariants_releases.list_broken(book),
        *invariants_downscales.list_broken(book),
        *invariants_budgets.list_overlaps(book),
        *invariants_reviews.list_broken(book),
        *invariants_reviews.list_unrequested_records(book),
        *invariants_requests.list_excess(book),
        *invariants_requests.list_misrecorded(book),
        *invariants_scaling.list_broken(book),
        *invariants_requests.list_contested(book),
        *invariants_election.list_broken(book),
    ]
    undetermined: list[str] = []
    for one in judge_liveness(book):
        if isinstance(one, str):
            undetermined.append(one)
        else:
            found.append(one)
    found.sort(key=lambda one: (one.at, one.invariant))
    is_promised = [one.is_promised or promises.reserves for one in found]
    return Verdict(
        violations=tuple(one for one, counts in zip(found, is_promised, strict=True) if counts),
        undetermined=tuple(undetermined),
        unpromised=tuple(one for one, counts in zip(found, is_promised, strict=True) if not counts),
    )


def list_observed_violations(history: History, promises: Promises) -> list[Violation]:
    """Return what deletes and evictions break in a history that was watched from outside."""
    book = read_book(history, promises)
    return [*invariants_rollouts.list_broken(book), *invariants_policies.list_broken(book)]


def list_observed_downscales(history: History, promises: Promises) -> list[Violation]:
    """Return what SI-10 and SI-11 have against a history that was watched from outside."""
    return list(invariants_downscales.list_observed(read_book(history, promises)))
