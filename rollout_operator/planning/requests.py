"""Decide what a review requests, what its labels say to it, and where pods may be called.

Whether a change is a decrease at all, what happens to changes that cannot be understood, and all of
no-downscale. What the rest of the group says is left to `downscales`.

Which port, path and names may become part of a call to a pod (D-27): what a tenant writes into an
annotation must reach only the pods of its own set. Of the URL of a delayed downscale (DELAY-04) the
host is ignored: each pod has its own.

Intents of downscales that the operator itself is about to write (SI-02). A write without an answer
may be stored late, even after its process is gone. So the set gets an annotation first, and the
write carries the precondition that it is still there. Another process that finds it expects the
downscale until it is gone. Downscales that our own webhook reviews need none: the API server
repeats the review when they come late.
"""

import re
from collections.abc import Collection, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.decode.wire import Int32
from rollout_operator.model.names import (
    DOWNSCALE_DELAY_URL,
    DOWNSCALE_INTENT,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from rollout_operator.model.objects import Decrease, Endpoint, Pod, StatefulSet, Target, Underway
from rollout_operator.model.outcome import Code, Reason, Severity, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable
from rollout_operator.model.units import is_brake_on, is_odd_brake, quote

# Spelt out: `\d` and `\w` match other scripts, on which parsers disagree.
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# Capitals in a domain are legal (FQDN-02).
_DOMAIN_LABEL: Final = re.compile(_LABEL.pattern, re.IGNORECASE | re.ASCII)
_SCHEMES: Final = ("http", "https")
# Only the URL of a delayed downscale can ask for https.
_PREPARE_SCHEME: Final = "http"
_LARGEST_PORT: Final = 65535
_LONGEST_PATH: Final = 256
# As in DNS, without the trailing dot.
_LONGEST_HOST: Final = 253
# Hundreds of pods may repeat a refusal in messages and logs.
_LONGEST_SHOWN: Final = 200
# Of the URL of a delayed downscale.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Every server reads request lines of 8 KiB.
_LONGEST_URL: Final = 1024
# Printable ASCII, without the backslash, which some parsers take for a slash.
_SEEN: Final = re.compile(r"[!-\[\]-~]*")
_URL: Final = re.compile(r"([A-Za-z]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?")
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9._~!$&'()*+,;=-]*")
_URL_PORT: Final = re.compile(r":[^:\]]*\Z")
_URL_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"%([01][0-9A-Fa-f]|7[Ff])")
# What a path means once it is decoded.
_DECODED: Final = {"%2e": ".", "%2f": "/", "%5c": "/"}
_PATH_RULE: Final = (
    f"letters, digits and . _ ~ - between single slashes, no . or .. alone,"
    f" at most {_LONGEST_PATH} characters"
)
# Passed on to the client: the request may succeed a little later.
RETRY: Final = 429
_STATEFULSETS: Final = "statefulsets"
_SCALE: Final = "Scale"


class DelayTarget(Target, frozen=True, kw_only=True):
    """Where pods are called for a delayed downscale; `path` is as written."""

    query: str = ""
    shows_port: bool = True
    """Whether the URL names a port."""


class NoTarget(msgspec.Struct, frozen=True):
    """Why the pods of a set cannot be called."""

    problem: str
    is_missing: bool = False
    """Whether a value is missing, not wrong."""

    @property
    def sentence(self) -> str:
        """End the refusal: a missing value ends with a full stop (PREP-06..08)."""
        return f"{self.problem}." if self.is_missing else self.problem


class Intent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of the annotation. It needs no characters that Go's JSON escapes."""

    id: str
    """Of the attempt, unique across processes."""
    replicas_from: Int32
    replicas_to: Int32


_INTENT: Final = msgspec.json.Decoder(Intent)


