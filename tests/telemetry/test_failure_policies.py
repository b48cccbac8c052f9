"""The failure policies of our webhooks as a metric (METR-40, METR-54, CA-10, W-58)."""

from functools import partial

from msgspec.structs import replace

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import (
    Unreadable,
    Webhook,
    WebhookConfiguration,
    list_failure_policies,
)
from rollout_operator.telemetry.metrics import Metrics

NAME = "kube_validating_webhook_failure_policy"
VALIDATING = WebhookConfiguration(
    kind="ValidatingWebhookConfiguration",
    name="guard",
    uid=Uid("u"),
    resource_version="1",
    labels={NAMESPACE_LABEL: "ops"},
    webhooks=(Webhook(name="a"), Webhook(name="b", failure_policy="Ignore")),
)
MUTATING = replace(VALIDATING, kind="MutatingWebhookConfiguration", webhooks=(Webhook(name="a"),))
LOST = Unreadable(
    kind=VALIDATING.kind, namespace="", name="x", uid=Uid("x"), resource_version="1", error="no"
)


def shown(metrics: Metrics) -> list[str]:
    text = b"".join(metrics.render()).decode()
    return [line.removeprefix(NAME) for line in text.splitlines() if line.startswith(NAME)]


def test_metr_54_there_is_no_series_before_it_is_requested() -> None:
    assert NAME not in b"".join(Metrics().render()).decode()


def test_metr_40_each_hook_has_a_series_for_each_policy() -> None:
    metrics = Metrics()
    metrics.failure_policies(lambda: list_failure_policies([VALIDATING, MUTATING, LOST], "ops"))
    assert shown(metrics) == [
        '{type="ValidatingWebhook",webhook="a",policy="Fail"} 1',
        '{type="ValidatingWebhook",webhook="a",policy="Ignore"} 0',
        '{type="ValidatingWebhook",webhook="b",policy="Fail"} 0',
        '{type="ValidatingWebhook",webhook="b",policy="Ignore"} 1',
        '{type="MutatingWebhook",webhook="a",policy="Fail"} 1',
        '{type="MutatingWebhook",webhook="a",policy="Ignore"} 0',
    ]


def test_metr_40_has_head_and_type_before_the_first_hook() -> None:
    metrics = Metrics()
    metrics.failure_policies(list)
    text = b"".join(metrics.render()).decode()
    assert f"# TYPE {NAME} gauge\n" in text
    assert shown(metrics) == []


def test_ca_10_only_the_label_of_the_namespace_selects() -> None:
    """Unlike for the CA, whether it is injected does not matter."""
    off = replace(VALIDATING, labels={NAMESPACE_LABEL: "ops", INJECT_CA_LABEL: "false"})
    other = replace(VALIDATING, labels={NAMESPACE_LABEL: "elsewhere", INJECT_CA_LABEL: "true"})
    none = replace(VALIDATING, labels={INJECT_CA_LABEL: "true"})
    assert list(list_failure_policies([other, none], "ops")) == []
    assert list(list_failure_policies([off], "ops")) == [
        ("ValidatingWebhook", "a", "Fail"),
        ("ValidatingWebhook", "b", "Ignore"),
    ]


def test_w_58_what_is_deleted_is_gone_at_the_next_scrape() -> None:
    metrics, known = Metrics(), [VALIDATING, MUTATING]
    metrics.failure_policies(lambda: list_failure_policies(known, "ops"))
    assert len(shown(metrics)) == 6
    known.remove(VALIDATING)
    assert len(shown(metrics)) == 2
    known[0] = replace(MUTATING, webhooks=(Webhook(name="a", failure_policy="Ignore"),))
    assert shown(metrics)[0].endswith('policy="Fail"} 0')


def test_w_58_of_two_hooks_with_one_name_fail_is_shown_in_any_order() -> None:
    lax = replace(VALIDATING, webhooks=(Webhook(name="a", failure_policy="Ignore"),))
    for known in ([lax, VALIDATING], [VALIDATING, lax]):
        metrics = Metrics()
        metrics.failure_policies(partial(list_failure_policies, known, "ops"))
        lines = [line for line in shown(metrics) if 'webhook="a"' in line]
        assert lines == [
            '{type="ValidatingWebhook",webhook="a",policy="Fail"} 1',
            '{type="ValidatingWebhook",webhook="a",policy="Ignore"} 0',
        ]
