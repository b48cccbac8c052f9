"""What an image policy of Flux selects is a candidate, and nothing older is: RELB-03."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, permutations
from random import Random
from typing import Final

import msgspec
import pytest

from rollout_operator.releases.model.decode_flux import decode_image_policy
from rollout_operator.releases.model.releases import AnnouncedReleases, PolicyOrder, TagOrder
from rollout_operator.releases.planning.candidates import choose_candidates, find_rank
from tests.flux.image_policies import Selection, select
from tests.model.decode.releases.trees import as_json
from tests.planning.releases.builders import releases

pytestmark = pytest.mark.controlplane  # for its program, which is built like it

Make = Callable[[Random], str]

PRE: Final = (
    *("", "", "", "-rc.1", "-rc.2", "-rc.10", "-a", "-1", "-01", "-0123456", "-b.1.x", "-b.1"),
    *("-99999999999999999999", "-99999999999999999998", "-1-2", "--"),
)
ORDERS: Final = ("asc", "desc", "")
RANGES: Final = ("*", ">=0.0.0-0", ">=1.0.0", "<2.0.0-0", "~1.1")


def _version(rng: Random) -> str:
    numbers = [rng.choice(["0", "1", "2", "10", "01"]) for _ in range(rng.choice([3, 3, 3, 3, 2]))]
    return f"{rng.choice(['', '', 'v'])}{'.'.join(numbers)}{rng.choice(PRE)}"


def _digest(rng: Random) -> str:
    return "".join(rng.choices("01a", k=7))


def _number(rng: Random) -> str:
    written = (
        *("0", "00", "0.10", "1.", "1.5", "17", "017", "32", "1000", "1_000", "1_0.0_1", "1__0"),
        *("1e3", "1E+3", "1e400", "1e-400", "e5", "5-e", "0x10p1", "0x_1p4", "0x1", "inf"),
    )
    return rng.choice([*written, "Infinity", str(rng.randrange(30))])


def _word(rng: Random) -> str:
    return "".join(rng.choices("aB1._-", k=rng.randrange(1, 4)))


# A shape of tags, and patterns with what is extracted: most match it.
SHAPES: Final[Sequence[tuple[Make, Sequence[tuple[str, str]]]]] = (
    (_version, (("^v?[0-9.]+$", ""), ("", ""), ("-rc", ""), ("^v?(.*)", "$1"), ("(.*)", "v${1}"))),
    (
        lambda rng: f"{_version(rng)}-{_digest(rng)}",
        (
            (r"^(?P<v>[0-9]+\.[0-9]+\.[0-9]+)-[0-9a-f]{7}$", "$v"),
            (r"^(?P<v>.*)-(?P<h>[0-9a-f]{7})$", "$v"),
            (r"^(?P<v>.*)-(?P<h>[0-9a-f]{7})$", "$v+$h"),
            (r"^(?P<v>.*)-(?P<h>[0-9a-f]{7})$", "${h}"),
        ),
    ),
    (
        lambda rng: f"{rng.choice(['14', '15', '9'])}-{_version(rng)}",
        (
            ("^(?P<pg>[0-9]+)-(?P<v>.*)$", "$v"),
            ("^(?P<pg>[0-9]+)-(?P<v>.*)$", "$pg"),
            ("^(?P<pg>[0-9]+)-v?(?P<v>[0-9]+)", "$pg.$v.0"),
            ("^(?P<pg>[0-9]+)-(?P<v>.*)$", "$vx"),
            ("^(?:(14)|15)-(.*)$", "$2$1"),
        ),
    ),
    (
        lambda rng: f"2026010{rng.randrange(1, 4)}-{rng.choice(['v', ''])}{_version(rng)}",
        (("^[0-9]{8}-v(?P<v>.*)$", "$v"), ("^([0-9]{8})", "$1"), ("^([0-9]{8})", "$01")),
    ),
    (_number, (("^[0-9]", ""), ("", "$0"), ("^([0-9]+)", "$1"), ("([0-9]+)$", "${1}e$1"))),
    (
        lambda rng: f"{rng.choice(['main', 'dev'])}-{_digest(rng)}-{rng.randrange(12)}",
        (
            ("^main-[a-f0-9]+-(?P<ts>[0-9]+)", "$ts"),
            ("-(?P<ts>[0-9]+)$", "$ts"),
            ("(?i)^MAIN-([a-f0-9]+)", "$1"),
            ("^(?P<branch>[a-z]+)-", "${branch"),
            ("^(?P<branch>[a-z]+)-", "$$branch $branch"),
        ),
    ),
    (_word, (("a", ""), ("[.]", "$0"), ("^(a)?(.*)$", "$2$1"), ("^.", "$0"))),
)


def _make_selection(rng: Random) -> Selection:
    make, filters = rng.choice(SHAPES)
    order = {"order": rng.choice(ORDERS)}
    choices = (
        {"semver": {"range": rng.choice(RANGES)}},
        {"alphabetical": order},
        {"numerical": order},
    )
    chosen = rng.choice([None, *filters, *filters])
    tags = sorted({tag for tag in (make(rng) for _ in range(6)) if tag[0] not in ".-"})
    rng.shuffle(tags)
    return Selection(
        policy=rng.choice(choices),
        filter_tags=None if chosen is None else {"pattern": chosen[0], "extract": chosen[1]},
        lists=[tags, *([tag] for tag in tags), *permutations(tags, 2)],
    )


def _read_order(selection: Selection) -> TagOrder:
    spec = {"imageRepositoryRef": {"name": "app"}, **msgspec.to_builtins(selection)}
    order = decode_image_policy(as_json(spec)).order
    assert order is not None
    assert not order.problem
    return order


class Flux:
    """What Flux selects, by all that was requested of it."""

    def __init__(self, selection: Selection, answers: Sequence[str]) -> None:
        self.tags = tuple(selection.lists[0])
        self.latest = answers[0]
        self._selected = dict(zip(map(tuple, selection.lists), answers, strict=True))

    def takes(self, tag: str) -> bool:
        """Return whether it selects a tag that is alone."""
        return self._selected[(tag,)] == tag

    def is_newer(self, tag: str, other: str) -> bool:
        """Return whether it selects a tag whichever of the two comes first."""
        pairs = ((tag, other), (other, tag))
        return tag != other and all(self._selected[pair] == tag for pair in pairs)

    def is_equal(self, tag: str, other: str) -> bool:
        return not self.is_newer(tag, other) and not self.is_newer(other, tag)


def _list_wrong(flux: Flux, order: TagOrder) -> Iterator[str]:
    """Yield what candidates differ in from what Flux selects, for each tag that may be current."""
    known = [tag for tag in flux.tags if flux.takes(tag)]
    tags = [*flux.tags]
    Random(" ".join(tags)).shuffle(tags)  # announced in another order than they are listed in
    for current in tags:
        announced = AnnouncedReleases(
            available=releases(" ".join(tags)),
            current=current,
            latest=flux.latest or None,
            order=order,
        )
        found = [release.tag for release in choose_candidates(announced).releases]
        later = tags[tags.index(current) + 1 :]
        told = f"{order}, {tags}, {current} -> {flux.latest}: {found}"
        if current not in known:
            # Flux does not take it, out of its range or at all: it may count for us all the same.
            if not find_rank(current, order) and (flux.latest in found) != (flux.latest in later):
                yield f"not what was announced later: {told}"
            continue
        newer = {tag for tag in known if flux.is_newer(tag, current)}
        if flux.latest:
            newer = {tag for tag in newer if not flux.is_newer(tag, flux.latest)}
            is_equal = flux.latest in later and flux.is_equal(flux.latest, current)
            newer |= {flux.latest} if is_equal else set()
        if order.by is not PolicyOrder.SEMVER and not {*known}.issuperset(found):
            yield f"not taken: {told}"
        # Versions are read as leniently as Flux does, or more so, and out of its range too.
        if {tag for tag in found if tag in known} != newer:
            yield f"wanted {newer}: {told}"
        ordered = [tag for tag in found if tag in known]
        if any(flux.is_newer(low, high) for high, low in pairwise(ordered)):
            yield f"not in order: {told}"
        if flux.latest and flux.latest in found and found[0] != flux.latest:
            yield f"not first: {told}"


@pytest.mark.parametrize(
    "seeds", [range(1000), pytest.param(range(1000, 20_000), marks=pytest.mark.prove)]
)
def test_candidates_are_what_flux_selects(seeds: Sequence[int]) -> None:
    """RELB-03: each tag that Flux would select instead of the current one, and no other."""
    selections = [_make_selection(Random(seed)) for seed in seeds]
    wrong = [
        text
        for selection, answers in zip(selections, select(selections), strict=True)
        for text in _list_wrong(Flux(selection, answers), _read_order(selection))
    ]

    assert wrong[:10] == []
