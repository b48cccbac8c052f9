"""The operator's own pages, for this machine only.

What they show is decided in `web.admin`. A demo has no reason to be seen by a network.
"""

from typing import Final

from rollout_operator.operator.context import Telemetry
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.http.cluster import ClusterRules

HOST: Final = "127.0.0.1"


def make_admin(port: int, namespace: str, telemetry: Telemetry) -> AdminServer:
    """Return the server of one operator, to be started on HOST; port 0 takes a free one."""
    return AdminServer(
        port,
        metrics=telemetry.metrics,
        health=telemetry.health,
        cluster=ClusterRules(namespace=namespace),
        group_states=telemetry.group_states,
    )


def render_url(admin: AdminServer) -> str:
    """Return the URL of the status page. Only between `start` and `stop`."""
    return f"http://{HOST}:{admin.port}/"
