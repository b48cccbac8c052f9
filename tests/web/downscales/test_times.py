"""Times that tenants write, from the first year to the last: nothing fails by any (SEC-25)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
import pytest

from rollout_operator.controllers.downscales import DownscaleController
from rollout_operator.guards.grants import is_recorded, read_record
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import DISRUPTION_RECORD, READY_TIME, InvalidInput
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.units import format_next_second, format_rfc3339, parse_rfc3339
from tests.builders import NOW
from tests.stories import check_tables
from tests.virtual_time import in_virtual_time
from tests.web.downscales.stage import DownscaleStage, pod

pytestmark = pytest.mark.thorough

FORGED: Final = "annotate a last-downscale {at}; record a-4 replicasFrom=6 replicasTo=5 at={at}"
RESTS: Final = "see; 180s > state"
# A process that runs finds them, or one that starts; the pod may be one that never goes.
FOUND: Final = (
    f"start; {FORGED}; {RESTS}",
    f"{FORGED}; crash; start; {RESTS}",
    f"start; going a-4; {FORGED}; {RESTS}",
    f"going a-4; {FORGED}; crash; start; {RESTS}",
)
BESIDE: Final = {
    "annotation": "zones wait=a; annotate b last-downscale {at}; start > review a 3",
    "entry": "zones wait=a tracker; map zone-b={at}; annotate b last-downscale {at}; start"
    " > review a 3",
}


async def show_time(at: str, lines: list[str]) -> str:
    async def play(*commands: str) -> str:
        stage = DownscaleStage(lines)
        found = await stage.play([one.replace("{at}", at) for one in commands])
        assert stage.recorded() == [] or "review" in commands[0]
        return found[0].partition("; ")[0]

    rests = sorted({await play(command) for command in FOUND})
    beside = [f"{name}: {await play(command, '60s')}" for name, command in BESIDE.items()]
    assert not [line for line in lines if "level=error" in line]
    return "; ".join([_read(at), *rests, *beside])


test_time = in_virtual_time(check_tables(__file__, times=show_time))


def _read(at: str) -> str:
    """Return what is read in a status, and in a record, which counts where it cannot be read."""
    raw = pod("zone-a", 1)
    raw["status"] = {
        "phase": "Running",
        "startTime": at,
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}],
    }
    record = {"uid": raw["metadata"]["uid"], "by": "x", "at": at}
    text = msgspec.json.encode(record).decode()
    raw["metadata"]["annotations"] = {DISRUPTION_RECORD: text, READY_TIME: at}
    found = decode_pod(msgspec.json.encode(raw))
    assert found.was_ready is False
    counts = "counts" if is_recorded(found, NOW) else "over"
    try:
        assert read_record(found)
    except InvalidInput:
        with pytest.raises(InvalidInput, match="no RFC 3339 time: not in the years 1 to 9998"):
            parse_rfc3339(at)
        return f"unread, {counts}"
    assert format_rfc3339(parse_rfc3339(at) + timedelta(days=300))
    assert format_next_second(parse_rfc3339(at))
    return counts


@in_virtual_time
async def test_sec25_a_set_whose_records_fail_by_a_bug_holds_no_start_up(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-25: the log names the set; the records of all others are read, and its own are kept."""
    stage = DownscaleStage(lines)
    adopt = DownscaleController._adopt

    def fail(self: DownscaleController, sts: StatefulSet, pods: Sequence[Pod]) -> None:
        if sts.name == "zone-a":
            raise ZeroDivisionError
        adopt(self, sts, pods)

    monkeypatch.setattr(DownscaleController, "_adopt", fail)
    [state, _] = await stage.play(["record a-4; record c-4; crash; start > state", "120s"])
    (line,) = [line for line in lines if "Cannot adopt" in line]
    assert "zone=zone-a" in line
    assert state.startswith("remembers c, ")
    assert stage.recorded() == ["zone-a-4"]
