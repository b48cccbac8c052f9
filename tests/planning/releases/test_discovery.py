"""Which releases join the list, and which stay on it."""

from datetime import timedelta

import msgspec

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

DAY = timedelta(days=1)


def test_the_list_has_an_end() -> None:
    """RELB-22."""
    known = tuple(Release(tag=f"{number}") for number in range(MOST_RELEASES + 5))

    kept = retain_releases(known, {"0"}, horizon=START, least=2 * MOST_RELEASES)
    assert (len(kept), kept[0].tag) == (MOST_RELEASES, "5")


def test_what_the_policy_selects_is_not_forgotten() -> None:
    """RELB-22: it would join again as the newest of all."""
    spec = ReleaseSpec(policy_name="app", least_available=1, retention=10**6 * DAY)
    ages = {"0.1.0": 10, "0.2.0": 8, "0.3.0": 2, "0.4.0": 0}
    aged = tuple(Release(tag=tag, created=START - age * DAY) for tag, age in ages.items())
    known = ReleaseStatus(available_releases=aged, history=(entry("0.4.0"),))

    assert forget(known, spec, "0.2.0", START).available_releases_count == 4
    spec = msgspec.structs.replace(spec, retention=DAY)
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
