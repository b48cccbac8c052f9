"""Scenarios without faults: each ends at rest, clean, and did what `calm.txt` says.

With faults or without: the same seed gives the same history, to the last record: in one process, in
two, and whatever hashes do.
"""

import gc
import json
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.model.fields import child, children, is_terminating, number, text
from rollout_lab.model.history import Called, Commit, History, PodCalled, Reviewed, Said
from rollout_lab.nodes.behaviour import image_of
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MULTI_AZ_ROLLOUTS,
    OCI_REPOSITORIES,
    PODS,
    ROLLOUTS,
    STATEFULSETS,
    JsonObject,
    Resource,
)
from tests.code_rules import ROOT
from tests.judge.book import read_book
from tests.judge.budgets import list_grants
from tests.judge.promises import Promises
from tests.judge.requests import list_contests
from tests.judge.scaling import list_scalings
from tests.simulation.__main__ import read_size
from tests.simulation.campaign import Job, list_unrepeatable, run_job
from tests.simulation.runs import Outcome, is_healing, run
from tests.simulation.scenarios_book import NAMES, get_scenario
from tests.stories import Story, check_tables, read_stories

# Longer lists are counted.
MOST_NAMES = 12
MOST_TURNS = 6
WIDTH = 96
USUAL = frozenset({"creates", "sets the image"})
IDLE_AFTER = timedelta(minutes=5)


def describe(history: History) -> str:
    """Return what is worth to be said of a run; parts of which there is none are left out."""
    parts = [
        *_describe_pods(history),
        *_describe_counts(history),
        *_describe_reviews(history),
        *_describe_policies(history),
        *_describe_releases(history),
        *_describe_reads(history),
    ]
    return textwrap.fill("; ".join(part for part in parts if part), WIDTH, break_on_hyphens=False)


def _describe_pods(history: History) -> Iterator[str]:
    calls = [one for one in history.list_all(Called) if one.request.resource == PODS]
    deletes = [one for one in calls if _is_deleted(one)]
    yield _say("deleted", _by_zone(one.request.name for one in deletes))
    evictions = [one for one in calls if one.request.subresource == "eviction"]
    went = [one for one in evictions if one.status == 201 and not one.request.is_dry_run]
    yield _say("evicted", sorted({one.request.name for one in went}))
    if evictions:
        dry = ["dry"] if any(one.request.is_dry_run for one in evictions) else []
        yield _say("evictions", [*sorted({str(one.status) for one in evictions}), *dry])
        yield f"zones at once {_count_going(history)}"
    for method in ("POST", "DELETE"):
        called = {one.pod for one in history.list_all(PodCalled) if one.method == method}
        yield _say(method, sorted(called))
    images = {image_of(pod) for pod in _list_left(history, PODS)}
    yield _say("left at", sorted(images))


def _describe_counts(history: History) -> Iterator[str]:
    by_set: dict[str, list[int]] = {}
    made: list[str] = []
    for commit in _list_commits(history, STATEFULSETS):
        if commit.after is not None:
            by_set.setdefault(commit.name, []).append(number(commit.after, "spec", "replicas"))
        if commit.before is None:
            made.append(commit.name)
    paths = {name: [one for one, _ in groupby(counts)] for name, counts in by_set.items()}
    moved = {name: path for name, path in paths.items() if len(path) > 1}
    yield _say("counts", [f"{name} {_word_path(path)}" for name, path in sorted(moved.items())])
    twice = sorted({name for name in made if made.count(name) > 1})
    yield _say("made anew", twice)
    left = {text(one, "metadata", "name") for one in _list_left(history, STATEFULSETS)}
    yield _say("gone", sorted({*by_set} - left))
    book = read_book(history, Promises())
    for word, is_downscale in (("scaled up", False), ("scaled down", True)):
        found = {one.before.name for one in list_scalings(book) if one.is_downscale is is_downscale}
        yield _say(f"{word} by the operator", sorted(found))
    contests = [f"{one.zone} {len(one.times)} times" for one in list_contests(book)]
    yield _say("contested", contests)
    delayed = {f"{one.method} {one.status}" for one in book.delay_calls}
    yield _say("delay", sorted(delayed))


