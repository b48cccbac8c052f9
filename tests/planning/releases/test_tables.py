"""Which releases may come next, and what is written into Flux: a case a line, in `tables`."""

import re
import shlex
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from rollout_operator.model.names import InvalidInput
from rollout_operator.releases.model.plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    AnnotationProblem,
    ApplyTag,
    FluxObject,
    FluxProgress,
    FluxReference,
    FluxTarget,
    FluxWrite,
    HealthCheck,
    PolicyReading,
    ReleasePlan,
)
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    AnnouncedReleases,
    CheckSelector,
    FailedHealthCheck,
    PolicyOrder,
    Release,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseSpec,
    ReleaseStatus,
    TagOrder,
)
from rollout_operator.releases.planning.bake import BlockedCode, assess_health, list_checks
from rollout_operator.releases.planning.candidates import (
    HOLDING,
    MOST_RELEASES,
    assess_gates,
    choose_candidates,
    discover,
    find_version_key,
    forget,
    is_superseded,
    list_gates,
    needs_metadata,
    retain_releases,
)
from rollout_operator.releases.planning.flux import (
    RELEASED,
    list_targets,
    map_flux_waits,
    name_manager,
    plan_due_writes,
    plan_flux_writes,
)
from rollout_operator.releases.planning.schedules import get_time_zone
from tests.planning.releases.builders import (
    START,
    check,
    entry,
    gate,
    head,
    read_selector,
    releases,
    rollout,
)
from tests.planning.releases.stage import ReleaseStage
from tests.stories import check_stories, check_tables

SEMVER, ALPHABETICAL, NUMERICAL = PolicyOrder
ORDERS: Final = {
    "semver": TagOrder(by=SEMVER),
    "numbers": TagOrder(by=NUMERICAL),
    "least": TagOrder(by=NUMERICAL, is_descending=True),
    "texts": TagOrder(by=ALPHABETICAL),
    "first": TagOrder(by=ALPHABETICAL, is_descending=True),
    "hashed": TagOrder(
        by=SEMVER, pattern=r"^(?P<v>[0-9]+\.[0-9]+\.[0-9]+)-[0-9a-f]{7}$", extract="$v"
    ),
    "flavour": TagOrder(by=SEMVER, pattern="^(?P<pg>[0-9]+)-(?P<v>.*)$", extract="$v"),
    "dated": TagOrder(by=SEMVER, pattern="^[0-9]{8}-v(?P<v>.*)$", extract="$v"),
    "built": TagOrder(by=NUMERICAL, pattern="^main-[0-9a-f]+-(?P<n>[0-9]+)$", extract="$n"),
    "bad": TagOrder(by=SEMVER, problem="bad"),
}


def show_candidates(text: str) -> str:
    words = text.split()
    given = dict(word.split("=") for word in words if "=" in word)
    tags = [word for word in words if "=" not in word and word != "kuberik"]
    compat = KUBERIK if "kuberik" in words else OURS
    known = AnnouncedReleases(
        available=releases(" ".join(tags)),
        current=given.get("current") or None,
        latest=given.get("latest"),
        order=ORDERS.get(given.get("order", "semver")),
    )
    if bypass := given.get("bypass"):
        return "not newer" if is_superseded(bypass, known, compat) else "newer"
    found = choose_candidates(known, compat)
    unknown = ["which are newer is unknown"] if found.is_path_unknown else []
    return "; ".join([_join(found.releases), *unknown])


def show_versions(text: str) -> str:
    tags = [tag.replace("\\n", "\n").format(long="1" * 257) for tag in shlex.split(text)]
    keys = [find_version_key(tag) for tag in tags]
    if not any(keys):
        return "none"
    found: list[str] = []
    for low, high in pairwise(keys):
        assert low is not None
        assert high is not None
        found.append("<" if low < high else "=" if low == high else ">")
    return " ".join(dict.fromkeys(found))


