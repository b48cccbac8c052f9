"""What the dashboard and the alerts of grafana/rollout-operator and of Mimir read of our series.

Each metric by what they select and sum by, as the deployment contract lists them; what other
exporters have, such as the use of a container, is left out.
"""

from typing import Final

_JOB: Final = 'cluster=~"$cluster", job=~"($namespace)/(rollout-operator)"'
_ROUTES: Final = f'{_JOB}, route=~"admission.*"'
_STEP: Final = "$__rate_interval"


def _rates(metric: str, selector: str, *by: str) -> list[str]:
    series = f"rate(rollout_operator_{metric}{{{selector}}}[{_STEP}])"
    return [f"sum by ({each}) ({series})" for each in by]


def _durations(metric: str, selector: str, by: str) -> list[str]:
    buckets = f"rate(rollout_operator_{metric}_bucket{{{selector}}}[{_STEP}])"
    sums, counts = (
        f"sum by ({by}) (rate(rollout_operator_{metric}_{end}{{{selector}}}[{_STEP}]))"
        for end in ("sum", "count")
    )
    quantiles = [
        f"histogram_quantile({share}, sum by (le, {by}) ({buckets}))" for share in (0.5, 0.99)
    ]
    return [*quantiles, f"{sums} / {counts}"]


_REQUESTS: Final = "request_duration_seconds"
_CALLS: Final = "kubernetes_api_client_request_duration_seconds"
DASHBOARD: Final = (
    *_rates(f"{_REQUESTS}_count", _ROUTES, "status_code", "route"),
    *_durations(_REQUESTS, _ROUTES, "route"),
    *_rates("group_reconciles_total", _JOB, "rollout_group"),
    *_rates("group_reconciles_failed_total", _JOB, "rollout_group"),
    *_durations("group_reconcile_duration_seconds", _JOB, "rollout_group"),
    "time() - max by (namespace, rollout_group) (rollout_operator_last_successful_group_reconcile_"
    f"timestamp_seconds{{{_JOB}}})",
    *_rates(f"{_CALLS}_count", _JOB, "status_code", "method, path"),
    *_durations(_CALLS, _JOB, "method, path"),
    *_rates(
        "zpdb_configurations_observed_total", f'{_JOB}, result!~".*ignored"', "namespace, result"
    ),
    *_rates("zpdb_eviction_requests_total", _JOB, "status"),
    f"sum by (namespace) (rollout_operator_zpdb_inflight_eviction_requests{{{_JOB}}})",
)
# Without their comparisons.
ALERTS: Final = (
    "count by (type, webhook, namespace) (kube_validating_webhook_failure_policy"
    '{policy="Ignore", webhook=~"^(pod-eviction|zpdb-validation).+"})',
    "sum by (job, namespace) (rate(rollout_operator_zpdb_configurations_observed_total"
    '{result="invalid"}[5m]))',
    "avg_over_time(rollout_operator_zpdb_inflight_eviction_requests[5m])",
    "max by (namespace, rollout_group) (time() - "
    "rollout_operator_last_successful_group_reconcile_timestamp_seconds)",
)