def _describe_reviews(history: History) -> Iterator[str]:
    reviews = history.list_all(Reviewed)
    actors = {one.actor for one in reviews if one.actor.startswith("operator")}
    yield _say("reviewed by", sorted(actors) if len(actors) > 1 else [])
    refused = [one.at for one in reviews if not one.allowed]
    deletes = [one.at for one in history.list_all(Called) if _is_deleted(one)]
    is_met = any(min(deletes) < at < max(deletes) for at in refused) if deletes else False
    yield "refused in the midst of a rollout" if is_met else "refused" if refused else ""
    grants = list_grants(read_book(history, Promises()))
    images = [one.at for one in history.list_all(Said) if "sets the image" in one.text]
    if any(one.read_at < at < one.ended_at for one in grants for at in images):
        yield "a new template in the midst of a downscale"
    acts = {_word(one.text) for one in history.list_all(Said)} - USUAL
    yield _say("people", [", ".join(sorted(acts))] if acts else [])


def _describe_policies(history: History) -> Iterator[str]:
    batches = [
        [text(pod, "name") for pod in children(commit.after or {}, "status", "lastBatch", "pods")]
        for commit in _list_commits(history, MULTI_AZ_ROLLOUTS)
    ]
    recorded = [name for batch, _ in groupby(batches) for name in batch]
    yield _say("recorded", _by_zone(recorded))
    deletes = [one.at for one in history.list_all(Called) if _is_deleted(one)]
    if recorded:
        yield f"{min(after - before for before, after in pairwise(deletes)).seconds} s apart"


def _describe_releases(history: History) -> Iterator[str]:
    commits = _list_commits(history, OCI_REPOSITORIES[0])
    tags = [text(one.after or {}, "spec", "ref", "tag") for one in commits]
    yield _say("tags", [tag for tag, _ in groupby(tags) if tag])
    rollouts = [one.after for one in _list_commits(history, ROLLOUTS) if one.after]
    entries = children(rollouts[-1], "status", "history") if rollouts else []
    yield _say("by", [text(child(one, "triggeredBy"), "name") for one in reversed(entries)])


def _describe_reads(history: History) -> Iterator[str]:
    if _list_commits(history, CONFIG_MAPS):
        is_annotated = any(
            "grafana.com/last-downscale" in str(one.after)
            for one in _list_commits(history, STATEFULSETS)
        )
        yield f"times in the map{' and on sets' if is_annotated else ''}"
    last = max((one.at for one in history.list_all(Said)), default=timedelta(0))
    idle = [one for one in history.list_all(Called) if one.begun > last + IDLE_AFTER]
    templates = [one.request for one in idle if one.request.resource == REPLICA_TEMPLATES]
    yield _say("idle", sorted({f"{one.verb} {one.subresource}".strip() for one in templates}))


def _say(what: str, found: Iterable[str]) -> str:
    names = [re.sub(r"\bingester-zone-", "", one) for one in found]
    if len(names) > MOST_NAMES:
        names = [f"{len(names)}"]
    return f"{what} {' '.join(names)}" if names else ""


def _by_zone(pods: Iterable[str]) -> list[str]:
    """Return how many of each zone, in turn; where the zones take turns often, of each in all."""
    zones = [pod.rpartition("-")[0] for pod in pods]
    turns = [(zone, len([*some])) for zone, some in groupby(zones)]
    if len(turns) > MOST_TURNS:
        turns = sorted(Counter(zones).items())
    return [f"{zone} {many}" for zone, many in turns]


def _word_path(path: Sequence[int]) -> str:
    """Return the first count and the last, and whether it went up and down in between."""
    is_straight = path in (sorted(path), sorted(path, reverse=True))
    return f"{path[0]}>{'' if is_straight else '..>'}{path[-1]}"


def _is_deleted(call: Called) -> bool:
    request = call.request
    is_delete = (request.verb, request.resource, request.is_dry_run) == ("delete", PODS, False)
    return is_delete and call.actor.startswith("operator") and call.status < 300


def _list_commits(history: History, resource: Resource) -> list[Commit]:
    return [one for one in history.list_all(Commit) if one.resource == resource]


def _list_left(history: History, resource: Resource) -> list[JsonObject]:
    last = {one.name: one.after for one in _list_commits(history, resource)}
    return [one for one in last.values() if one is not None]


def _count_going(history: History) -> int:
    """Return of how many zones pods were going at a time, at most."""
    going: set[str] = set()
    most = 0
    for one in _list_commits(history, PODS):
        is_going = one.after is not None and is_terminating(one.after)
        going = going | {one.name} if is_going else going - {one.name}
        most = max(most, len({name.rpartition("-")[0] for name in going}))
    return most


def _word(said: str) -> str:
    """Return what people say they do, without the names in it."""
    if "in a dry run" in said:
        return "rehearses"
    if key := re.search(r"(?:annotates|labels) \S+ with (?:grafana.com/)?([^=]+)=", said):
        return key[1]
    words = [word for word in said.split() if not re.search(r"[-\d]", word)]
    return " ".join(words[: 3 if words[0] == "sets" else 1])