def assess_no_downscale_change(review: Review, *, fails_closed: bool) -> Verdict | Decrease:
    """Return the decrease that a review requests, or the verdict if there is none (NODOWN-01..03).

    With `fails_closed` a change of a guarded kind that cannot be understood is refused (D-20).
    """
    for age, scalable in (("old", review.old), ("new", review.new)):
        if isinstance(scalable, Unusable):
            if fails_closed:
                text = f"can't decode {age} object, err: {scalable.error}"
                return refuse(Code.CANNOT_CHECK, text, status=RETRY)
            text = f"can't decode {age} object, allowing the change, err: {scalable.error}"
            return allow(Code.CANNOT_CHECK, warning=text)
    change = _compare(review)
    if fails_closed and not isinstance(change, Decrease) and _is_unclear(review):
        return _assess_unclear(review, change, NO_DOWNSCALE)
    return change


def assess_prepare_change(review: Review) -> Verdict | Decrease:
    """Return the decrease to prepare, or the verdict where there is nothing to prepare
    (PREP-01..04).

    A StatefulSet that cannot be understood may carry the label: it is refused (D-21).
    """
    if review.dry_run:
        return allow(Code.DRY_RUN)
    is_ours = review.resource == _STATEFULSETS
    for age, scalable in (("old", review.old), ("new", review.new)):
        if not isinstance(scalable, Unusable):
            continue
        if is_ours:
            return refuse(
                Code.CANNOT_CHECK,
                f"can't decode {age} object, so that the label {PREPARE_DOWNSCALE} cannot be ruled"
                f" out, err: {scalable.error}",
            )
        text = f"can't decode {age} object, allowing the change, err: {scalable.error}"
        return allow(Code.CANNOT_CHECK, warning=text)
    change = _compare(review)
    if is_ours and not isinstance(change, Decrease) and _is_unclear(review):
        return _assess_unclear(review, change, PREPARE_DOWNSCALE)
    if isinstance(change, Decrease) and not is_ours:
        text = f"{review.resource} are not prepared, allowing the change"
        return allow(Code.CANNOT_CHECK, warning=text)
    return change


def assess_unprepared(review: Review) -> Verdict | None:
    """Return the verdict where the review alone shows that nothing must be prepared."""
    change = assess_prepare_change(review)
    if isinstance(change, Verdict):
        return change
    old = review.old
    if not isinstance(old, Scalable) or old.kind == _SCALE:
        return None  # a Scale has no labels
    verdict = plan_preparation(change, old.labels, old.annotations, old.service_name)
    return verdict if isinstance(verdict, Verdict) else None


