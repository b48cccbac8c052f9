"""Whether and how a zone may be scaled down: a case a line in the texts."""

import shlex
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import (
    DOWNSCALE_INTENT,
    LAST_DOWNSCALE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    Uid,
)
from rollout_operator.model.objects import (
    Decrease,
    Endpoint,
    Key,
    Pod,
    StatefulSet,
    Target,
    Underway,
)
from rollout_operator.model.outcome import Severity, Verdict
from rollout_operator.model.scaling import Review, Scalable, TimesSource
from rollout_operator.model.units import format_next_second, parse_duration
from rollout_operator.planning.downscales import (
    DownscaleSnapshot,
    EarlierDownscale,
    assess_neighbours,
    choose_pods_to_prepare,
    choose_staying,
    find_recent_downscale,
    is_over,
    judge_downscale,
    plan_reservation,
)
from rollout_operator.planning.requests import (
    NoTarget,
    assess_no_downscale,
    assess_no_downscale_change,
    assess_prepare_change,
    assess_unprepared,
    differ_in_intent,
    explain_misplaced,
    find_intent,
    needs_intent,
    plan_delay_target,
    plan_endpoint,
    plan_target,
    render_intent,
)
from rollout_operator.pods import render_url
from tests.builders import NOW, group, pod, sts, sts_uid, with_pods, zone
from tests.planning.reviews import read_review, render_verdict
from tests.planning.tables import read_arguments, read_group, shorten
from tests.stories import check_tables

HOUR: Final = timedelta(hours=1)
IP: Final = "10.0.0.1"
TARGET: Final = Target(port=8080, path="prepare-downscale", service="service-name")
TARGETS: Final = {"other": replace(TARGET, port=9090), "none": None}
TARGETED: Final = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
CALLED: Final = Pod(
    namespace="default", name="test-4", uid=Uid("u4"), resource_version="1", ip="10.1.2.3"
)


def decrease(start: int = 5, end: int = 3) -> Decrease:
    return Decrease(
        resource="statefulsets", namespace="test", name="zone-a",
        replicas_from=start, replicas_to=end,
    )  # fmt: skip


def show_prepare(text: str) -> str:
    """Return who is called, who goes, and what is said of the others; or why it is refused."""
    statements = text.split("; ")
    counts = [one for one in statements if one.startswith("from ")]
    whole, *rest = [one for one in statements if one not in counts]
    case = read_group("; ".join([whole, f"pod zone-a-* ip={IP}", *rest])).zones[0]
    wanted = decrease(*map(int, counts[0].split()[1:])) if counts else decrease()
    found = choose_pods_to_prepare(wanted, case, TARGET, "cluster.local.")
    if isinstance(found, Verdict):
        return _show_refusal(found, f"{wanted.text} is not allowed because one or more pods failed"
                                    " to prepare for shutdown. ")  # fmt: skip
    assert all(one.host == f"{one.pod}.service-name.test.svc.cluster.local." and one.ip == IP
               for one in found.endpoints)  # fmt: skip
    uids = {one.name: one.uid for one in found.going}
    assert all(one.uid == uids[one.pod] for one in found.endpoints)
    called, going = ([_ordinal(name) for name in names] for names in (
        [one.pod for one in found.endpoints], [one.name for one in found.going]
    ))  # fmt: skip
    parts = [" ".join(["call", *called]), " ".join(["go", *going])]
    return "; ".join([*parts, *filter(None, [found.skipped])])


def _ordinal(name: str) -> str:
    return name.removeprefix("zone-a-")


def _show_refusal(verdict: Verdict, prefix: str) -> str:
    assert not verdict.is_allowed
    assert verdict.reason.severity is Severity.WARN
    text = verdict.reason.text
    assert text.startswith(prefix)
    status = f" {verdict.code}" if verdict.code else ""
    return f"{verdict.reason.code}{status}: {text.removeprefix(prefix)}"


SENTENCES: Final = {
    r"^zone_downscaled_lately: statefulset zone-(\w) was downscaled at (.*) and is labelled to wait"
    r" (\S+) between zone downscales": r"lately \1 at \2, to wait \3",
    r"^zone_left_short 429: statefulset zone-(\w) has (\d of \d) pods ready .*; zone-\w was deleted"
    r" or left while it was short, and counts until .* at most$": r"left \1: \2",
    r"^other_zone_not_ready: statefulset zone-(\w) has (\d) non-updated replicas and (\d)"
    " non-ready replicas$": r"short \1: \2 outdated, \3 not ready",
    "^bad_downscale_time: parsing downscale annotations failed. statefulset zone-": "bad ",
    r"\+0000 UTC": "UTC",
}


def show_rule(text: str) -> str:
    """Return who holds a downscale back; `seen b` was scaled down an hour ago as we know."""
    statements = text.split("; ")
    seen = {sts_uid(one[-1]): NOW - HOUR for one in statements if one.startswith("seen ")}
    case = read_group("; ".join(one for one in statements if not one.startswith("seen ")))
    found = assess_neighbours(decrease(3, 1), sts("a"), case, seen)
    if found is None:
        return "allowed"
    prefix = f"{decrease(3, 1).text} is not allowed because "
    return shorten([_show_refusal(found, prefix)], SENTENCES)[0]


