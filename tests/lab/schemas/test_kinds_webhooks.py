"""Webhook configurations at the simulated API server: defaults, refusals, generation."""

import pytest

from rollout_operator.kube.api import (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Resource,
)
from rollout_operator.lab.model.request import ApiRefusal
from rollout_operator.lab.schemas.kinds import find_kind
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, entry, part, updated


def configuration(**fields: object) -> JsonObject:
    """Return a configuration with one webhook; `fields` add to it or take away by None."""
    hook: JsonObject = {
        "name": "one.example.com",
        "clientConfig": {"service": {"name": "s", "namespace": "default"}},
        "rules": [
            {
                "operations": ["UPDATE"],
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "resources": ["statefulsets"],
            }
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }
    kept = {key: value for key, value in hook.items() if value is not None}
    return {"metadata": {"name": "all"}, "webhooks": [kept]}


@pytest.mark.parametrize("resource", [VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS])
def test_defaults_are_those_of_the_real_server(resource: Resource) -> None:
    stored = created(find_kind(resource), configuration())
    hook = entry(stored, "webhooks")
    expected: JsonObject = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }
    if resource is MUTATING_WEBHOOKS:
        expected["reinvocationPolicy"] = "Never"
    given = entry(configuration(), "webhooks").keys()
    assert {key: hook[key] for key in hook.keys() - given} == expected
    assert part(hook, "clientConfig", "service")["port"] == 443
    assert entry(hook, "rules")["scope"] == "*"
    assert part(stored, "metadata")["generation"] == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "one"}, 'name: Invalid value: "one": should be a domain with at least three'),
        ({"name": "A.b.c"}, 'name: Invalid value: "A.b.c": a lowercase RFC 1123 subdomain'),
        ({"name": ""}, "name: Required value"),
        ({"sideEffects": None}, "sideEffects: Required value: must specify one of None, NoneOnDry"),
        (
            {"sideEffects": "Some"},
            'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ),
        (
            {"failurePolicy": "Perhaps"},
            'failurePolicy: Unsupported value: "Perhaps": supported values: "Fail", "Ignore"',
        ),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"clientConfig": {"url": "http://h/x"}},
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
            "desired format: https://host[/path]",
        ),
        ({"clientConfig": {"url": "https:///x"}}, 'Invalid value: "": host must be specified; des'),
        ({"clientConfig": {"url": "https://h/x?a"}}, '"a": query parameters are not permitted in'),
        ({"clientConfig": {}}, "clientConfig: Required value: exactly one of url or service is re"),
        (
            {"admissionReviewVersions": ["v2"]},
            'admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1be',
        ),
        ({"admissionReviewVersions": None}, "Required value: must specify one of v1, v1beta1"),
        ({"rules": [{}]}, "rules[0].operations: Required value"),
        ({"rules": [{"operations": ["READ"]}]}, 'operations[0]: Unsupported value: "READ"'),
        ({"rules": [{"scope": "x"}]}, 'rules[0].scope: Unsupported value: "x"'),
    ],
)
def test_what_makes_no_sense_is_refused(fields: JsonObject, text: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        find_kind(VALIDATING_WEBHOOKS).prepare_create(configuration(**fields))
    begin = 'ValidatingWebhookConfiguration.admissionregistration.k8s.io "all" is invalid: '
    assert caught.value.message.startswith(begin)
    assert text in caught.value.message


def test_two_webhooks_may_not_share_a_name() -> None:
    obj = configuration()
    obj["webhooks"] = [entry(obj, "webhooks"), copy_json(entry(obj, "webhooks"))]
    with pytest.raises(ApiRefusal, match=r'webhooks\[1\].name: Duplicate value: "one.example.com"'):
        find_kind(MUTATING_WEBHOOKS).prepare_create(obj)


def test_only_changed_webhooks_raise_the_generation() -> None:
    kind = find_kind(VALIDATING_WEBHOOKS)
    old = created(kind, configuration())
    new = copy_json(old)
    part(new, "metadata")["labels"] = {"a": "b"}
    assert part(updated(kind, old, new), "metadata")["generation"] == 1
    part(entry(new, "webhooks"), "clientConfig")["caBundle"] = "QQ=="
    assert part(updated(kind, old, new), "metadata")["generation"] == 2