def show_gates(text: str) -> str:
    """`2 1; gate a closed allowed=1,2; bypass 1; hold TEXT` has candidates first."""
    first, *commands = text.split(";")
    gates: list[ReleaseGate] = []
    given: dict[str, str] = {}
    for command in filter(None, map(str.strip, commands)):
        word, *rest = shlex.split(command)
        if word == "gate":
            gates.append(_read_gate(rest))
        else:
            given[word] = " ".join(rest)
    holds = (given["hold"],) if "hold" in given else ()
    verdict = assess_gates(releases(first), list_gates(head(), gates), given.get("bypass"), holds)
    assert verdict.is_passing is (verdict.code not in HOLDING)
    assert verdict.text
    passed, allowed = _join(verdict.passed), _join(verdict.allowed)
    parts = [str(verdict.code), passed, *[f"by version {allowed}"] * (allowed != passed)]
    if "bypass" in given:
        parts.append("bypass needed" if verdict.is_bypass_needed else "bypass not needed")
    for one in verdict.summaries:
        versions = "" if one.allowed_versions is None else f" of {' '.join(one.allowed_versions)}"
        bypassed = ", bypassed" if one.bypass_gates else ""
        said = f": {one.message}" if "say" in given or one.message == "no number" else ""
        parts.append(f"{one.name} {'open' if one.passing else 'closed'}{versions}{bypassed}{said}")
    return "; ".join([*parts, *[verdict.text] * ("say" in given)])


def _read_gate(words: list[str]) -> ReleaseGate:
    given = dict(word.split("=") for word in words if "=" in word)
    [name] = [word for word in words if word != "closed" and "=" not in word] or ["gate"]
    allowed = given.pop("allowed").replace(",", " ") if "allowed" in given else None
    problem = given.pop("problem", "")
    one = gate(name, passing="closed" not in words and not problem, allowed=allowed, **given)
    return msgspec.structs.replace(one, problem=problem)


def _join(found: tuple[Release, ...]) -> str:
    return " ".join(one.tag for one in found) or "none"


def flux_object(kind: str, **fields: Any) -> FluxObject:
    """Return an OCIRepository, or a Kustomization of it."""
    is_source = kind == "oci"
    source = None if is_source else FluxReference(kind=OCI_REPOSITORY, namespace="prod", name="app")
    defaults = {
        "kind": OCI_REPOSITORY if is_source else KUSTOMIZATION,
        "head": head("app"),
        "api_version": f"{'source' if is_source else 'kustomize'}.toolkit.fluxcd.io/v1",
        "source": source,
    }
    return FluxObject(**{**defaults, **fields})


def show_writes(text: str) -> str:
    kind, *words = text.split()
    claims = dict(word.split("@") for word in words if "@" in word)
    bad = claims.pop("bad", None)
    pairs = (word.split("<") for word in words if "<" in word)
    item = flux_object(
        kind,
        head=msgspec.structs.replace(head("app"), is_terminating="going" in words),
        rollouts=claims,
        values=dict(word.split("=") for word in words if "=" in word),
        writers={name: tuple(_name(one) for one in text.split(",")) for name, text in pairs},
        problems=() if bad is None else (AnnotationProblem(rollout=bad, text="bad"),),
    )
    found = plan_flux_writes("web", "2", [item])
    shown = [_show_write(one) for one in found.writes]
    if "say" in words:
        bodies = [f"{one.text}\n{msgspec.json.encode(one.body).decode()}" for one in found.writes]
        return "\n".join(bodies)
    return "; ".join([*shown, *(f"problem {one}" for one in found.problems)]) or "nothing"


def _name(writer: str) -> str:
    short = {"released": RELEASED, "kuberik": "rollout-controller"}
    return short.get(writer, name_manager(writer) if writer in ("web", "api") else writer)


def _show_write(write: FluxWrite) -> str:
    """Return code, method with `!` where it is forced, manager, and what it writes."""
    spec: Any = write.body.get("spec", {})
    inner = spec.get("ref", spec.get("postBuild", {}).get("substitute", {}))
    values = " ".join(f"{key}={value}" for key, value in inner.items())
    manager = write.manager.removeprefix("rollout-controller")
    sign = "!" if write.is_forced else ""
    return f"{write.code} {write.method.name.lower()}{sign} {manager} {values}".rstrip()


def show_waits(text: str) -> str:
    items = [] if text == "none" else [_read_progress(one) for one in text.split("; ")]
    waits = map_flux_waits("web", "2", items)
    return "; ".join(f"{kind} prod/{name}: {why}" for (kind, name), why in waits.items()) or "none"


def _read_progress(text: str) -> FluxObject:
    kind, revision, *words = shlex.split(text)
    given = dict(word.split("=") for word in words if "=" in word)
    progress = FluxProgress(
        observed_generation=int(given.get("observed", 3)),
        is_ready="unready" not in words,
        is_suspended="suspended" in words,
        message=given.get("message", ""),
        failed_generation=int(given.get("failed", 0)),
        revision="" if revision == "none" else revision,
    )
    rollout = given.get("of", "web" if kind == "oci" else "")
    item = flux_object(
        kind,
        head=head("app", generation=3),
        rollouts={"tag": rollout} if rollout else {},
        progress=progress,
    )
    if "source" in given and item.source is not None:
        source = msgspec.structs.replace(item.source, name=given["source"])
        return msgspec.structs.replace(item, source=source)
    return item


