"""Which release is requested by name, and which is left out for its past."""

from itertools import pairwise
from typing import Any

import pytest

from rollout_operator.model.releases import (
    KUBERIK,
    OURS,
    AnnouncedReleases,
    BakeStatus,
    ConsumedIntent,
    PolicyOrder,
    Release,
    ReleaseIntents,
    ReleaseSpec,
    ReleaseStatus,
    TagOrder,
)
from rollout_operator.planning.candidates import (
    ManualRequest,
    choose_candidates,
    consume,
    find_manual,
    find_version_key,
    is_done_already,
    is_superseded,
    list_excluded,
    list_left_over,
    without_left_over,
)
from tests.planning.releases.builders import entry, releases, rollout

KNOWN = releases("1.0.0 2.0.0")
FORCE = "rollout.kuberik.com/force-deploy"
USER = "rollout.kuberik.com/deploy-user"


@pytest.mark.parametrize(
    ("wanted", "forced", "expected"),
    [
        pytest.param(None, None, None, id="REL-44 nothing"),
        pytest.param(None, "", None, id="REL-44 an empty annotation"),
        pytest.param("9.9.9", None, ManualRequest(tag="9.9.9"), id="RT-09 a pin of any tag"),
        pytest.param(None, "2.0.0", ManualRequest(tag="2.0.0"), id="RT-61 a known release"),
        pytest.param(
            None, "3.0.0",
            ManualRequest(problem='force-deploy: "3.0.0" is none of the available releases'),
            id="RT-63 an unknown one",
        ),
        pytest.param("1.0.0", "3.0.0", ManualRequest(tag="1.0.0"), id="RT-64 the pin goes first"),
    ],
)  # fmt: skip
def test_what_is_requested_by_name(
    wanted: str | None, forced: str | None, expected: ManualRequest | None
) -> None:
    """REL-46."""
    spec = ReleaseSpec(policy_name="app", wanted_version=wanted)

    assert find_manual(spec, ReleaseIntents(force_deploy=forced), KNOWN) == expected


@pytest.mark.parametrize(
    ("wanted", "forced", "current", "is_done"),
    [
        (None, "1.0.0", "1.0.0", True),
        (None, "2.0.0", "1.0.0", False),
        ("1.0.0", "1.0.0", "1.0.0", False),
        (None, "1.0.0", None, False),
        (None, None, "1.0.0", False),
        (None, "", "", False),
    ],
)
def test_what_is_deployed_already_need_not_be_forced(
    wanted: str | None, forced: str | None, current: str | None, is_done: bool
) -> None:
    """RELB-09; below a pin the annotation stays (REL-48)."""
    spec = ReleaseSpec(policy_name="app", wanted_version=wanted)
    deployed = None if current is None else entry(current)

    assert is_done_already(spec, ReleaseIntents(force_deploy=forced), deployed) is is_done


@pytest.mark.parametrize(
    ("history", "unblock", "excluded"),
    [
        ("1", None, ""),
        ("1 2F", None, "2"),
        ("1 2F 2", None, "2"),
        ("1 2 2F", None, ""),
        ("1 2F", "true", ""),
        ("1 2F", "yes", "2"),
    ],
)
def test_a_release_that_failed_is_not_deployed_again_by_itself(
    history: str, unblock: str | None, excluded: str
) -> None:
    """RELB-24: after a pin went back from it, and was removed."""
    past = tuple(
        entry(one.strip("F"), BakeStatus.FAILED if "F" in one else BakeStatus.SUCCEEDED)
        for one in history.split()
    )
    intents = ReleaseIntents(unblock_failed=unblock)

    found = list_excluded(releases("3 2"), past, intents, OURS)
    assert " ".join(one.tag for one in found) == excluded
    assert list_excluded(releases("3 2"), past, intents, KUBERIK) == ()


def test_what_had_its_effect_is_not_applied_twice() -> None:
    """RELB-10: a crash came before its annotation was removed. Another value is another intent."""
    requested = ReleaseIntents(force_deploy="2.0.0", deploy_user="ann", retry="")
    consumed = (
        ConsumedIntent(annotation=FORCE, value="2.0.0"),
        ConsumedIntent(annotation=USER, value="bob"),
        ConsumedIntent(annotation="other", value=""),
    )
    known = rollout(intents=requested, status=ReleaseStatus(consumed_intents=consumed))

    assert list_left_over(known) == consumed[:1]
    assert without_left_over(known) == ReleaseIntents(deploy_user="ann", retry="")