def scaled_set(letter: str, *, ago: timedelta | None = None, **texts: str | None) -> StatefulSet:
    """Return a set; `ago` or `last` say when it was scaled down, `label` and `span` how to wait."""
    if ago is not None:
        texts["last"] = format_next_second(NOW - ago)
    known = {key: text for key, text in texts.items() if text is not None}
    labels = {MIN_TIME_BETWEEN_DOWNSCALES: known["label"]} if "label" in known else {}
    keys = {"last": LAST_DOWNSCALE, "span": MIN_TIME_BETWEEN_DOWNSCALES}
    annotations = {key: known[name] for name, key in keys.items() if name in known}
    return sts(letter, labels=labels, annotations=annotations)


def show_spacing(text: str) -> str:
    """Return which zone has to be waited for; `ago` is what a set says, `seen` what we know."""
    sets: list[StatefulSet] = []
    seen = {}
    for (letter, *plain), named in map(read_arguments, text.split("; ")):
        given = {key: str(value) for key, value in named.items()}
        if "seen" in given:
            seen[sts_uid(letter)] = NOW - parse_duration(given.pop("seen"))
        ago = parse_duration(given.pop("ago")) if "ago" in given else None
        if "gone" not in plain:
            sets.append(scaled_set(letter, ago=ago, **given))
    found = find_recent_downscale(sets[0], sets[1:], seen, NOW)
    return shorten([f"{found.code}: {found.why}"], SENTENCES)[0] if found else "allowed"


def show_request(text: str) -> str:
    word, _, rest = text.partition(" ")
    if word == "misplaced":
        given = read_review(f"1 {rest} -> 1").old
        assert isinstance(given, Scalable)
        found = explain_misplaced(given.labels, given.annotations, PREPARE_DOWNSCALE)
        return found or "nothing"
    is_free = rest.endswith("; free")
    review = read_review(rest.removesuffix("; free"))
    old = review.old
    if word == "prepare":
        return render_verdict(assess_prepare_change(review))
    if word == "alone":
        if isinstance(old, Scalable):
            old = replace(old, annotations=TARGETED, service_name="mock")
        alone = assess_unprepared(replace(review, old=old))
        return "the replica that leads decides" if alone is None else render_verdict(alone)
    labels = {} if is_free else {NO_DOWNSCALE: "true"}
    return render_verdict(judge_no_downscale(review, labels, fails_closed=word == "closed"))


def judge_no_downscale(
    review: Review, parent: Mapping[str, str], *, fails_closed: bool = False
) -> Verdict:
    """Return the whole answer of no-downscale; `parent` are the labels of a Scale's object."""
    change = assess_no_downscale_change(review, fails_closed=fails_closed)
    if isinstance(change, Verdict):
        return change
    assert isinstance(review.old, Scalable)
    if review.old.kind == "Scale":
        return assess_no_downscale(change, parent, {})
    return assess_no_downscale(change, review.old.labels, review.old.annotations)


def show_next(text: str) -> str:
    """Return who is called for the next downscale, or the code of its refusal."""
    words, *more = text.split("; ")
    plain, named = read_arguments(words)
    known = None
    if plain or named:
        states = ("is_preparing", "is_persisted", "is_adopted", "is_late", "is_elsewhere")
        known = EarlierDownscale(
            key=_key(int(str(named.get("to", 3))), str(named.get("target", ""))),
            prepared={Uid(f"uid-a-{one}") for one in str(named.get("prepared", "43"))},
            **{state: state.removeprefix("is_") in plain for state in states},
        )
    members = group(with_pods(zone("a", "lllll"), ip=IP), zone("b", "lllll"))
    if "underway" in more:
        other = Underway(zone="zone-b", replicas_from=5, replicas_to=4)
        members = structs.replace(members, downscale=other)
    found = plan_reservation(
        DownscaleSnapshot(
            decrease=decrease(),
            key=_key(3, ""),
            target=TARGET,
            zone=members.zones[0],
            group=members,
            is_grouped="ungrouped" not in more,
            times=None if "no times" in more else {},
            source=TimesSource.ANNOTATIONS,
            earlier=known,
            cluster_domain="cluster.local.",
        )
    )
    if isinstance(found, Verdict):
        return f"refused {found.reason.code} {found.code}"
    assert [one.pod for one in found.pods.endpoints] == ["zone-a-4", "zone-a-3"]
    missing = " ".join(["call", *(_ordinal(one.pod) for one in found.missing)])
    return f"{missing}; the first answer stands" if found.is_repeated else missing


def _key(end: int, target: str) -> Key:
    return Key(
        set_uid=sts_uid("a"), replicas_from=5, replicas_to=end, target=TARGETS.get(target, TARGET)
    )


def show_became(text: str) -> str:
    replicas, *may = text.split()
    key = Key(set_uid=sts_uid("a"), replicas_from=5, replicas_to=3)
    return judge_downscale(key, sts("a", int(replicas)), may_persist=bool(may)).name.lower()


