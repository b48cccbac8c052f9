"""What it would take to grant without the list of all pods: two short cuts that are not built."""

from typing import Final

from msgspec.structs import replace

from tests.models.elected import ElectedGrants, ElectedState, Elections, Gap, ShortCut
from tests.models.grant_words import Setup
from tests.models.search import Walk, explore

ONE_EACH: Final = Setup(wants=((0,), (1,)))
BY_LEASE: Final = Elections(setup=ONE_EACH, short_cut=ShortCut.LEASE)
BY_RECORD: Final = Elections(setup=ONE_EACH, short_cut=ShortCut.OWN_RECORD)
# Where no pod fails by itself, and by the own record even beside a process without an election.
SAFE: Final = {
    "by the Lease": BY_LEASE,
    "by the own record": replace(BY_RECORD, gaps=frozenset({Gap.HAS_OUTSIDER})),
}


def walk_through(elections: Elections, *gaps: Gap) -> Walk[ElectedState]:
    """Return all that may happen, with these gaps beside those that the elections have."""
    gaps = (*elections.gaps, *gaps)
    return explore(ElectedGrants(replace(elections, gaps=frozenset(gaps))).model)


def list_not_shown() -> list[str]:
    """Return the short cuts of `SAFE` that cross the budget all the same, or are never taken.

    A gap says something only where the same short cut is safe without it.
    """
    walks = {name: walk_through(elections) for name, elections in SAFE.items()}
    return [
        f"{name}: {walk.fault or 'never taken'}"
        for name, walk in walks.items()
        if walk.fault is not None or "go without a list" not in walk.verbs
    ]
