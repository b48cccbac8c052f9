"""Alerts fire when they should and not before, as Prometheus evaluates them.

Series go through a scrape each half minute; an alert fires where its expression has returned the
same labels for as long as `for` says.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from tests.kustomize import Object
from tests.test_manifests_monitoring import PREFIX, load_rules
from tests.world.promql import Query, Scrape, evaluate

pytestmark = pytest.mark.controlplane

STEP: Final = 30
# So that rates of ten minutes have all of their samples before the alert's own time begins.
WARM_UP: Final = 15 * 60
START: Final = 1_800_000_000
MINUTE: Final = 60
OWN: Final = {"namespace": "mimir", "job": "mimir/rollout-operator", "pod": "operator-0"}
NOW: Final = "now"

# Series with what they begin at, and by what they grow each minute; `now` begins at the start. Or
# with their value after so many minutes.
Given = Mapping[str, tuple[float | str, float] | Callable[[float], float]]

REVIEW: Final = 'rollout_operator_request_duration_seconds_count{route="admission_no_downscale",'
SLOW: Final = 'rollout_operator_request_duration_seconds_bucket{route="admission_pod_eviction",le='
EVICTION: Final = "rollout_operator_zpdb_eviction_requests_total"
POLICY: Final = 'kube_validating_webhook_failure_policy{type="ValidatingWebhook",webhook='
HOOK: Final = "kube_validatingwebhookconfiguration_info{validatingwebhookconfiguration="
REJECTED: Final = (
    'apiserver_admission_webhook_rejection_count{name="pod-eviction-mimir.grafana.com"'
)
SUCCESS: Final = "rollout_operator_last_successful_group_reconcile_timestamp_seconds"
OBSERVED: Final = "rollout_operator_zpdb_configurations_observed_total"
INFLIGHT: Final = "rollout_operator_zpdb_inflight_eviction_requests"
LEADS: Final = "rollout_operator_leader_election_master_status"
FORWARDED: Final = "rollout_operator_forwarded_reviews_total"
EXPIRY: Final = "rollout_operator_certificate_expiry_timestamp_seconds"
WAITING: Final = 'rollout_operator_group_waiting{rollout_group="g",reason='
# Prometheus keeps a label that the target has as well under another name.
BLOCKED: Final = 'rollout_operator_multiaz_blocked{exported_namespace="db",name="db",'
RELEASE: Final = 'rollout_operator_release_blocked{exported_namespace="prod",rollout="app",'
BAKE: Final = 'rollout_operator_release_bake_status{exported_namespace="prod",rollout="app",'
UNUSED: Final = "rollout_operator_zpdb_unused_grants_total"
DOWNSCALES: Final = "rollout_operator_downscales"
AGE: Final = "rollout_operator_watch_age_seconds"
LIMITED: Final = "rollout_operator_kubernetes_api_client_rate_limited_requests_total"

# By alert: series with which it fires, and series with which it nearly does.
CASES: Final[dict[str, tuple[Given, Given]]] = {
    "IncorrectWebhookConfigurationFailurePolicy": (
        {f'{POLICY}"pod-eviction-mimir.grafana.com",policy="Ignore"}}': (1, 0)},
        {
            f'{POLICY}"pod-eviction-mimir.grafana.com",policy="Ignore"}}': (0, 0),
            f'{POLICY}"no-downscale-mimir.grafana.com",policy="Ignore"}}': (1, 0),
        },
    ),
    "BadZoneAwarePodDisruptionBudgetConfiguration": (
        {'rollout_operator_zpdb_valid{zpdb="b"}': (0, 0)},
        {
            'rollout_operator_zpdb_valid{zpdb="b"}': (1, 0),
            f'{OBSERVED}{{result="invalid"}}': (3, 0),
        },
    ),
    "HighNumberInflightZpdbRequests": ({INFLIGHT: (11, 0)}, {INFLIGHT: (10, 0)}),
    "NotReconciling": (
        {f'{SUCCESS}{{rollout_group="g"}}': (NOW, 0)},
        {f'{SUCCESS}{{rollout_group="g"}}': (NOW, 60)},
    ),
    "Absent": (
        {f'{HOOK}"pod-eviction-mimir"}}': (1, 0), 'up{job="mimir/rollout-operator"}': (0, 0)},
        {f'{HOOK}"pod-eviction-mimir"}}': (1, 0), 'up{job="mimir/rollout-operator"}': (1, 0)},
    ),
    "NoReplicaActs": (
        {f'{LEADS}{{pod="a"}}': (0, 0), f'{LEADS}{{pod="b"}}': (0, 0)},
        {f'{LEADS}{{pod="a"}}': (0, 0), f'{LEADS}{{pod="b"}}': (1, 0)},
    ),
    "WebhookUnreachable": (
        {f'{REJECTED},error_type="calling_webhook_error"}}': (0, 1)},
        {
            f'{REJECTED},error_type="calling_webhook_error"}}': (5, 0),
            f'{REJECTED},error_type="no_error"}}': (0, 9),
        },
    ),
    "WebhookErrors": (
        {f'{REVIEW}status_code="500"}}': (0, 2), f'{REVIEW}status_code="200"}}': (0, 98)},
        {f'{REVIEW}status_code="500"}}': (0, 0.5), f'{REVIEW}status_code="200"}}': (0, 99.5)},
    ),
    "WebhookSlow": (
        {f'{SLOW}"2.5"}}': (0, 90), f'{SLOW}"5"}}': (0, 100), f'{SLOW}"+Inf"}}': (0, 100)},
        {f'{SLOW}"2.5"}}': (0, 99.5), f'{SLOW}"5"}}': (0, 100), f'{SLOW}"+Inf"}}': (0, 100)},
    ),
    "ReviewsNotForwarded": (
        {f'{FORWARDED}{{outcome="late"}}': (0, 1)},
        {f'{FORWARDED}{{outcome="late"}}': (4, 0), f'{FORWARDED}{{outcome="answered"}}': (0, 9)},
    ),
    "CertificateExpiring": (
        {f'{EXPIRY}{{certificate="leaf"}}': (NOW, 0)},
        {
            f'{EXPIRY}{{certificate="leaf"}}': (START + 172_800, 0),
            f'{EXPIRY}{{certificate="ca"}}': (NOW, 0),
        },
    ),
    "RolloutBlocked": (
        {f'{WAITING}"budget_used"}}': (1, 0)},
        {f'{WAITING}"budget_used"}}': (0, 0), f'{WAITING}"paused"}}': (1, 0)},
    ),
    "MultiAZRolloutBlocked": (
        {f'{BLOCKED}reason="Conflict"}}': (1, 0)},
        {f'{BLOCKED}reason="Conflict"}}': (0, 0)},
    ),
    "ReleaseBlocked": (
        {f'{RELEASE}reason="BakeTimeFailed"}}': (1, 0)},
        {f'{RELEASE}reason="BakeTimeFailed"}}': (0, 0)},
    ),
    "ReleaseStuck": (
        {f'{BAKE}status="Deploying"}}': (1, 0)},
        {f'{BAKE}status="InProgress"}}': (1, 0), f'{BAKE}status="Deploying"}}': (0, 0)},
    ),
    "EvictionsBlocked": (
        {f'{EVICTION}{{reason="denied",status="429"}}': (0, 6)},
        {
            f'{EVICTION}{{reason="denied",status="429"}}': (0, 6),
            f'{EVICTION}{{reason="allowed",status="200"}}': (0, 0.5),
        },
    ),
    "EvictionsUnused": ({UNUSED: (0, 1)}, {UNUSED: (0, 0.1)}),
    "DownscaleNotUndone": (
        {f'{DOWNSCALES}{{state="undoing"}}': (1, 0)},
        {f'{DOWNSCALES}{{state="undoing"}}': (0, 0), f'{DOWNSCALES}{{state="underway"}}': (1, 0)},
    ),
    "WatchStale": (
        {f'{AGE}{{kind="Pod"}}': (61, 0)},
        {f'{AGE}{{kind="Pod"}}': (59, 0), f'{AGE}{{kind="Other"}}': (600, 0)},
    ),
    "ClientThrottled": (
        {f'{LIMITED}{{api_group="core"}}': (0, 1)},
        {f'{LIMITED}{{api_group="core"}}': (7, 0)},
    ),
}  # fmt: skip
RULES: Final = [pytest.param(rule, id=rule["alert"].removeprefix(PREFIX)) for rule in load_rules()]


def test_each_alert_has_its_cases() -> None:
    assert {rule["alert"].removeprefix(PREFIX) for rule in load_rules()} == set(CASES)


@pytest.mark.parametrize("rule", RULES)
def test_dep77_an_alert_fires_and_nearly_fires(rule: Object) -> None:
    """DEP-77, DEP-97: with a namespace, which the summary and the link need."""
    wrong, right = CASES[rule["alert"].removeprefix(PREFIX)]

    firing = list_firing(rule, wrong)

    assert [labels.get("namespace") for labels in firing] == ["mimir"]
    assert list_firing(rule, right) == []


def in_turn(*series: str, minutes: float) -> Given:
    """Return series that are 1 for so long, one after the other."""

    def play(place: int) -> Callable[[float], float]:
        return lambda passed: float(passed // minutes % len(series) == place)

    return {one: play(place) for place, one in enumerate(series)}


STARTING, USED = (f'{WAITING}"{reason}"}}' for reason in ("pods_starting", "budget_used"))
OUTDATED: Final = 'rollout_operator_zone_pods_outdated{rollout_group="g",zone="zone-a"}'


@pytest.mark.parametrize(
    ("given", "fires"),
    [
        pytest.param(in_turn(STARTING, USED, minutes=5), True, id="a crash loop"),
        pytest.param(
            in_turn(*(f'{WAITING}"{x}_not_ready"}}' for x in ("zone", "several_zones")), minutes=1),
            True,
            id="pods that are ready now and then",
        ),
        pytest.param({USED: (1, 0)}, True, id="one reason"),
        pytest.param(
            {STARTING: (1, 0), OUTDATED: lambda passed: 90 - passed // 20},
            False,
            id="a pod every 20 minutes, always starting",
        ),
        pytest.param(
            {**in_turn(STARTING, USED, minutes=5), OUTDATED: lambda passed: 90 - passed // 20},
            False,
            id="pods that crash at first",
        ),
        pytest.param(
            in_turn(STARTING, f'{WAITING}"up_to_date"}}', minutes=40), False, id="at rest between"
        ),
    ],
)
def test_a_rollout_that_stands_still_is_reported_whatever_its_reasons(
    given: Given, *, fires: bool
) -> None:
    """The reason alternates while a container crashes, starts and crashes again."""
    (rule,) = (one for one in load_rules() if one["alert"] == f"{PREFIX}RolloutBlocked")
    assert bool(list_firing(rule, {OUTDATED: (6, 0), **given})) is fires


def list_firing(rule: Object, given: Given) -> list[Mapping[str, str]]:
    """Return the labels of the alerts that fire at the end, when their time has been twice over."""
    last = read_minutes(rule["for"]) * MINUTE
    # An alert about the age of something needs that it has come of age before.
    start, end = START + WARM_UP, START + WARM_UP + 2 * last
    scrapes = [
        Scrape(at=at, page=render_page(given, at), labels=OWN_OF.get(rule["alert"], OWN))
        for at in range(START, end + STEP, STEP)
    ]
    (answer,) = evaluate(scrapes, [Query(expression=rule["expr"], start=start, end=end, step=STEP)])
    assert not answer.error
    wanted = {*range(end - last, end + STEP, STEP)}
    return [one.labels for one in answer.series or () if wanted <= {*one.times}]


# Of other targets, and of several: their labels stand in the series.
OWN_OF: Final[dict[str, dict[str, str]]] = {
    f"{PREFIX}Absent": {"namespace": "mimir"},
    f"{PREFIX}WebhookUnreachable": {"namespace": "default", "job": "apiserver"},
    f"{PREFIX}NoReplicaActs": {"namespace": "mimir"},
}


def render_page(given: Given, at: int) -> str:
    """Return the series at a time."""
    minutes = (at - START) / MINUTE

    def read(value: tuple[float | str, float] | Callable[[float], float]) -> float:
        if not isinstance(value, tuple):
            return value(minutes)
        begin, growth = value
        return float(START if begin == NOW else begin) + minutes * growth

    return "".join(f"{series} {read(value)!r}\n" for series, value in given.items())


def read_minutes(text: str) -> int:
    """Return a time such as `5m` or `1h` in minutes."""
    match = re.fullmatch(r"(\d+)([mh])", text)
    assert match
    return int(match[1]) * (60 if match[2] == "h" else 1)