def test_only_annotations_that_are_there_are_recorded() -> None:
    """RELB-10."""
    requested = ReleaseIntents(force_deploy="2.0.0")

    assert consume(requested, (FORCE, USER)) == (ConsumedIntent(annotation=FORCE, value="2.0.0"),)


def by(kind: PolicyOrder, pattern: str = "", extract: str = "", **more: Any) -> TagOrder:
    return TagOrder(by=kind, pattern=pattern, extract=extract, **more)


SEMVER, ALPHABETICAL, NUMERICAL = PolicyOrder
VERSIONS, NUMBERS, LEAST = by(SEMVER), by(NUMERICAL), by(NUMERICAL, is_descending=True)
TEXTS, FIRST = by(ALPHABETICAL), by(ALPHABETICAL, is_descending=True)
HASHED = by(SEMVER, r"^(?P<v>[0-9]+\.[0-9]+\.[0-9]+)-[0-9a-f]{7}$", "$v")
FLAVOUR = by(SEMVER, "^(?P<pg>[0-9]+)-(?P<v>.*)$", "$v")
DATED = by(SEMVER, "^[0-9]{8}-v(?P<v>.*)$", "$v")
BUILT = by(NUMERICAL, "^main-[0-9a-f]+-(?P<n>[0-9]+)$", "$n")


