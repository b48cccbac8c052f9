"""Since when a pod is ready, where its own status does not say."""

from datetime import datetime, timedelta

import pytest

from rollout_operator.model.decode.objects import decode_pod
from tests.model.wire_trees import SINCE_READ, as_json, pod_tree, with_metadata


@pytest.mark.parametrize(
    ("written", "since"),
    [
        pytest.param("2026-01-01T00:00:40Z", SINCE_READ + timedelta(seconds=10), id="as it says"),
        pytest.param("soon", None, id="and a value that is no time blocks nothing"),
    ],
)
def test_w38_zpdb47_the_annotation_of_earlier_releases_is_read_where_the_condition_has_no_time(
    written: str, since: datetime | None
) -> None:
    """ZPDB-47."""
    without = {"type": "Ready", "status": "True", "lastTransitionTime": None}
    notes = {"grafana.com/ready-time": written}
    tree = with_metadata(pod_tree(conditions=[without]), annotations=notes)
    assert decode_pod(as_json(tree)).ready_since == since
    tree = with_metadata(pod_tree(), annotations=notes)
    assert decode_pod(as_json(tree)).ready_since == SINCE_READ
