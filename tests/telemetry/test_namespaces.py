"""The series of several namespaces, beside those of their process (MAZ-60)."""

from rollout_operator.telemetry.metrics import Metrics


def render(metrics: Metrics) -> list[str]:
    return b"".join(metrics.render()).decode().splitlines()


def test_maz60_series_of_a_namespace_name_it_and_those_of_the_process_do_not() -> None:
    process = Metrics()
    alone = render(process)
    for namespace in ("a", "b"):
        metrics = process.for_namespace(namespace)
        metrics.begin_group("ingester")
        metrics.queue_depth.set(2)
        metrics.api_rate_limited.labels("core").inc()
        metrics.watch_events.labels("Pod", "ADDED").inc()
    process.watch_events.labels("ValidatingWebhookConfiguration", "ADDED").inc()

    lines = render(process)

    series = "rollout_operator_group_reconciles_total"
    for namespace in ("a", "b"):
        assert f'{series}{{namespace="{namespace}",rollout_group="ingester"}} 0' in lines
        assert f'rollout_operator_queue_depth{{namespace="{namespace}"}} 2' in lines
    limited = "rollout_operator_kubernetes_api_client_rate_limited_requests_total"
    assert f'{limited}{{api_group="core"}} 2' in lines, "of all of them together"
    assert (
        'rollout_operator_watch_events_total{kind="ValidatingWebhookConfiguration",type="ADDED"} 1'
        in lines
    )
    assert "rollout_operator_queue_depth 0" not in lines, "the process has no queue"
    heads = [line for line in lines if line.startswith("# TYPE")]
    assert len(heads) == len({*heads}), "each family is one block"
    assert heads == [line for line in alone if line.startswith("# TYPE")]


def test_maz60_one_namespace_is_shown_as_ever() -> None:
    """Nothing is labelled where there is nothing to distinguish."""
    metrics = Metrics()
    metrics.begin_group("ingester")

    assert 'rollout_operator_group_reconciles_total{rollout_group="ingester"} 0' in render(metrics)