def announced(
    tags: str,
    current: str | None = None,
    latest: str | None = None,
    order: TagOrder | None = VERSIONS,
) -> AnnouncedReleases:
    """Return what is known: `announced("1.0.0 1.1.0", current="1.0.0")`, the oldest first."""
    releases = tuple(Release(tag=tag) for tag in tags.split())
    return AnnouncedReleases(available=releases, current=current, latest=latest, order=order)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(
            announced("3.0.0 2.0.0 1.0.0", latest="3.0.0"), "3.0.0 2.0.0 1.0.0",
            id="RT-60 the highest, not the last",
        ),
        pytest.param(announced("1.1.0 1.2.0", "mine"), "", id="RT-13 a tag of one's own"),
        pytest.param(
            announced("1.1.0 1.3.0 1.2.0", "1.1.5"), "1.3.0 1.2.0",
            id="RELB-03 a version that was never announced is compared",
        ),
        pytest.param(
            announced("1.0.0 3.0.0 2.0.0", "2.0.0", "3.0.0"), "3.0.0",
            id="RELB-03 announced before the current one, and above it",
        ),
        pytest.param(
            announced("1.0.0 2.0.0 3.0.0", "2.0.0", "1.0.0"), "",
            id="RELB-03 a policy that goes back offers nothing",
        ),
        pytest.param(
            announced("1.0.0 2.0.0 3.0.0", "1.0.0", "2.0.0"), "2.0.0",
            id="RELB-03 nothing above what the policy selects",
        ),
        pytest.param(
            announced("1.0.0 3.0.0", "1.0.0"), "3.0.0",
            id="RELB-03 no upper bound while it selects nothing",
        ),
        pytest.param(
            announced("1.0.0 2.0.0-rc.1 2.0.0-rc.2 2.0.0", "2.0.0-rc.1", "2.0.0"),
            "2.0.0 2.0.0-rc.2", id="RELB-03 pre-releases",
        ),
        pytest.param(
            announced("1.0.0 1.0 v1 2.0.0+a 2.0.0+b", "1.0.0"), "2.0.0+b 2.0.0+a",
            id="RELB-03 equal versions are not newer, and keep their order",
        ),
        pytest.param(
            announced("nightly 1.0.0 main 2.0.0"), "2.0.0 1.0.0 main nightly",
            id="RELB-03 what is no version comes last",
        ),
        pytest.param(
            announced("old nightly 1.0.0 main", "nightly"), "1.0.0 main",
            id="RELB-03 after what is no version come versions, and what was announced later",
        ),
        pytest.param(
            announced("1.0.0 main", "main", "1.0.0"), "",
            id="RELB-03 what was announced before what is no version is no newer",
        ),
        pytest.param(announced("main", "1.0.0"), "", id="RELB-03 nor is it newer than a version"),
        pytest.param(announced("1.0.0", "1.0.0", "1.0.0"), "", id="RELB-03 up to date"),
        pytest.param(
            announced("3 1 2", order=None), "2 1 3",
            id="REL-41 before the first deployment all of them",
        ),
        pytest.param(
            announced("3 1 2", "3", "3", order=None), "2 1",
            id="REL-41 after the current one, whatever the policy selects",
        ),
        pytest.param(
            announced("1.2.3-abc1234 1.2.4-0123456", "1.2.3-abc1234", "1.2.4-0123456", HASHED),
            "1.2.4-0123456", id="RELB-03 a hash that looks like a number",
        ),
        pytest.param(
            announced("15-3.3.0 14-3.4.0", "15-3.3.0", "14-3.4.0", FLAVOUR),
            "14-3.4.0", id="RELB-03 a version behind the version of something else",
        ),
        pytest.param(
            announced("20260105-v1.9 20260101-v2.0", "20260105-v1.9", "20260101-v2.0", DATED),
            "20260101-v2.0", id="RELB-03 a version behind a date",
        ),
        pytest.param(
            announced("20260101-v2.0 20260105-v1.9", "20260101-v2.0", "20260105-v1.9", DATED),
            "", id="RELB-03 the greater tag with the older version",
        ),
        pytest.param(
            announced("1.2.4-aaaaaaa 1.2.4-bbbbbbb 1.2.4-ccccccc", "1.2.4-aaaaaaa", "1.2.4-bbbbbbb",
                      HASHED),
            "1.2.4-bbbbbbb", id="RELB-03 a version that is built anew: the build that is selected",
        ),
        pytest.param(
            announced("1.2.4-aaaaaaa 1.2.4-bbbbbbb", "1.2.4-bbbbbbb", "1.2.4-aaaaaaa", HASHED),
            "", id="RELB-03 and no build that was there before it",
        ),
        pytest.param(
            announced("1.2.3-aaaaaaa 1.2.4-bbbbbbb 1.2.4-ccccccc", "1.2.3-aaaaaaa", "1.2.4-bbbbbbb",
                      HASHED),
            "1.2.4-bbbbbbb 1.2.4-ccccccc", id="RELB-03 of equal versions the selected one first",
        ),
        pytest.param(
            announced("1.2.3-abc1234 main 1.2.4", "1.2.3-abc1234", "1.2.4-0123456", HASHED),
            "", id="RELB-03 tags that its pattern does not match",
        ),
        pytest.param(
            announced("main-a-9 main-b-10 main-c-11", "main-a-9", "main-b-10", BUILT),
            "main-b-10", id="RELB-03 numbers, and not above what is selected",
        ),
        pytest.param(announced("10 9", "10", "9", NUMBERS), "", id="RELB-03 a smaller one"),
        pytest.param(announced("9 10", "9", "10", NUMBERS), "10", id="RELB-03 a greater one"),
        pytest.param(announced("9 8 10", "9", "8", LEAST), "8", id="RELB-03 the smallest number"),
        pytest.param(announced("b a c", "b", "c", TEXTS), "c", id="RELB-03 the last text"),
        pytest.param(announced("9 10", "9", "10", TEXTS), "", id="RELB-03 texts are not numbers"),
        pytest.param(announced("ab a b", "ab", "a", FIRST), "a", id="RELB-03 the first text"),
        pytest.param(announced("a ab", "a", "ab", FIRST), "", id="RELB-03 a longer text is older"),
        pytest.param(announced("2 x 3", "2", "3", NUMBERS), "3", id="RELB-03 what is no number"),
        pytest.param(
            announced("1 2", None, "2", by(SEMVER, problem="bad")), "2 1",
            id="RELB-03 a first deployment needs no order",
        ),
        pytest.param(announced("3 1 2", "4", order=None), "", id="REL-41 it was never announced"),
        pytest.param(announced(""), "", id="REL-41 nothing was announced"),
    ],
)  # fmt: skip
def test_candidates(known: AnnouncedReleases, expected: str) -> None:
    assert " ".join(one.tag for one in choose_candidates(known).releases) == expected