def show_targets(text: str) -> str:
    """`targets 1; oci app tag@app tag=1 at=1` are places of a tag; `due 2 applies; oci ...` writes.

    A place has a name, claims of Rollouts, values, and the revision it is at.
    """
    first, *items = text.split("; ")
    word, tag, *words = first.split()
    objects = [_read_place(*item.split()) for item in items]
    if word == "targets":
        found = list_targets("app", None if tag == "none" else tag, objects)
        return "\n".join(
            f"{one.kind} {one.name} {one.variable or 'tag'}={one.tag} {one.waiting_for}".rstrip()
            for one in found
        )
    place = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="1")
    actions = (ApplyTag(target=place, tag=tag),) * ("applies" in words)
    history = () if tag == "none" else (entry(tag),)
    plan = ReleasePlan(status=ReleaseStatus(history=history), actions=actions)
    due = plan_due_writes(rollout(is_suspended="suspended" in words), plan, objects)
    return " ".join(one.code for one in due.writes) or "nothing"


def _read_place(kind: str, name: str, *words: str) -> FluxObject:
    values = dict(word.split("=") for word in words if "=" in word)
    revision = f"{values.pop('at', '1')}@sha256:0"
    return flux_object(
        kind,
        head=msgspec.structs.replace(head(name), is_terminating="going" in words),
        rollouts=dict(word.split("@") for word in words if "@" in word),
        values=values,
        progress=FluxProgress(observed_generation=1, is_ready=True, revision=revision),
    )


DESCRIBED: Final = ("artifact_type", "source", "title", "description")
TEAMS: Final = {"prod": {"team": "shop"}, "infra": {"team": "platform"}}
CHECKS: Final = (
    check("z", labels={"app": "a"}),
    check("b", labels={"app": "b"}),
    check("a", labels={"app": "a"}, namespace="infra"),
    check("lost", labels={"app": "a"}, namespace="gone"),
)


def show_selected(text: str) -> str:
    """`app=a in team=platform` selects checks, and namespaces; `all` selects each."""
    if text == "nothing":
        return _join_keys(list_checks(head(), None, CHECKS, TEAMS))
    wanted, _, spaces = text.partition(" in ")
    namespaces = read_selector(spaces) if spaces else None
    selector = CheckSelector(selector=read_selector(wanted), namespaces=namespaces)
    return _join_keys(list_checks(head(), selector, CHECKS, TEAMS))


def _join_keys(checks: Sequence[HealthCheck]) -> str:
    return " ".join(one.head.key for one in checks) or "none"


def show_health(text: str) -> str:
    """`a=Unhealthy:down dev/b=; a` are checks, and those whose failure does not count."""
    before, _, unblocked = text.partition(";")
    checks: list[HealthCheck] = []
    for word in [] if before.strip() == "none" else before.split():
        key, status, message = re.findall(r"^(.+)=(\w*):?(\w*)$", word)[0]
        namespace, _, name = key.rpartition("/")
        one = check(name, status, message=message or None, namespace=namespace or "prod")
        checks.append(one)
    failed = tuple(FailedHealthCheck(name=one, namespace="prod") for one in unblocked.split())
    verdict = assess_health(checks, failed)
    assert verdict.is_blocking is (verdict.code is BlockedCode.UNHEALTHY)
    return f"{'blocks' if verdict.is_blocking else 'goes on'}: {verdict.text}"


def show_kept(text: str) -> str:
    """`1:10 2: deployed 2 least 1` are tags with their ages in days, or without a time."""
    before, _, after = text.partition(" deployed")
    deployed, _, least = after.rpartition(" least ")
    known = [
        Release(tag=tag, created=START - timedelta(days=int(age)) if age else None)
        for tag, _, age in (word.partition(":") for word in before.split() if word != "none")
    ]
    horizon = START - timedelta(days=7)
    return _join(retain_releases(known, {*deployed.split()}, horizon=horizon, least=int(least)))


