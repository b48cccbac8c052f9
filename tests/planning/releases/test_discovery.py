"""Which releases join the list, and which stay on it."""

from datetime import timedelta

import msgspec
import pytest

from rollout_operator.model.release_plan import PolicyReading
from rollout_operator.model.releases import Release, ReleaseMetadata, ReleaseSpec, ReleaseStatus
from rollout_operator.planning.candidates import (
    MOST_RELEASES,
    discover,
    forget,
    needs_metadata,
    retain_releases,
)
from tests.planning.releases.builders import START, entry, releases

AGES = {"0.1.0": 10, "0.2.0": 8, "0.3.0": 2, "0.4.0": 0}


def aged(**others: int | None) -> tuple[Release, ...]:
    """Return four releases by their age in days; None for one without a time."""
    ages = {**AGES, **{f"0.{key[1]}.0": age for key, age in others.items()}}
    return tuple(
        Release(tag=tag, created=None if age is None else START - timedelta(days=age))
        for tag, age in ages.items()
    )


@pytest.mark.parametrize(
    ("known", "history", "least", "first"),
    [
        pytest.param(aged(), "4 3", 2, 3, id="RT-96 what is deployed, and young"),
        pytest.param(aged(), "4 3 2", 2, 2, id="RT-97 since the oldest that is deployed"),
        pytest.param(aged(), "4 3", 10, 1, id="RT-98 at least so many"),
        pytest.param((), "", 1, 9, id="RT-99 nothing"),
        pytest.param(aged(v1=None), "4 3", 2, 3, id="RT-100 one without a time"),
        pytest.param(aged(), "9 4 3", 2, 3, id="RT-101 an unknown tag is deployed"),
        pytest.param(aged(v3=9, v4=9), "4 3", 0, 3, id="RT-102 all old, two deployed"),
        pytest.param(aged(v3=9, v4=9), "", 0, 9, id="RT-102 all old, none deployed"),
        pytest.param(aged(v1=1, v2=1), "", 0, 1, id="RT-103 all young"),
        pytest.param(aged(v3=9, v4=9), "", 1, 4, id="RT-104 all old, at least one"),
        pytest.param(aged(), "2 2 1", 0, 1, id="RT-105 one deployed twice"),
        pytest.param(aged(v2=None), "", 0, 2, id="RT-106 one without a time is not old"),
        pytest.param(aged(v2=6), "", 1, 2, id="RT-107 one within the time"),
    ],
)
def test_which_stay(known: tuple[Release, ...], history: str, least: int, first: int) -> None:
    """REL-84."""
    deployed = {f"0.{one}.0" for one in history.split()}
    kept = retain_releases(known, deployed, horizon=START - timedelta(days=7), least=least)

    assert [one.tag for one in kept] == [tag for tag in AGES if int(tag[2]) >= first][: len(known)]


def test_the_list_has_an_end() -> None:
    """RELB-22."""
    known = tuple(Release(tag=f"{number}") for number in range(MOST_RELEASES + 5))

    kept = retain_releases(known, {"0"}, horizon=START, least=2 * MOST_RELEASES)
    assert (len(kept), kept[0].tag) == (MOST_RELEASES, "5")


def test_what_the_policy_selects_is_not_forgotten() -> None:
    """RELB-22: it would join again as the newest of all."""
    spec = ReleaseSpec(policy_name="app", least_available=1, retention=timedelta(days=10**6))
    known = ReleaseStatus(available_releases=aged(), history=(entry("0.4.0"),))

    assert forget(known, spec, "0.2.0", START).available_releases_count == 4
    spec = msgspec.structs.replace(spec, retention=timedelta(days=1))
    assert forget(known, spec, None, START).available_releases_count == 1
    assert forget(known, spec, "0.2.0", START).available_releases_count == 3


def test_what_is_known_of_a_release() -> None:
    """REL-34, REL-35, RELB-04: it keeps its place, and a tag that moves is reported."""
    status, events = discover(
        ReleaseStatus(available_releases=releases("1 2")),
        PolicyReading(latest="1", digest="sha256:a"),
        {"1": ReleaseMetadata(digest="sha256:a", revision="r", title="t")},
    )
    assert status.available_releases == (
        Release(tag="1", digest="sha256:a", revision="r"), Release(tag="2")
    )  # fmt: skip
    assert (status.title, events) == ("t", ())
    moved, events = discover(status, PolicyReading(latest="1", digest="sha256:b"), {})
    # What was said of the image before is no news of this one: the registry is called.
    assert moved.available_releases[0] == Release(tag="1", digest="sha256:b")
    assert needs_metadata(moved, "1", "sha256:b")
    assert [one.reason for one in events] == ["ReleaseDigestChanged"]
    assert discover(moved, PolicyReading(latest="1"), {}) == (moved, ())
    assert discover(moved, PolicyReading(), {}) == (moved, ())
    known = ReleaseStatus(available_releases=(Release(tag="1", version="v"),))
    first, _ = discover(known, PolicyReading(latest="1", digest="sha256:a"), {})
    assert first.available_releases == (Release(tag="1", digest="sha256:a", version="v"),)
    added, _ = discover(moved, PolicyReading(latest="3"), {"3": None})
    assert added.available_releases[-1] == Release(tag="3")


def test_the_status_describes_the_release_that_is_selected() -> None:
    """REL-36: what an image does not say is said no more, and without an answer all stays."""
    described = ReleaseMetadata(
        digest="1", artifact_type="t", source="s", title="a", description="d"
    )
    policy = PolicyReading(latest="1")
    status, _ = discover(ReleaseStatus(), policy, {"1": described})
    assert (status.artifact_type, status.source, status.title, status.description) == (
        "t", "s", "a", "d"
    )  # fmt: skip
    for answer in ({}, {"1": None}):
        assert discover(status, policy, answer)[0] == status
    silent, _ = discover(status, policy, {"1": ReleaseMetadata(digest="1", title="b")})
    assert (silent.artifact_type, silent.source, silent.title, silent.description) == (
        None, None, "b", None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("known", "digest", "is_needed"),
    [
        pytest.param(None, None, True, id="a new tag"),
        pytest.param(Release(tag="1"), None, True, id="the registry did not answer"),
        pytest.param(Release(tag="1", digest="d"), "d", True, id="the digest is the policy's"),
        pytest.param(Release(tag="1", digest="d", version="1"), "d", False, id="all is on record"),
        pytest.param(Release(tag="1", digest="d", revision="r"), None, False, id="no digest said"),
        pytest.param(Release(tag="1", digest="d", version="1"), "e", True, id="a tag that moved"),
    ],
)
def test_registries_are_queried_about_what_is_not_on_record(
    known: Release | None, digest: str | None, is_needed: bool
) -> None:
    """RELB-01: so that a process that begins anew reads nothing that it knew."""
    status = ReleaseStatus(available_releases=() if known is None else (known,))
    assert needs_metadata(status, "1", digest) is is_needed