@pytest.mark.parametrize(
    ("known", "is_unknown"),
    [
        (announced("1.1.0", "mine"), True),
        (announced("1.1.0", "1.0.0"), False),
        (announced("1.1.0 mine", "mine"), False),
        (announced("1.1.0", "1.0.0", order=None), True),
        (announced("1.1.0", "1.1.0", order=None), False),
        (announced("2", "1", order=NUMBERS), False),
        (announced("2", "x", order=NUMBERS), True),
        (announced("1.0.0 1.1.0", "1.0.0", order=by(SEMVER, problem="bad")), True),
        (announced("1.0.0 main", "1.0.0", "main"), True),
        (announced("1.0.0 main", "main", "main"), False),
        (announced("1.0.0 main", "main", "1.0.0"), True),
        (announced("main 1.0.0", "main", "1.0.0"), False),
        (announced("1.1.0"), False),
        (announced(""), False),
        (announced("", order=None), False),
    ],
)
def test_that_no_release_can_be_compared_is_reported(
    known: AnnouncedReleases, is_unknown: bool
) -> None:
    """RELB-05."""
    assert choose_candidates(known).is_path_unknown is is_unknown


@pytest.mark.parametrize(
    ("tag", "known", "is_old"),
    [
        ("1.0.0", announced("1.0.0 2.0.0", "2.0.0"), True),
        ("3.0.0", announced("1.0.0 3.0.0 2.0.0", "2.0.0"), False),
        ("2", announced("2.0.0", "2.0.0"), True),
        ("14-3.4.0", announced("15-3.3.0 14-3.4.0", "15-3.3.0", order=FLAVOUR), False),
        ("15-3.3.0", announced("15-3.3.0 14-3.4.0", "14-3.4.0", order=FLAVOUR), True),
        ("1.0.0-aaaaaaa", announced("1.0.0-aaaaaaa 1.0.0-b", "1.0.0-b", order=HASHED), True),
        ("1.0.0-b", announced("1.0.0-aaaaaaa 1.0.0-b", "1.0.0-aaaaaaa", order=HASHED), False),
        ("9", announced("10 9", "10", order=NUMBERS), True),
        ("9", announced("10 9", "10", order=LEAST), False),
        ("1", announced("1 2", "2", order=None), True),
        ("3", announced("1 2", "2", order=None), False),
        ("1", announced("1"), False),
    ],
)
def test_a_bypass_of_what_is_not_newer(tag: str, known: AnnouncedReleases, is_old: bool) -> None:
    """RELB-11, RELB-03."""
    assert is_superseded(tag, known, OURS) is is_old


def test_the_order_of_announcements_where_the_original_is_requested() -> None:
    """RT-60, REL-41."""
    found = choose_candidates(announced("3.0.0 2.0.0 1.0.0", latest="3.0.0"), KUBERIK)

    assert [one.tag for one in found.releases] == ["1.0.0", "2.0.0", "3.0.0"]


def test_versions_in_the_order_of_the_standard() -> None:
    """RELB-03, REL-43: chapter 11 of Semantic Versioning, and numbers as numbers."""
    ordered = [
        *("0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta"),
        *("1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "v1.0.1", "1.2", "1.10.0"),
        *("2-0", "2-a", "2", "02.1", "10", "99999999999999999999.0.0"),
    ]
    keys = [find_version_key(tag) for tag in ordered]

    assert all(low is not None and high is not None and low < high for low, high in pairwise(keys))


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1.0.0"), ("v1.2", "1.2.0"), ("1.0.0+a", "1.0.0+b"), ("01.2", "1.2.0")]
)
def test_spellings_of_one_version(one: str, other: str) -> None:
    assert find_version_key(one) == find_version_key(other) is not None


@pytest.mark.parametrize(
    "tag",
    [
        *("", "v", "V1.0.0", "main", "1.", "1.2.3.4", "1.0.0-", "1.0.0+", "1.0.0-a..b", "-1", " 1"),
        *("1.0.0-01", "1.0.0\n", "1.0.0_b", "\u0661.0.0", "1" * 257, "sha-1.0.0"),
    ],
)
def test_what_is_no_version(tag: str) -> None:
    assert find_version_key(tag) is None