def show_needs(text: str) -> str:
    """`digest=d version=1, d` is what is known of a release, and the digest that is announced."""
    record, _, digest = text.partition(", ")
    fields: dict[str, Any] = dict(word.split("=") for word in record.split() if "=" in word)
    known = () if record == "unknown" else (Release(tag="1", **fields),)
    status = ReleaseStatus(available_releases=known)
    return "asked" if needs_metadata(status, "1", digest or None) else "on record"


def show_discovery(text: str) -> str:
    """`1 2 / 1 d / revision=r` are known tags, what is announced, and what the registry says of it.

    A known one has fields as `1,version=v`; `none` is no answer, `nothing` no announcement.
    """
    before, announced, *said = text.split(" / ")
    known = tuple(_read_release(word) for word in before.split() if word != "none")
    tag, *digest = announced.split()
    policy = PolicyReading(latest=None if tag == "nothing" else tag, digest="".join(digest) or None)
    answers = dict.fromkeys([tag] * len(said), _read_metadata("".join(said)))
    status, events = discover(ReleaseStatus(available_releases=known), policy, answers)
    found = ((one.tag, one.digest, one.version, one.revision) for one in status.available_releases)
    shown = [" ".join(filter(None, one)) for one in found]
    kept = {name: getattr(status, name) for name in DESCRIBED}
    shown += [f"{name} {text}" for name, text in kept.items() if text]
    shown += [one.reason for one in events]
    asked = needs_metadata(status, tag, policy.digest)
    # Without an answer all stays, and an image that says less takes away what another one said.
    assert discover(status, policy, {tag: None})[0] == status
    silent, _ = discover(status, policy, {tag: ReleaseMetadata(digest="1", title="b")})
    assert tag == "nothing" or [getattr(silent, name) for name in DESCRIBED].count(None) == 3
    return "; ".join([*shown, *["the registry is asked"] * asked])


def _read_release(word: str) -> Release:
    tag, *fields = word.split(",")
    given: dict[str, Any] = dict(one.split("=") for one in fields)
    return Release(tag=tag, **given)


def _read_metadata(text: str) -> ReleaseMetadata | None:
    if text in ("", "none"):
        return None
    given: dict[str, Any] = dict(word.split("=") for word in text.split())
    return ReleaseMetadata(**given)


def show_zone(text: str) -> str:
    """The zone that a name finds; `searched` where a loader is asked for what is none."""
    name = {"parts": "/".join("a" * 400), "packages": f"{'.'.join('a' * 400)}/b"}.get(text, text)
    name = name.replace("\\n", "\n").replace("\\0", "\0").strip('"').replace("long", "a" * 65)
    asked: list[str] = []

    def load(name: str) -> ZoneInfo:
        asked.append(name)
        return ZoneInfo(name)

    try:
        found = f"{get_time_zone(name, load)}"
    except InvalidInput as error:
        found = f"{error}"[:60]
    return f"{found}{'' if asked else ' (not searched)'}"


test_story = check_stories(__file__, bake=ReleaseStage, deploy=ReleaseStage, flux=ReleaseStage)


test_case = check_tables(
    __file__,
    "tables",
    candidates=show_candidates,
    versions=show_versions,
    gates=show_gates,
    writes=show_writes,
    waits=show_waits,
    targets=show_targets,
    selected=show_selected,
    health=show_health,
    kept=show_kept,
    needs=show_needs,
    zones=show_zone,
    discovery=show_discovery,
)


def test_the_list_has_an_end() -> None:
    """RELB-22."""
    known = tuple(Release(tag=f"{number}") for number in range(MOST_RELEASES + 5))

    kept = retain_releases(known, {"0"}, horizon=START, least=2 * MOST_RELEASES)
    assert (len(kept), kept[0].tag) == (MOST_RELEASES, "5")


def test_what_the_policy_selects_is_not_forgotten() -> None:
    """RELB-22: it would join again as the newest of all."""
    day = timedelta(days=1)
    spec = ReleaseSpec(policy_name="app", least_available=1, retention=10**6 * day)
    ages = {"0.1.0": 10, "0.2.0": 8, "0.3.0": 2, "0.4.0": 0}
    aged = tuple(Release(tag=tag, created=START - age * day) for tag, age in ages.items())
    known = ReleaseStatus(available_releases=aged, history=(entry("0.4.0"),))

    assert forget(known, spec, "0.2.0", START).available_releases_count == 4
    spec = msgspec.structs.replace(spec, retention=day)
    assert forget(known, spec, None, START).available_releases_count == 1
    assert forget(known, spec, "0.2.0", START).available_releases_count == 3
