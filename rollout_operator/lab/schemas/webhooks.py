"""Rules of webhook configurations: defaults, what is refused, and their generation."""

from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, children, text
from rollout_operator.lab.schemas.invalid import Problems
from rollout_operator.lab.schemas.metadata import check_subdomain_name
from rollout_operator.lab.schemas.rules import Rules

_TIMEOUT_SECONDS: Final = 10
_LONGEST_SECONDS: Final = 30
_HTTPS: Final = 443
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_CHOICES: Final = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_SCOPES: Final = ("*", "Cluster", "Namespaced")


def _default(is_mutating: bool, obj: JsonObject) -> None:
    for hook in children(obj, "webhooks"):
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", _TIMEOUT_SECONDS)
        if is_mutating:
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in children(hook, "rules"):
            rule.setdefault("scope", "*")
        service = child(hook, "clientConfig", "service")
        if service:
            service.setdefault("port", _HTTPS)


def _check(obj: JsonObject, problems: Problems) -> None:
    seen: set[str] = set()
    for index, hook in enumerate(children(obj, "webhooks")):
        field, name = f"webhooks[{index}]", text(hook, "name")
        _check_name(f"{field}.name", name, problems)
        _check_hook(field, hook, problems)
        versions = hook.get("admissionReviewVersions")
        if not versions:
            problems.require(f"{field}.admissionReviewVersions", "must specify one of v1, v1beta1")
        elif isinstance(versions, list) and not {"v1", "v1beta1"} & {*versions}:
            problems.invalid(
                f"{field}.admissionReviewVersions",
                versions,
                "must include at least one of v1, v1beta1",
            )
        if name and name in seen:
            problems.duplicate(f"{field}.name", name)
        seen.add(name)


def _check_name(field: str, name: str, problems: Problems) -> None:
    if not name:
        problems.require(field)
        return
    findings = Problems()
    check_subdomain_name(field, name, findings)
    if findings:
        check_subdomain_name(field, name, problems)
    elif name.count(".") < 2:
        text_ = "should be a domain with at least three segments separated by dots"
        problems.invalid(field, name, text_)


def _check_hook(field: str, hook: JsonObject, problems: Problems) -> None:
    for index, rule in enumerate(children(hook, "rules")):
        _check_rule(f"{field}.rules[{index}]", rule, problems)
    for key in ("failurePolicy", "matchPolicy"):
        _check_choice(field, hook, key, problems)
    effects = hook.get("sideEffects")
    if effects is None:
        listed = ", ".join(_SIDE_EFFECTS)
        problems.require(f"{field}.sideEffects", f"must specify one of {listed}")
    elif effects not in _SIDE_EFFECTS:
        problems.unsupported(f"{field}.sideEffects", effects, _SIDE_EFFECTS)
    seconds = hook["timeoutSeconds"]
    if not isinstance(seconds, int) or not 1 <= seconds <= _LONGEST_SECONDS:
        text_ = f"the timeout value must be between 1 and {_LONGEST_SECONDS} seconds"
        problems.invalid(f"{field}.timeoutSeconds", seconds, text_)
    _check_choice(field, hook, "reinvocationPolicy", problems)
    config = child(hook, "clientConfig")
    if ("url" in config) == ("service" in config):
        text_ = "exactly one of url or service is required"
        problems.require(f"{field}.clientConfig", text_)
    elif "url" in config:
        _check_url(f"{field}.clientConfig.url", text(config, "url"), problems)


def _check_url(field: str, url: str, problems: Problems) -> None:
    parts, form = urlsplit(url), "; desired format: https://host[/path]"
    if parts.scheme != "https":
        problems.invalid(field, parts.scheme, f"'https' is the only allowed URL scheme{form}")
    if not parts.netloc:
        problems.invalid(field, "", f"host must be specified{form}")
    for part, what in ((parts.fragment, "fragments"), (parts.query, "query parameters")):
        if part:
            problems.invalid(field, part, f"{what} are not permitted in the URL")


def _check_choice(field: str, hook: JsonObject, key: str, problems: Problems) -> None:
    if key in hook and hook[key] not in _CHOICES[key]:
        problems.unsupported(f"{field}.{key}", hook[key], _CHOICES[key])


def _check_rule(field: str, rule: JsonObject, problems: Problems) -> None:
    operations = rule.get("operations")
    if not isinstance(operations, list) or not operations:
        problems.require(f"{field}.operations")
        operations = []
    for index, one in enumerate(operations):
        if one not in _OPERATIONS:
            problems.unsupported(f"{field}.operations[{index}]", one, _OPERATIONS)
    for key in ("apiGroups", "apiVersions", "resources"):
        if not rule.get(key):
            problems.require(f"{field}.{key}")
    if rule["scope"] not in _SCOPES:
        problems.unsupported(f"{field}.scope", rule["scope"], _SCOPES)


def _rules(default: Callable[[JsonObject], None]) -> Rules:
    return Rules(
        parts=frozenset({"webhooks"}),
        counted=("webhooks",),
        defaults={"webhooks": default},
        check=_check,
    )


VALIDATING: Final = _rules(partial(_default, False))
MUTATING: Final = _rules(partial(_default, True))
