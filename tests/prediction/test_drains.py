"""What a drain under way has still to do, in the words that `simulate` takes."""

import pytest

from tests.prediction.drains import render_rest
from tests.world.api import Json


def _pod(name: str, node: str, *, is_ready: bool = True) -> Json:
    ready = {"type": "Ready", "status": str(is_ready)}
    container = {"name": "app", "ready": is_ready, "state": {"running": {}}}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
    }


WAITS = [_pod("a-0", "n0"), _pod("a-1", "n1")]
STARTS = [_pod("a-0", "spare", is_ready=False), _pod("a-1", "n1")]


@pytest.mark.parametrize(
    ("nodes", "refused", "pods", "printed"),
    [
        pytest.param(["n0", "n1"], ["a-0"], WAITS, ["drain n0 n1 at 0.00s"], id="it waits"),
        pytest.param(["n0", "n1"], ["a-0"], STARTS, ["drain spare n1 at 3.00s"], id="by name"),
        pytest.param(["n0", "n1"], [], STARTS, ["drain n1 at 3.00s"], id="it was let go"),
        pytest.param(["n1"], ["a-1"], WAITS[:1], [], id="nothing is left"),
    ],
)
def test_the_rest_of_a_drain_is_another_one(
    nodes: list[str], refused: list[str], pods: list[Json], printed: list[str]
) -> None:
    assert list(render_rest(nodes, {"a-0": 3.0}, refused, pods)) == printed