pytestmark = pytest.mark.thorough

CALM: Final = Path(__file__).with_name("calm.txt")


def show_calm(case: str) -> str:
    """Play it without faults, with the first seed from the given one on that heals."""
    name, seed, *size = case.split()
    scenario = get_scenario(name, read_size(size[0]) if size else None)
    outcome = run(scenario, next(filter(is_healing, count(int(seed)))), only=frozenset())

    assert outcome.is_healed
    assert outcome.verdict.is_clean, outcome.verdict
    assert not outcome.faults
    return describe(outcome.history)


test_without_faults_it_ends_at_rest_and_clean = check_tables(__file__, calm=show_calm)


def test_each_scenario_is_played() -> None:
    stories = [one for case in read_stories(CALM) for one in case.values if isinstance(one, Story)]
    assert {story.commands[0].split()[0] for story in stories} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        # MAZ-40, step 10: a cache that lags shows a pod as broken, which would wait for no pause.
        ("p3-elected", (107, 178)),
        # REL-01, REL-46, RELB-10, RELB-15: no wish has its effect twice, and none is lost.
        ("r2", (5, 9, 17, 61)),
        # RELB-42: schedules made, changed, or selecting another label, as versions are announced.
        ("r3", (6, 10, 12, 13)),
    ],
)
def test_what_once_went_wrong_under_faults_does_not(name: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        verdict = run(get_scenario(name), seed).verdict
        assert verdict.is_clean, f"seed {seed}\n{verdict}"


SEEDS: Final = 10
# Each way of acting once: alone, elected, beside others, and all features. All: `make prove`.
EACH_WAY: Final = (
    *("s1", "s7-tracked", "s8-two", "s9-small", "s12", "s14-watched", "walk", "p1"),
    *("r1-elected", "s5-contested"),
)
PRINT_HASH: Final = """
import json, sys
from tests.simulation.campaign import Job, run_job
jobs = [Job(scenario=name, seed=seed) for name in sys.argv[1:] for seed in (5,)]
print(json.dumps([run_job(job).trace_hash for job in jobs]))
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.endswith("-small") else pytest.mark.slow)
        for name in EACH_WAY
    ],
)
def test_the_same_seed_gives_the_same_history(name: str) -> None:
    first, second = (_run_alone(name) for _ in range(2))

    assert first.trace_hash == second.trace_hash, _name_difference(first, second)
    assert (first.span, first.steps, first.faults) == (second.span, second.steps, second.faults)


def _run_alone(name: str) -> Outcome:
    """Run a schedule when nothing of earlier ones is left: a task that is destroyed takes steps."""
    gc.collect()
    return run(get_scenario(name), 3)


def test_another_seed_gives_another_history() -> None:
    hashes = {run_job(Job(scenario="s1-small", seed=seed)).trace_hash for seed in range(8)}

    assert len(hashes) == 8


@pytest.mark.slow
def test_the_order_of_hashes_changes_nothing() -> None:
    """Sets of strings are in another order in each process: nothing may depend on it."""
    names = ["s1-small", "s7-small", "s9-small"]
    found = []
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", PRINT_HASH, *names],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=120,
        )
        found.append(json.loads(ran.stdout))

    assert found[0] == found[1]


@pytest.mark.parametrize(("scenario", "seed"), [("s1", 11), ("s3", 962)])
def test_leaving_out_no_fault_changes_nothing(scenario: str, seed: int) -> None:
    """What `only` names is what strikes, or would, so that a run can be shrunk."""
    whole = run(get_scenario(scenario), seed)
    same = run(get_scenario(scenario), seed, only=frozenset(whole.numbers))

    assert whole.faults, "a seed without faults shows nothing"
    assert same.trace_hash == whole.trace_hash, _name_difference(whole, same)


def test_without_faults_none_strikes() -> None:
    assert not run(get_scenario("s1"), 11, only=frozenset()).faults


@pytest.mark.slow
def test_ten_seeds_give_the_same_history_in_another_process() -> None:
    """One of them in a scenario of its full size; more of them, of all: `make prove`."""
    names = (*("s1-small", "s2-small", "s7-small") * 3, "s1")
    jobs = [Job(scenario=names[seed % len(names)], seed=seed) for seed in range(SEEDS)]

    assert list_unrepeatable(jobs) == []


def _name_difference(first: Outcome, second: Outcome) -> str:
    for place, (one, other) in enumerate(
        zip(first.history.records, second.history.records, strict=False)
    ):
        if one != other:
            return f"record {place}:\n{one}\n{other}"
    return f"{len(first.history.records)} records, {len(second.history.records)} records"