def assess_no_downscale(
    decrease: Decrease, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Verdict:
    """Judge a decrease by the object, or the parent of the Scale (NODOWN-04, 06, 07)."""
    if not is_labelled(labels, NO_DOWNSCALE):
        warning = explain_misplaced(labels, annotations, NO_DOWNSCALE)
        return allow(Code.LABEL_MISPLACED if warning else Code.NOT_GUARDED, warning=warning)
    why = f"it has the label '{NO_DOWNSCALE}=true'"
    if is_odd_brake(labels[NO_DOWNSCALE]):
        why += f" ({quote(labels[NO_DOWNSCALE])} is neither true nor false, and counts as true)"
    return refuse_decrease(decrease, Code.NO_DOWNSCALE, why)


def plan_preparation(
    decrease: Decrease,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    service_name: str,
) -> Verdict | Target:
    """Return where the pods of a set must be called, or why none is (PREP-05..08)."""
    if not is_labelled(labels, PREPARE_DOWNSCALE):
        warning = explain_misplaced(labels, annotations, PREPARE_DOWNSCALE)
        return allow(Code.LABEL_MISPLACED if warning else Code.NOT_GUARDED, warning=warning)
    if is_labelled(labels, NO_DOWNSCALE):
        # no-downscale is called after this hook: pods would be prepared for nothing.
        return assess_no_downscale(decrease, labels, annotations)
    target = plan_target(annotations, service_name)
    if isinstance(target, NoTarget):
        return refuse_decrease(decrease, Code.PREPARE_MISCONFIGURED, target.sentence)
    return target


def is_labelled(labels: Mapping[str, str], key: str) -> bool:
    return is_brake_on(labels.get(key))


def explain_misplaced(labels: Mapping[str, str], annotations: Mapping[str, str], key: str) -> str:
    """Warn about a switch set as an annotation, which has no effect (W-49)."""
    if key not in labels and annotations.get(key, "false") != "false":
        return f"{key} is set as annotation, and only a label counts: the check is off"
    return ""


def allow(code: Code, text: str = "", *, warning: str = "") -> Verdict:
    reason = Reason(code, text, Severity.WARN if warning else Severity.DEBUG)
    return Verdict(is_allowed=True, reason=reason, warnings=(warning,) if warning else ())


def refuse(code: Code, text: str, *, status: int = 0) -> Verdict:
    """`text` is shown to the sender."""
    reason = Reason(code, text, Severity.WARN)
    return Verdict(is_allowed=False, reason=reason, code=status)


def refuse_decrease(decrease: Decrease, code: Code, why: str, *, status: int = 0) -> Verdict:
    """Word the refusal as in all releases."""
    return refuse(code, f"{decrease.text} is not allowed because {why}", status=status)


def plan_target(annotations: Mapping[str, str], service_name: str) -> Target | NoTarget:
    """Return where the pods are called: port, then path, then Service are judged (PREP-06..08)."""
    port_text = annotations.get(PREPARE_PORT, "")
    path = annotations.get(PREPARE_PATH, "")
    problem = _judge_port(port_text) or _judge_path(path) or _judge_service(service_name)
    if problem:
        return problem
    return Target(port=int(port_text), path=path.lstrip("/"), service=service_name)


def judge_target(target: Target) -> str:
    """Return what is wrong with a target from elsewhere, empty if nothing is."""
    if target.scheme not in _SCHEMES:
        return f"the scheme is none of {', '.join(_SCHEMES)}: {show(target.scheme)}"
    is_plain = not target.path.startswith("/")
    problem = _judge_port(str(target.port)) or _judge_path(target.path if is_plain else "")
    problem = problem or _judge_service(target.service)
    return problem.sentence if problem else ""


def judge_place(target: Target, sts: StatefulSet, ports: Collection[int]) -> str:
    """Return why pods of a set cannot have been called at a place that an annotation names.

    `ports` are the container ports of the annotated pod. The annotation is not signed: it is
    trusted only as far as the set and the pod's spec agree. Nothing confirms the path.
    """
    if target.scheme != _PREPARE_SCHEME:
        return f"scheme: pods are prepared by {_PREPARE_SCHEME} only: {show(target.scheme)}"
    if target.service != sts.service_name:
        return f"service: it is not the serviceName of the set: {show(target.service)}"
    if target.port not in ports and str(target.port) != sts.annotations.get(PREPARE_PORT):
        return f"port: neither a container of the pod nor the set names it: {target.port}"
    return ""


def plan_delay_target(url: str, service_name: str) -> DelayTarget | NoTarget:
    """Return how pods are called for a delayed downscale; the host of `url` is ignored."""
    parsed = _URL.fullmatch(url) if len(url) <= _LONGEST_URL else None
    scheme, authority, path, query, fragment = parsed.groups(default="") if parsed else [""] * 5
    port = _URL_PORT.search(authority)
    problem = _judge_url(url, scheme.lower())
    problem = problem or _judge_authority(authority, port[0] if port else "")
    if fragment and not problem:
        problem = "has a fragment, which no pod would be sent"
    problem = problem or _judge_url_path(path) or _judge_escapes(path + query)
    if problem:
        shown = show(_without_user(url))
        return NoTarget(f"the {DOWNSCALE_DELAY_URL} annotation {problem}: {shown}")
    return _judge_service(service_name) or DelayTarget(
        scheme=scheme.lower(),
        port=int(port[0][1:]) if port else _DEFAULT_PORTS[scheme.lower()],
        shows_port=port is not None,
        path=path.removeprefix("/"),
        query=query,
        service=service_name,
    )


def plan_endpoint(pod: Pod, target: Target, cluster_domain: str) -> Endpoint | str:
    """Return where a pod is called, or why it cannot be; `target` has been checked.

    A trailing dot of `cluster_domain` stays part of the host.
    """
    host = f"{pod.name}.{target.service}.{pod.namespace}.svc.{cluster_domain}"
    problem = _judge_names(pod, cluster_domain)
    if problem:
        return problem
    if len(host.removesuffix(".")) > _LONGEST_HOST:
        return f"the DNS name of pod {pod.name} is longer than {_LONGEST_HOST} characters"
    ip = _read_address(pod.ip)
    if ip is None:
        shown = f"has no valid address: {show(pod.ip)}" if pod.ip else "has no address yet"
        return f"pod {pod.name} {shown}"
    query, shows_port = "", True
    if isinstance(target, DelayTarget):
        query, shows_port = target.query, target.shows_port
    return Endpoint(
        pod=pod.name,
        uid=pod.uid,
        ip=ip,
        host=host,
        port=target.port,
        path=target.path,
        scheme=target.scheme,
        query=query,
        shows_port=shows_port,
    )


def show(text: str) -> str:
    """Quote text on one printable line, cut if it is long."""
    escaped = escape(quote(text))
    return escaped if len(escaped) <= _LONGEST_SHOWN else f'{escaped[: _LONGEST_SHOWN - 4]}..."'


def escape(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def needs_intent(sts: StatefulSet) -> bool:
    """Return whether no review of ours covers the downscales of a set."""
    return not is_labelled(sts.labels, PREPARE_DOWNSCALE)


def render_intent(sts: StatefulSet, replicas: int, attempt: str) -> str:
    intent = Intent(id=attempt, replicas_from=sts.replicas, replicas_to=replicas)
    return msgspec.json.encode(intent).decode()


def find_intent(sts: StatefulSet) -> Underway | None:
    """Return the announced downscale; an intent that cannot be read counts as taking all pods."""
    text = sts.annotations.get(DOWNSCALE_INTENT)
    if text is None:
        return None
    unreadable = Underway(
        zone=sts.name,
        replicas_from=sts.replicas,
        replicas_to=0,
        is_marked=True,
        unreadable=quote(text),
    )
    try:
        intent = _INTENT.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return unreadable
    if intent.replicas_to >= intent.replicas_from:
        return unreadable
    return Underway(
        zone=sts.name,
        replicas_from=intent.replicas_from,
        replicas_to=intent.replicas_to,
        is_marked=True,
    )


def announces(sts: StatefulSet, replicas: int) -> bool:
    intent = find_intent(sts)
    return intent is not None and (intent.replicas_from, intent.replicas_to) == (
        sts.replicas,
        replicas,
    )


def differ_in_intent(old: StatefulSet, new: StatefulSet) -> bool:
    """Return whether two versions of a set differ in the intent only."""
    return _unmark(old, new.resource_version) == _unmark(new, new.resource_version)


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and int(text) <= _LARGEST_PORT


def _judge_service(name: str) -> NoTarget | None:
    if not name:
        return _missing("the serviceName")
    if _LABEL.fullmatch(name):
        return None
    return NoTarget(f"the serviceName is no DNS label: {show(name)}")


def _missing(what: str) -> NoTarget:
    return NoTarget(f"{what} is not set or empty", is_missing=True)


def _judge_port(text: str) -> NoTarget | None:
    if not text:
        return _missing(f"the {PREPARE_PORT} annotation")
    if _is_port(text):
        return None
    return NoTarget(
        f"the {PREPARE_PORT} annotation is no port from 1 to {_LARGEST_PORT}: {show(text)}"
    )


def _judge_path(text: str) -> NoTarget | None:
    if not text:
        return _missing(f"the {PREPARE_PATH} annotation")
    path = text.lstrip("/")
    # A dot segment is resolved by its first reader: `a/../b` may be `b` to a proxy.
    has_dots = not {".", ".."}.isdisjoint(path.split("/"))
    if len(path) <= _LONGEST_PATH and _PATH.fullmatch(path) and not has_dots:
        return None
    return NoTarget(f"the {PREPARE_PATH} annotation is no plain path: {show(text)} ({_PATH_RULE})")


def _judge_names(pod: Pod, cluster_domain: str) -> str:
    if not _are_labels(pod.name, _LABEL):
        return f"the name of a pod is no DNS name: {show(pod.name)}"
    if not _LABEL.fullmatch(pod.namespace):
        return f"the namespace of pod {pod.name} is no DNS label: {show(pod.namespace)}"
    if not _are_labels(cluster_domain.removesuffix("."), _DOMAIN_LABEL):
        return f"the cluster domain is no DNS name: {show(cluster_domain)}"
    return ""


def _are_labels(name: str, label: re.Pattern[str]) -> bool:
    # The length first: texts of megabytes are not matched.
    return len(name) <= _LONGEST_HOST and all(map(label.fullmatch, name.split(".")))


def _read_address(text: str) -> str | None:
    """Return an IP address in its canonical form, None for anything else."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A zone such as `fe80::1%eth0` is a name of the machine that wrote it, and free text.
    has_zone = isinstance(address, IPv6Address) and address.scope_id is not None
    return None if has_zone else str(address)


def _judge_url(url: str, scheme: str) -> str:
    # The length first: texts of megabytes are not matched.
    if len(url) > _LONGEST_URL:
        return f"is longer than {_LONGEST_URL} characters"
    if not _SEEN.fullmatch(url):
        return "has a blank or another character that stands in no URL"
    return "" if scheme in _DEFAULT_PORTS else "is no http or https URL"


def _judge_authority(authority: str, port: str) -> str:
    """`port` begins with its colon, or is empty."""
    if "@" in authority:
        return "has a user, and pods are sent no credentials"
    if not _HOST.fullmatch(authority.removesuffix(port)):
        return "has a host that is none"
    if port and not _is_port(port[1:]):
        return f"has no port from 1 to {_LARGEST_PORT}"
    return ""


def _judge_url_path(path: str) -> str:
    if not _URL_PATH.fullmatch(path):
        return "has a path with characters that must be escaped"
    decoded = path.lower()
    for escape, char in _DECODED.items():
        decoded = decoded.replace(escape, char)
    # A dot segment is resolved by its first reader: `a/../b` may be `b` to a proxy.
    return "" if {".", ".."}.isdisjoint(decoded.split("/")) else "has a path with . or .. in it"


def _judge_escapes(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        return "has a % that begins no escape"
    return "has an escaped control character" if _CONTROL.search(text) else ""


def _without_user(text: str) -> str:
    """Hide the user of a URL in messages: it may include a password (SI-23)."""
    before, at, rest = text.rpartition("@")
    scheme, slashes, _ = before.partition("//")
    return f"{scheme if slashes else ''}{slashes}***@{rest}" if at else text


def _compare(review: Review) -> Verdict | Decrease:
    assert isinstance(review.old, Scalable), "checked by the caller"
    assert isinstance(review.new, Scalable), "checked by the caller"
    old, new = review.old.replicas, review.new.replicas
    if old is None and new is None:
        return allow(Code.NOT_A_DOWNSCALE)
    if old is None or new is None:
        return allow(Code.CANNOT_CHECK, warning="old/new replicas is nil, allowing the change")
    first_from, first_to = review.old.first_ordinal, review.new.first_ordinal
    # Pods go where the last ordinal falls, and where the first one rises, whatever the count.
    if not old or (first_to + new >= first_from + old and first_to <= first_from):
        return allow(Code.NOT_A_DOWNSCALE)
    return Decrease(
        resource=review.resource,
        namespace=review.namespace,
        name=review.name,
        replicas_from=old,
        replicas_to=new,
        first_from=first_from,
        first_to=first_to,
    )


def _is_unclear(review: Review) -> bool:
    counts = [
        scalable.replicas for scalable in (review.old, review.new) if isinstance(scalable, Scalable)
    ]
    return counts.count(None) == 1


def _assess_unclear(
    review: Review, otherwise: Verdict | Decrease, label: str
) -> Verdict | Decrease:
    """Refuse a labelled object whose replicas appear or vanish: it may be a decrease (SI-13)."""
    assert isinstance(review.old, Scalable), "checked by the caller"
    if not is_labelled(review.old.labels, label):
        return otherwise
    text = (
        f"old/new replicas of {review.resource}/{review.name} in {review.namespace} is nil, and"
        f" it has the label '{label}=true'"
    )
    return refuse(Code.CANNOT_CHECK, text, status=RETRY)


def _unmark(sts: StatefulSet, version: str) -> StatefulSet:
    left = {key: text for key, text in sts.annotations.items() if key != DOWNSCALE_INTENT}
    return replace(sts, annotations=left, resource_version=version)
