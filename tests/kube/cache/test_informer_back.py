"""Lists that go back: a server that lags, or was restored from a backup (FP-05, SI-09)."""

from collections.abc import Sequence

from rollout_operator.model.errors import Gone
from tests.kube.informer_rig import played
from tests.kube.scripted_watch import Listing, Wait, bookmark, page, pod
from tests.virtual_time import in_virtual_time

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)


def back(*versions: int) -> Sequence[Listing]:
    """Return lists of these versions; up to 50, the pod `a-0` is another."""
    return [[page(v, pod("a-0", 80 if v > 50 else 7))] for v in versions]


@in_virtual_time
async def test_fp05_a_lagging_server_is_read_again(lines: list[str]) -> None:
    rig = await played(8, back(90, 50, 95), [[GONE]])
    assert rig.stored() == "Pod@80", "the old list was not taken"
    assert rig.restarts("went_back") == 1
    assert rig.requested[-1] == "watch 95"
    assert any("metadata.resourceVersion 50 < 90" in line for line in lines)


@in_virtual_time
async def test_fp05_a_restored_server_is_believed_in_the_end(lines: list[str]) -> None:
    rig = await played(30, back(90, 50, 50, 50, 50), [[GONE]])
    assert rig.stored() == "Pod@7"
    assert [one for one in rig.requested if "watch" in one][1] == "watch 50"
    assert 4 < rig.api.lists[-1].at < 15
    assert sum("Accepting an older list" in line for line in lines) == 1


@in_virtual_time
async def test_fp05_lagging_now_and_then_is_not_a_restore() -> None:
    rig = await played(30, back(90, 50, 50, 95, 60, 60, 99), [[GONE], [GONE]])
    assert [call.version for call in rig.api.watches] == ["90", "95", "99"]


@in_virtual_time
async def test_a_bookmark_counts_as_seen_when_a_list_goes_back() -> None:
    rig = await played(10, back(10, 20, 41), [[Wait(2), bookmark(40), GONE]])
    assert [call.version for call in rig.api.watches] == ["10", "41"]
