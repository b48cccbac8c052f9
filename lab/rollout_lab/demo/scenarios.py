"""The stories: what a person does in each, and what has to be seen before the next step.

How waiting, acting and showing work is decided in `stage`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from rollout_lab.demo import releases
from rollout_lab.demo.acts import drain
from rollout_lab.demo.objects import (
    APART,
    DELAY,
    FOLLOWING,
    GROUP,
    GUARDED,
    MIRRORED,
    PAUSE_OF_POLICY,
    PREPARED,
    allow_downscale,
    cordon,
    create_policy,
    name_node,
    pause,
    scale,
    scale_template,
)
from rollout_lab.demo.snapshot import DemoSnapshot, PodCell
from rollout_lab.demo.stage import SPARE, DemoRun, Story
from rollout_operator.model.lease import RETRY_PERIOD

# For reading what the operator says, before the story goes on.
READ: Final = timedelta(seconds=3)
# Two renewals are missing by then.
MISSED: Final = 2 * RETRY_PERIOD + timedelta(seconds=1)
GOOD: Final = "v2"
BAD: Final = "v2"
MENDED: Final = "v3"


async def roll_out(stage: DemoRun) -> None:
    """Play a plain rollout."""
    await stage.change_all(GOOD)
    await until_done(stage)


async def roll_out_bad(stage: DemoRun) -> None:
    """Play a revision that cannot start, and its correction."""
    await stage.change_all(BAD)
    await stage.until("a pod that crashes", lambda now: count_cells(now, PodCell.BROKEN) > 0)
    await stage.rest(READ)
    await stage.change_all(MENDED)
    await until_done(stage)


async def lose_pod(stage: DemoRun) -> None:
    """Play a pod that dies in a zone which is done, while another zone moves."""
    first, second = stage.settings.names[0], stage.settings.names[-1]
    await stage.change_all(GOOD)
    await stage.until("a zone that moves", lambda now: is_moving(now, second))
    stage.fail_pod(f"{first}-0")
    await stage.rest(READ)
    stage.mend_pod(f"{first}-0")
    await until_done(stage)


async def pause_zone(stage: DemoRun) -> None:
    """Play a zone that is paused for a while."""
    zone = stage.settings.names[stage.settings.zones // 2]
    await stage.act(f"pause {zone} (an annotation)", pause(zone, is_paused=True))
    await stage.change_all(GOOD)
    await stage.until(
        "all other zones done",
        lambda now: all(is_done(row.name, now) for row in now.rows if not row.is_paused),
    )
    await stage.rest(READ)
    await stage.act(f"release {zone}", pause(zone, is_paused=False))
    await until_done(stage)


async def forbid_downscale(stage: DemoRun) -> None:
    """Play a downscale that a label forbids."""
    zone, fewer = stage.settings.names[-1], stage.settings.pods - 1
    await stage.rest(READ / 3)
    await stage.act(f"scale {zone} to {fewer}", scale(zone, fewer))
    await stage.rest(READ)
    await stage.act(f"take the label no-downscale off {zone}", allow_downscale(zone))
    await stage.act(f"scale {zone} to {fewer}", scale(zone, fewer))
    await until_downscaled(stage, zone, fewer)


async def prepare_downscale(stage: DemoRun) -> None:
    """Play a downscale whose pods are called before, and another that comes too early."""
    zone, fewer = stage.settings.names[-1], stage.settings.pods - 1
    await stage.rest(READ / 3)
    await stage.act(f"scale {zone} to {fewer}", scale(zone, fewer))
    await until_downscaled(stage, zone, fewer)
    await stage.rest(READ / 3)
    other = stage.settings.names[0]
    if other != zone:
        await stage.act(f"scale {other} to {fewer}, too", scale(other, fewer))
        await stage.rest(READ)


async def follow(stage: DemoRun) -> None:
    """Play a zone that is scaled down and up again, and the others that follow it."""
    zone, pods = stage.settings.names[0], stage.settings.pods
    await stage.rest(READ / 3)
    await stage.act(f"scale {zone} to {pods - 1}", scale(zone, pods - 1))
    await until_all_have(stage, pods - 1)
    await stage.rest(READ / 2)
    await stage.act(f"scale {zone} to {pods}", scale(zone, pods))
    await until_all_have(stage, pods)
    await stage.rest(READ / 2)


async def drain_node(stage: DemoRun) -> None:
    """Play a node that is drained while other zones are rolled out."""
    first = stage.settings.names[0]
    await stage.change_all(GOOD)
    await stage.until(f"{first} done", lambda now: is_done(first, now))
    await drain(stage, name_node(first, 1))
    await until_done(stage)
    await stage.rest(READ / 2)


async def delay_downscale(stage: DemoRun) -> None:
    """Play a downscale of all zones whose pods are called, and then wait before they go."""
    pods = stage.settings.pods
    await stage.rest(READ / 3)
    await stage.act(f"scale ReplicaTemplate {GROUP} to {pods - 1}", scale_template(pods - 1))
    await until_all_have(stage, pods - 1)
    await stage.rest(READ / 2)


async def start_without_room(stage: DemoRun) -> None:
    """Play a rollout in a zone that has no room for its new pod, until a node is given back."""
    zone = stage.settings.names[0]
    nodes = [name_node(zone, number) for number in (1, 2)]
    await stage.act(f"cordon all nodes of {zone}", *(cordon(node) for node in nodes))
    await stage.change_all(GOOD)
    await stage.until("a pod that waits", lambda now: is_moving(now, zone))
    await stage.rest(2 * READ)
    await stage.act(f"uncordon {nodes[0]}", cordon(nodes[0], is_cordoned=False))
    await until_done(stage)


async def fail_over(stage: DemoRun) -> None:
    """Play the death of the replica that acts, in mid-rollout."""
    zone = stage.settings.names[stage.settings.zones // 2]
    await stage.change_all(GOOD)
    await stage.until("a zone that moves", lambda now: is_moving(now, zone))
    stage.lose_operator()
    await stage.until("a lease that is not renewed", lambda now: stage.lease_age() > MISSED)
    missed = f"not renewed for {MISSED.total_seconds():g} s: no replica acts until another takes it"
    stage.sandbox.say("the Lease", missed)
    await stage.until("another replica that acts", lambda now: stage.acting is not None)
    await until_done(stage)


async def obey_policy(stage: DemoRun) -> None:
    """Play a rollout by a policy, and a pod that dies in one of its pauses."""
    first = stage.settings.names[-1]
    await stage.change_all(GOOD)
    await stage.until(f"{first} done", lambda now: is_done(first, now), spare=_pauses(stage))
    stage.fail_pod(f"{first}-0")
    # Longer than the pause would have lasted.
    await stage.rest(2 * READ)
    stage.mend_pod(f"{first}-0")
    await until_done(stage, spare=_pauses(stage))


async def release(stage: DemoRun) -> None:
    """Play a version that a gate holds, then Flux, the zones and a bake."""
    await stage.publish(GROUP, GOOD)
    await stage.until("a release that is held", lambda now: releases.is_held(stage.sandbox))
    await stage.rest(READ)
    await stage.act("open the gate freeze", releases.open_gate())
    await stage.until(
        "a release that has proven itself",
        lambda now: releases.is_deployed(stage.sandbox, GOOD),
    )


def _pauses(stage: DemoRun) -> timedelta:
    """Return the time for the pauses of a policy; each may last a second longer."""
    pods = stage.settings.zones * stage.settings.pods
    return SPARE + pods * (PAUSE_OF_POLICY + timedelta(seconds=2))


async def until_done(stage: DemoRun, spare: timedelta = SPARE) -> None:
    """Wait until all zones are rolled out, and recorded so."""
    await stage.until(
        "all zones done",
        lambda now: all(is_done(row.name, now) for row in now.rows),
        spare=spare,
    )


async def until_downscaled(stage: DemoRun, zone: str, replicas: int) -> None:
    """Wait until the pods above `replicas` are gone and the status says so."""
    await stage.until(
        f"{zone} with {replicas} pods",
        lambda now: any(
            row.name == zone and len(row.cells) == replicas == row.existing for row in now.rows
        ),
    )
    await stage.rest(READ / 2)


async def until_all_have(stage: DemoRun, replicas: int) -> None:
    """Wait until every zone has so many pods, and all of them are ready."""
    await stage.until(
        f"all zones with {replicas} pods",
        lambda now: all(
            len(row.cells) == replicas == row.existing == row.ready for row in now.rows
        ),
        # Times are kept in whole seconds, none of them too short.
        spare=SPARE + stage.settings.zones * (max(APART, DELAY) + READ),
    )


def is_done(zone: str, now: DemoSnapshot) -> bool:
    """Return whether a zone is rolled out: every pod, and the revision in its status."""
    return any(
        row.name == zone
        and row.current == row.update
        and all(cell.state is PodCell.NEW for cell in row.cells)
        for row in now.rows
    )


def is_moving(now: DemoSnapshot, zone: str) -> bool:
    """Return whether a zone has at least one pod which is being replaced."""
    ways = (PodCell.ENDING, PodCell.GONE, PodCell.STARTING)
    return any(
        row.name == zone and any(cell.state in ways for cell in row.cells) for row in now.rows
    )


def count_cells(now: DemoSnapshot, state: PodCell) -> int:
    """Return how many pods are in a state."""
    return sum(cell.state is state for cell in now.cells)


_ALL: Final = (
    Story(
        name="rollout",
        title="A rollout",
        about="All zones get a new template, v2. The operator replaces the pods of one zone"
        " after the other, and only while all other zones are whole.",
        proof="Every pod was replaced, and no zone lost one while another zone missed one.",
        play=roll_out,
    ),
    Story(
        name="bad-revision",
        title="A bad revision",
        about="v2 crashes. The operator stops as soon as the allowed number of pods is"
        " down, and says so; then v3 comes, and the broken pods go first.",
        proof="A bad version stopped in its first zone; with v3 the broken pods went first.",
        play=roll_out_bad,
        bad_version=BAD,
    ),
    Story(
        name="pod-dies",
        title="A pod dies",
        about="While the last zone moves, a pod of the first zone dies. The operator takes"
        " no further pod until it is back, and says what it waits for.",
        proof="While a pod of another zone was down, the operator took no pod.",
        play=lose_pod,
    ),
    Story(
        name="paused-zone",
        title="A paused zone",
        about="One zone is paused and keeps its pods while the others move to v2. When it"
        " is released, it follows.",
        proof="The paused zone kept its pods, and followed as soon as it was released.",
        play=pause_zone,
    ),
    Story(
        name="forbidden-downscale",
        title="A forbidden downscale",
        about="The zones carry the label no-downscale. The API server calls the operator,"
        " which refuses to take a pod away until the label is off.",
        proof="Refused while the label was on; allowed once it was off.",
        play=forbid_downscale,
        labels=GUARDED,
        webhook="no-downscale",
    ),
    Story(
        name="prepared-downscale",
        title="A prepared downscale",
        about="Before a zone loses a pod, the operator calls that pod over HTTP to prepare."
        " Another zone may lose one only 12 hours later.",
        proof="The pod was called before it went; the next zone has to wait 12 hours.",
        play=prepare_downscale,
        labels=PREPARED,
        webhook="prepare-downscale",
    ),
    Story(
        name="following-zones",
        title="Zones that follow",
        about="Each zone follows the zone before it: down five seconds later (in a cluster:"
        " hours), after its pods were called; up at once.",
        proof="All zones followed: down one by one, each after its pods were called; up at once.",
        play=follow,
        labels=FOLLOWING,
        is_chain=True,
        webhook="prepare-downscale",
    ),
    Story(
        name="drained-node",
        title="A drained node",
        about="A node of the first zone is drained while the other zones are rolled out."
        " Evictions are refused until it is their turn, and go on by themselves.",
        proof="The drain and the rollout took turns; no eviction went beyond the budget.",
        play=drain_node,
    ),
    Story(
        name="delayed-downscale",
        title="A delayed downscale",
        about="All zones have the replicas of another object. When that is scaled down, pods are"
        " called first, and go after eight seconds of preparation (in a cluster: hours).",
        proof="Each pod was called first, and went only when its delay was over.",
        play=delay_downscale,
        labels=MIRRORED,
        is_mirror=True,
    ),
    Story(
        name="no-room",
        title="Starting without room",
        about="The first zone has no room: its new pod cannot start. The operator takes no further"
        " pod until a node is given back, and says what it waits for.",
        proof="Without room for one pod, one pod was down; with it the rollout went on by itself.",
        play=start_without_room,
    ),
    Story(
        name="failover",
        title="A failover",
        about="Of two replicas of the operator one acts. It dies in mid-rollout: the other"
        " takes the Lease 15 s later and goes on where the first one stood.",
        proof="No pod went while no replica acted, and none went twice.",
        play=fail_over,
        replicas=2,
    ),
    Story(
        name="policy",
        title="Zones by policy",
        about="A MultiAZRollout lets the last zone go first, with a pause of two seconds after each"
        " batch. When a pod dies in a pause, that begins again once the pod is back.",
        proof="The zones went in the order of the policy, and no pause was shortened.",
        play=obey_policy,
        has_policy=True,
        has_pauses=True,
        args=("-multi-az-rollouts.enabled",),
        list_objects=lambda settings: [create_policy(settings)],
    ),
    Story(
        name="release",
        title="A release",
        about="A Rollout takes v2 from the registry. It waits for a gate; then Flux applies it, the"
        " zones go one after the other, and it bakes once all of them are through.",
        proof="v2 went through its gate, Flux, the zones and its bake, in this order.",
        play=release,
        has_pauses=True,
        args=releases.RELEASING,
        labels=releases.APPLIED,
        list_objects=releases.list_objects,
        begin=releases.deploy_first,
        list_waits=releases.list_waits,
    ),
)
SCENARIOS: Final[Mapping[str, Story]] = {story.name: story for story in _ALL}
"""The stories by the word that selects them."""
