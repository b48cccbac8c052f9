"""What an earlier downscale of a set means for the next: D-24, SI-10, SI-11, SI-16, W-15."""

import dataclasses
from typing import Final

import pytest

from rollout_operator.model.downscale import Decrease, Key, Target, Underway
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.reservation import (
    DownscaleSnapshot,
    EarlierDownscale,
    plan_reservation,
)
from tests.builders import group, sts_uid, with_pods, zone

TARGET: Final = Target(port=8080, path="prepare-downscale", service="service-name")
OTHER: Final = Target(port=9090, path="prepare-downscale", service="service-name")


def key(start: int = 5, end: int = 3, target: Target | None = TARGET) -> Key:
    return Key(set_uid=sts_uid("a"), replicas_from=start, replicas_to=end, target=target)


def earlier(
    found: Key | None = None, *, prepared: tuple[int, ...] = (4, 3), **changes: bool
) -> EarlierDownscale:
    """Return the same downscale, allowed and not written yet."""
    states = dict.fromkeys(("is_preparing", "is_persisted", "is_adopted", "is_late"), False)
    return EarlierDownscale(
        key=found or key(),
        prepared={Uid(f"uid-a-{ordinal}") for ordinal in prepared},
        **(states | changes),
    )


def plan(
    known: EarlierDownscale | None, *, has_times: bool = True, is_grouped: bool = True, **why: bool
) -> str | tuple[list[str], bool]:
    """Return the code of a refusal, or who is called and whether the first answer stands."""
    zones = group(with_pods(zone("a", "lllll"), ip="10.0.0.1"), zone("b", "lllll"))
    if why.get("other_underway"):
        underway = Underway(zone="zone-b", replicas_from=5, replicas_to=4)
        zones = dataclasses.replace(zones, downscale=underway)
    decided = plan_reservation(
        DownscaleSnapshot(
            decrease=Decrease(
                resource="statefulsets",
                namespace="test",
                name="zone-a",
                replicas_from=5,
                replicas_to=3,
            ),
            key=key(),
            target=TARGET,
            zone=zones.zones[0],
            group=zones,
            is_grouped=is_grouped,
            times={} if has_times else None,
            source=TimesSource.ANNOTATIONS,
            earlier=known,
            cluster_domain="cluster.local.",
        )
    )
    if isinstance(decided, Verdict):
        assert decided.code == 429, "it is to be tried again"
        return decided.reason.code
    assert [endpoint.pod for endpoint in decided.pods.endpoints] == ["zone-a-4", "zone-a-3"]
    return [endpoint.pod for endpoint in decided.missing], decided.is_repeated


BOTH: Final = (["zone-a-4", "zone-a-3"], False)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(None, BOTH, id="the first"),
        pytest.param(earlier(), ([], True), id="D-24 SI-16 the same: no pod is called twice"),
        pytest.param(
            earlier(prepared=(3,)),
            (["zone-a-4"], True),
            id="D-24 only those which have not confirmed",
        ),
        pytest.param(
            earlier(key(target=None)), ([], True), id="the same, of a release without targets"
        ),
        pytest.param(earlier(is_preparing=True), ([], True), id="the same, while pods are called"),
        pytest.param(earlier(is_adopted=True), BOTH, id="LI-05 of another process: judged anew"),
        pytest.param(earlier(is_late=True), BOTH, id="D-24 so late it is another request"),
        pytest.param(earlier(is_persisted=True), BOTH, id="it has happened"),
        pytest.param(
            earlier(key(end=4)), Code.OTHER_DOWNSCALE_UNDERWAY, id="W-15 another range may persist"
        ),
        pytest.param(earlier(key(end=4), is_persisted=True), BOTH, id="another range has happened"),
        pytest.param(
            earlier(key(end=4, target=None)),
            Code.OTHER_DOWNSCALE_UNDERWAY,
            id="another range, whose target is not known",
        ),
        pytest.param(
            earlier(key(target=OTHER)), BOTH, id="D-24 the set was changed since: it cannot persist"
        ),
        pytest.param(
            earlier(key(target=OTHER), is_preparing=True),
            Code.OTHER_DOWNSCALE_UNDERWAY,
            id="SI-10 pods are being called elsewhere",
        ),
    ],
)
def test_an_earlier_downscale_of_the_set(
    known: EarlierDownscale | None, expected: str | tuple[list[str], bool]
) -> None:
    assert plan(known) == expected


def test_the_rest_of_the_group_has_a_say() -> None:
    """SI-11: but what was granted once holds the others back, not they it."""
    assert plan(None, other_underway=True) == Code.OTHER_DOWNSCALE_UNDERWAY
    assert plan(earlier(), other_underway=True) == ([], True)
    assert plan(None, other_underway=True, is_grouped=False) == BOTH


def test_times_that_were_not_read_are_not_judged_by() -> None:
    """The same was sent before, and was settled while the group was read."""
    assert plan(earlier(), has_times=False) == ([], True)
    assert plan(None, has_times=False) == Code.CHANGED_MEANWHILE
    assert plan(None, has_times=False, is_grouped=False) == BOTH
