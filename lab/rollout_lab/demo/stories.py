"""The stories: what a person does in each, and what has to be seen before the next step.

Beside them what a reader can do in any of them, each by one key.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.objects import (
    APART,
    DELAY,
    FIRST,
    FOLLOWING,
    GROUP,
    GUARDED,
    MIRROR,
    NAMESPACE,
    PAUSE_OF_POLICY,
    PERSON,
    PREPARED,
    allow_downscale,
    cordon,
    create_policy,
    create_template,
    name_node,
    pause,
    scale,
)
from rollout_lab.demo.stage import NEXT, QUIT, DemoRun, Story
from rollout_lab.drains import Draining
from rollout_lab.flux import label_owner
from rollout_lab.model.fields import child, children, condition_of, name_of, number, text
from rollout_lab.model.request import ApiRequest, patch
from rollout_lab.releases import gate, group_check, list_release
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.trace.lines import LOUD, explain_pod
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import ROLLOUT_GATES, ROLLOUTS, JsonObject
from rollout_operator.model.lease import RETRY_PERIOD
from rollout_operator.model.names import PAUSED
from rollout_operator.model.units import format_duration

# For reading what the operator says, before the story goes on.
READ: Final = timedelta(seconds=3)
# Two renewals are missing by then.
MISSED: Final = 2 * RETRY_PERIOD + timedelta(seconds=1)
# As `kubectl drain` waits five seconds: pods of a story are faster.
RETRY: Final = timedelta(seconds=2)
# Until a pod, a node or an operator that was lost is there again.
REPAIR: Final = timedelta(seconds=4)
GOOD: Final = "v2"
BAD: Final = "v2"
MENDED: Final = "v3"
_GATE: Final = "freeze"
# In a cluster these are minutes.
_BAKE: Final = timedelta(seconds=3)


async def _roll_out(stage: DemoRun) -> None:
    await stage.change_all(GOOD)
    await until_done(stage)


async def _roll_out_bad(stage: DemoRun) -> None:
    await stage.change_all(BAD)
    await stage.until("a pod that crashes", lambda: any(map(_is_broken, stage.list_pods())))
    await stage.rest(READ)
    await stage.change_all(MENDED)
    await until_done(stage)


async def _lose_pod(stage: DemoRun) -> None:
    first, last = stage.settings.names[0], stage.settings.names[-1]
    await stage.change_all(GOOD)
    await stage.until("a zone that moves", lambda: stage.is_moving(last))
    stage.fail_pod(f"{first}-0")
    await stage.rest(READ)
    stage.mend_pod(f"{first}-0")
    await until_done(stage)


async def _pause_zone(stage: DemoRun) -> None:
    names = stage.settings.names
    zone = names[len(names) // 2]
    await stage.act(f"pause {zone} (an annotation)", pause(zone, is_paused=True))
    await stage.change_all(GOOD)
    others = [name for name in names if name != zone]
    await stage.until("all other zones done", lambda: all(map(stage.is_done, others)))
    await stage.rest(READ)
    await stage.act(f"release {zone}", pause(zone, is_paused=False))
    await until_done(stage)


async def _forbid_downscale(stage: DemoRun) -> None:
    zone, fewer = stage.settings.names[-1], stage.settings.pods - 1
    await stage.rest(READ / 3)
    await stage.act(f"scale {zone} to {fewer}", scale(zone, fewer))
    await stage.rest(READ)
    await stage.act(f"take the label no-downscale off {zone}", allow_downscale(zone))
    await stage.act(f"scale {zone} to {fewer}", scale(zone, fewer))
    await _until_scaled(stage, fewer, zone)


async def _prepare_downscale(stage: DemoRun) -> None:
    first, last = stage.settings.names[0], stage.settings.names[-1]
    fewer = stage.settings.pods - 1
    await stage.rest(READ / 3)
    await stage.act(f"scale {last} to {fewer}", scale(last, fewer))
    await _until_scaled(stage, fewer, last)
    await stage.rest(READ / 3)
    if first != last:
        await stage.act(f"scale {first} to {fewer}, too", scale(first, fewer))
        await stage.rest(READ)


async def _follow(stage: DemoRun) -> None:
    zone, pods = stage.settings.names[0], stage.settings.pods
    await stage.rest(READ / 3)
    for replicas in (pods - 1, pods):
        await stage.act(f"scale {zone} to {replicas}", scale(zone, replicas))
        await _until_scaled(stage, replicas, *stage.settings.names)


async def _drain_beside(stage: DemoRun) -> None:
    first, second, *_ = stage.settings.names
    await stage.change_all(GOOD)
    await stage.until("another zone that moves", lambda: stage.is_moving(second))
    await drain(stage, name_node(first))
    await until_done(stage)
    await stage.rest(READ / 2)


async def _delay_downscale(stage: DemoRun) -> None:
    fewer = stage.settings.pods - 1
    await stage.rest(READ / 3)
    text = f"scale ReplicaTemplate {GROUP} to {fewer}"
    await stage.act(text, scale(GROUP, fewer, REPLICA_TEMPLATES))
    await _until_scaled(stage, fewer, *stage.settings.names)


async def _start_without_room(stage: DemoRun) -> None:
    zone = stage.settings.names[0]
    nodes = [name_node(zone, number) for number in (1, 2)]
    await stage.act(f"cordon all nodes of {zone}", *map(cordon, nodes))
    await stage.change_all(GOOD)
    await stage.until("a pod that waits", lambda: stage.is_moving(zone))
    await stage.rest(2 * READ)
    await stage.act(f"uncordon {nodes[0]}", cordon(nodes[0], is_cordoned=False))
    await until_done(stage)


async def _fail_over(stage: DemoRun) -> None:
    names = stage.settings.names
    await stage.change_all(GOOD)
    await stage.until("a zone that moves", lambda: stage.is_moving(names[len(names) // 2]))
    stage.lose_operator()
    await stage.until("a lease that is not renewed", lambda: _lease_age(stage) > MISSED)
    missed = f"not renewed for {MISSED.total_seconds():g} s: no replica acts until another takes it"
    stage.sandbox.say("the Lease", missed)
    await stage.until("another replica that acts", lambda: stage.acting is not None)
    await until_done(stage)


def _lease_age(stage: DemoRun) -> timedelta:
    renewed = datetime.fromisoformat(text(stage.get_lease(), "spec", "renewTime"))
    return stage.sandbox.clock().now() - renewed


async def _obey_policy(stage: DemoRun) -> None:
    first = stage.settings.names[-1]
    # Each pause may last a second longer.
    pods = stage.settings.zones * stage.settings.pods
    pauses = pods * (PAUSE_OF_POLICY + timedelta(seconds=2))
    await stage.change_all(GOOD)
    await stage.until(f"{first} done", lambda: stage.is_done(first), spare=pauses)
    stage.fail_pod(f"{first}-0")
    # Longer than the pause would have lasted.
    await stage.rest(2 * READ)
    stage.mend_pod(f"{first}-0")
    await until_done(stage, spare=pauses)


async def _release(stage: DemoRun) -> None:
    await stage.publish(GROUP, GOOD)
    await stage.until("a release that is held", lambda: _is_held(stage))
    await stage.rest(READ)
    opened = patch(ROLLOUT_GATES, _GATE, {"spec": {"passing": True}}, NAMESPACE, PERSON)
    await stage.act("open the gate freeze", opened)
    await stage.until("a release that has proven itself", lambda: _is_deployed(stage, GOOD))


async def _release_first(stage: DemoRun) -> None:
    """Have the version that the zones have already be the first release, then close the gate."""
    stage.sandbox.start_flux()
    await stage.publish(GROUP, FIRST)
    await stage.until("the first release", lambda: _is_deployed(stage, FIRST))
    await stage.sandbox.call(gate(_GATE, GROUP, is_passing=False).create(NAMESPACE, PERSON))


def _is_held(stage: DemoRun) -> bool:
    return text(condition_of(_get_rollout(stage), "GatesPassing"), "status") == "False"


def _is_deployed(stage: DemoRun, version: str) -> bool:
    entry: JsonObject = next(iter(children(_get_rollout(stage), "status", "history")), {})
    deployed = (text(entry, "version", "tag"), text(entry, "bakeStatus"))
    return deployed == (version, "Succeeded")


def _get_rollout(stage: DemoRun) -> JsonObject:
    return stage.sandbox.api.get(ROLLOUTS, NAMESPACE, GROUP) or {}


def _is_broken(pod: JsonObject) -> bool:
    return explain_pod(pod) in LOUD


async def until_done(stage: DemoRun, spare: timedelta = timedelta(0)) -> None:
    """Wait until all zones are rolled out, and recorded so."""
    await stage.until("all zones done", stage.is_at_rest, spare=spare)


async def _until_scaled(stage: DemoRun, replicas: int, *zones: str) -> None:
    """Wait until zones have so many pods, all of them ready, and let the reader see it."""

    def is_scaled() -> bool:
        sets = [sts for sts in stage.list_zones() if name_of(sts) in zones]
        wanted = {number(sts, "spec", "replicas") for sts in sets}
        return stage.is_at_rest() and wanted == {replicas}

    # Times are kept in whole seconds, none of them too short.
    spare = stage.settings.zones * (max(APART, DELAY) + READ)
    await stage.until(f"{', '.join(zones)} with {replicas} pods", is_scaled, spare)
    await stage.rest(READ / 2)


def _list_releases(settings: DemoSettings) -> list[ApiRequest]:
    bake = {"bakeTime": format_duration(settings.scale(_BAKE))}
    check = group_check("zones", GROUP, GROUP)
    return [obj.create(NAMESPACE, PERSON) for obj in [*list_release(GROUP, bake), check]]


SCENARIOS: Final[Mapping[str, Story]] = {
    "rollout": Story(
        title="A rollout",
        about="All zones get a new template, v2. The operator replaces the pods of one zone"
        " after the other, and only while all other zones are whole.",
        proof="Every pod was replaced, and no zone lost one while another zone missed one.",
        play=_roll_out,
    ),
    "bad-revision": Story(
        title="A bad revision",
        about="v2 crashes. The operator stops as soon as the allowed number of pods is"
        " down, and says so; then v3 comes, and the broken pods go first.",
        proof="A bad version stopped in its first zone; with v3 the broken pods went first.",
        play=_roll_out_bad,
        bad_version=BAD,
    ),
    "pod-dies": Story(
        title="A pod dies",
        about="While the last zone moves, a pod of the first zone dies. The operator takes"
        " no further pod until it is back, and says what it waits for.",
        proof="While a pod of another zone was down, the operator took no pod.",
        play=_lose_pod,
    ),
    "paused-zone": Story(
        title="A paused zone",
        about="One zone is paused and keeps its pods while the others move to v2. When it"
        " is released, it follows.",
        proof="The paused zone kept its pods, and followed as soon as it was released.",
        play=_pause_zone,
    ),
    "forbidden-downscale": Story(
        title="A forbidden downscale",
        about="The zones carry the label no-downscale. The API server calls the operator,"
        " which refuses to take a pod away until the label is off.",
        proof="Refused while the label was on; allowed once it was off.",
        play=_forbid_downscale,
        labels=GUARDED,
        webhook="no-downscale",
    ),
    "prepared-downscale": Story(
        title="A prepared downscale",
        about="Before a zone loses a pod, the operator calls that pod over HTTP to prepare."
        " Another zone may lose one only 12 hours later.",
        proof="The pod was called before it went; the next zone has to wait 12 hours.",
        play=_prepare_downscale,
        labels=PREPARED,
        webhook="prepare-downscale",
    ),
    "following-zones": Story(
        title="Zones that follow",
        about="Each zone follows the zone before it: down five seconds later (in a cluster:"
        " hours), after its pods were called; up at once.",
        proof="All zones followed: down one by one, each after its pods were called; up at once.",
        play=_follow,
        labels=FOLLOWING,
        is_chain=True,
        webhook="prepare-downscale",
    ),
    "drained-node": Story(
        title="A drained node",
        about="A node of the first zone is drained while the other zones are rolled out."
        " Evictions are refused until it is their turn, and go on by themselves.",
        proof="The drain and the rollout took turns; no eviction went beyond the budget.",
        play=_drain_beside,
        has_evictions=True,
    ),
    "delayed-downscale": Story(
        title="A delayed downscale",
        about="All zones have the replicas of another object. When that is scaled down, pods are"
        " called first, and go after eight seconds of preparation (in a cluster: hours).",
        proof="Each pod was called first, and went only when its delay was over.",
        play=_delay_downscale,
        annotations=MIRROR,
        list_objects=lambda settings: [create_template(settings.pods)],
    ),
    "no-room": Story(
        title="Starting without room",
        about="The first zone has no room: its new pod cannot start. The operator takes no further"
        " pod until a node is given back, and says what it waits for.",
        proof="Without room for one pod, one pod was down; with it the rollout went on by itself.",
        play=_start_without_room,
    ),
    "failover": Story(
        title="A failover",
        about="Of two replicas of the operator one acts. It dies in mid-rollout: the other"
        " takes the Lease 15 s later and goes on where the first one stood.",
        proof="No pod went while no replica acted, and none went twice.",
        play=_fail_over,
        replicas=2,
    ),
    "policy": Story(
        title="Zones by policy",
        about="A MultiAZRollout lets the last zone go first, with a pause of two seconds after each"
        " batch. When a pod dies in a pause, that begins again once the pod is back.",
        proof="The zones went in the order of the policy, and no pause was shortened.",
        play=_obey_policy,
        args=("-multi-az-rollouts.enabled",),
        list_objects=lambda settings: [create_policy(settings)],
    ),
    "release": Story(
        title="A release",
        about="A Rollout takes v2 from the registry. It waits for a gate; then Flux applies it, the"
        " zones go one after the other, and it bakes once all of them are through.",
        proof="v2 went through its gate, Flux, the zones and its bake, in this order.",
        play=_release,
        args=("-releases.enabled", "-releases.metadata=none"),
        labels=label_owner(GROUP, NAMESPACE),
        list_objects=_list_releases,
        begin=_release_first,
    ),
}


# What a reader does


async def improvise(stage: DemoRun) -> str:
    """Do what the reader requests, until it is another story or the end; return which."""
    controls = stage.controls
    assert controls is not None, "no keys are read"
    stage.is_scripted = False
    async with TaskStack() as acts:
        under_way: list[str] = []
        while True:
            for key in controls.take():
                if key in (NEXT, QUIT):
                    return key
                stage.begin_anew()
                under_way.append(key)
                acts.start(MEANINGS[key], _carry_out(stage, key, under_way))
            await stage.tick()
            if not under_way and stage.is_at_rest():
                stage.show_totals()


async def _carry_out(stage: DemoRun, key: str, under_way: list[str]) -> None:
    try:
        await _ACTS[key][1](stage)
        await stage.rest(REPAIR / 2)
    finally:
        under_way.remove(key)


async def _change_image(stage: DemoRun) -> None:
    await stage.change_all(stage.next_version())


async def _break_image(stage: DemoRun) -> None:
    version = stage.next_version()
    stage.bad_versions.add(version)
    await stage.change_all(version)


async def _roll_back(stage: DemoRun) -> None:
    await stage.change_all(stage.last_good())


async def _kill_pod(stage: DemoRun) -> None:
    for pod in stage.list_up()[:1]:
        stage.fail_pod(pod)
        await stage.rest(REPAIR)
        # It may have been replaced meanwhile.
        with suppress(LookupError):
            stage.mend_pod(pod)


async def drain(stage: DemoRun, node: str) -> None:
    """Cordon a node and evict its pods, as `kubectl drain` does: again where it is refused."""
    await stage.act(f"drain {node}", cordon(node))
    draining = Draining(
        sandbox=stage.sandbox,
        what=f"the drain of {node}",
        nodes=[node],
        actor=PERSON,
        retry=stage.settings.scale(RETRY),
    )
    async with TaskStack() as tasks:
        tasks.start("drain", draining.run())
        while not tasks.list_dead():
            await stage.tick()


async def _drain_node(stage: DemoRun) -> None:
    node = name_node(stage.settings.names[0])
    await drain(stage, node)
    await stage.act(f"uncordon {node}", cordon(node, is_cordoned=False))


async def _scale_zone(stage: DemoRun) -> None:
    zone, pods = stage.list_zones()[-1], stage.settings.pods
    wanted = pods + 1 if number(zone, "spec", "replicas") <= pods else pods
    await stage.act(f"scale {name_of(zone)} to {wanted}", scale(name_of(zone), wanted))


async def _pause_or_release(stage: DemoRun) -> None:
    zone = stage.list_zones()[-1]
    is_paused = PAUSED in child(zone, "metadata", "annotations")
    name = name_of(zone)
    said = f"release {name}" if is_paused else f"pause {name} (an annotation)"
    await stage.act(said, pause(name, is_paused=not is_paused))


async def _kill_operator(stage: DemoRun) -> None:
    process = stage.acting
    if process is not None:
        stage.lose_operator()
        await stage.rest(REPAIR)
        stage.sandbox.say("kubelet", f"starts {process.name} again")
        process.start()


_ACTS: Final[Mapping[str, tuple[str, Callable[[DemoRun], Awaitable[None]]]]] = {
    "i": ("new image for all zones", _change_image),
    "b": ("bad image: its pods crash", _break_image),
    "r": ("roll back to the last good image", _roll_back),
    "k": ("kill a pod", _kill_pod),
    "d": ("drain a node", _drain_node),
    "s": ("scale the last zone up or down", _scale_zone),
    "p": ("pause or release the last zone", _pause_or_release),
    "o": ("kill the operator", _kill_operator),
}
MEANINGS: Final[Mapping[str, str]] = {key: meaning for key, (meaning, _) in _ACTS.items()}