def show_stays(text: str) -> str:
    """Return which pods are told that they stay; after `;` stands how pod 4 is now."""
    whole, *changes = text.split("; ")
    given, _, called = whole.partition(":")
    (replicas,), fields = read_arguments(given)
    ordinals = str(fields.pop("pods", "4,3,2,1,0")).split(",")
    pods = [pod("a", int(one), "l") for one in ordinals]
    if changes:
        pods = [pod("a", 4, "l", **read_arguments(changes[0])[1])]
    prepared = {Uid(f"uid-a-{one}"): f"zone-a-{one}" for one in called.split()}
    if "debug" in text:
        prepared = {pods[0].uid: pods[0].name}
    found = choose_staying(sts("a", int(replicas), **fields), pods, prepared)
    assert {*found} <= {*prepared}
    return " ".join(_ordinal(one.name) for one in found.values()) or "none"


def show_over(text: str) -> str:
    there, _, called = text.partition(":")
    prepared = {Uid(f"uid-a-{one}") for one in called.split()}
    stays = {f"zone-a-{one}" for one in there.split()}
    pods = zone("a", "lllll").pods
    found = is_over([one for one in pods if one.name in stays], prepared)
    going = [replace(one, is_terminating=one.name not in stays) for one in pods]
    assert is_over(going, prepared) is found, "terminating is as good as gone"
    return "over" if found else "not over"


def show_mark(text: str) -> str:
    annotations = {DOWNSCALE_INTENT: "" if text == '""' else text} if text else {}
    found = find_intent(sts("a", annotations=annotations))
    if found is None:
        return "none"
    assert found.is_marked
    return f"{found.replicas_from} to {found.replicas_to}: {found.text}"


def show_write(text: str) -> str:
    """Return the mark of a downscale of three, which Go writes with the same characters."""
    found = render_intent(sts("a", replicas=3), int(text), "7-1")
    assert not set("<>&") & set(found)
    return found


def show_hostile(text: str) -> str:
    found = find_intent(_marked(text[0] * int(text[4:])))
    assert found is not None
    return f"{found.replicas_from} to {found.replicas_to} of {found.zone}"


def show_differ(text: str) -> str:
    """Return whether a mark is all that changed; words are what did."""
    fields = read_arguments(text)[1]
    mark = fields.pop("mark", None)
    new = _marked(None if mark is None else str(mark), **fields)
    return "only the mark" if differ_in_intent(_marked("a"), new) else "more"


def _marked(text: str | None, **fields: object) -> StatefulSet:
    annotations = {} if text is None else {DOWNSCALE_INTENT: text}
    return replace(sts("a", replicas=3), annotations=annotations, **fields)


def show_needs(text: str) -> str:
    labels = {PREPARE_DOWNSCALE: "true"} if text else {}
    return "a mark" if needs_intent(_marked(None, labels=labels)) else "no mark"


ASK: Final[Mapping[str, Callable[[str], str]]] = {
    "became": show_became,
    "differ": show_differ,
    "hostile": show_hostile,
    "needs": show_needs,
    "write": show_write,
    "mark": show_mark,
    "next": show_next,
    "over": show_over,
    "stays": show_stays,
}


def show_reservation(text: str) -> str:
    word, _, rest = text.partition(" ")
    if word.endswith(";"):
        word, rest = word[:-1], f"; {rest}"
    return ASK[word](rest)


def plan_call(
    *,
    url: str | None = None,
    port: str = "8080",
    path: str = "prepare-downscale",
    service: str = "service-name",
    domain: str = "cluster.local.",
    **changes: object,
) -> Endpoint | str:
    """Return the endpoint of pod CALLED, one thing of it changed, or the refusal."""
    target = (
        plan_target({PREPARE_PORT: port, PREPARE_PATH: path}, service)
        if url is None
        else plan_delay_target(url, service)
    )
    if isinstance(target, NoTarget):
        return target.sentence
    return plan_endpoint(replace(CALLED, **changes), target, domain)


def show_endpoint(text: str) -> str:
    """Return the URL and the name, or the refusal; fields are of the pod or the target."""
    word, *words = shlex.split(text.replace("{256}", "a" * 256).replace("{LONG}", LONG))
    url = None if word == "prepare" else words.pop(0)
    given: dict[str, Any] = dict(one.split("=", 1) for one in words)
    found = plan_call(url=url, **given)
    if isinstance(found, str):
        return found
    assert (found.pod, found.uid) == (given.get("name", CALLED.name), CALLED.uid)
    shown = f"{render_url(found)} as {found.authority}"
    host = "" if found.authority.startswith(found.host) else f" of {found.host}"
    return f"{shown}{host}".replace("a" * 256, "{256}")


LONG: Final = ".".join(["a" * 60] * 4)


test_case = check_tables(
    __file__,
    endpoints=show_endpoint,
    prepare=show_prepare,
    requests=show_request,
    reservation=show_reservation,
    rule=show_rule,
    spacing=show_spacing,
)
