"""Releases in the chart: by which flags, and by which rights."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import read_environment
from tests.chart.rendering import ChartError, Values, render_chart
from tests.chart.test_chart_grafana_values import CONTAINER
from tests.rendered import MANIFESTS, NAMESPACE, get_field, granted

pytestmark = pytest.mark.controlplane

NAME: Final = "rollout-operator"
INVENTORY: Final = f"{NAME}-{NAMESPACE}-inventory"
WIDE: Final = f"{NAME}-{NAMESPACE}-releases"
SECRETS: Final = ("secrets", "get", "")


def releases(**values: Any) -> Values:
    return {"releases": {"enabled": True, **values}, "webhooks": {"enabled": False}}


def _grants(component: str) -> set[tuple[str, str, str]]:
    """Return what a component of the manifests grants."""
    folder = Path(MANIFESTS / "components" / component)
    files = [*folder.glob("*role.yaml"), *folder.glob("kinds.yaml")]
    return set().union(*(granted(yaml.safe_load(file.read_text())) for file in files))


def _roles(values: Values) -> dict[str, set[tuple[str, str, str]]]:
    return {
        one["metadata"]["name"]: granted(one)
        for one in render_chart(values)
        if one["kind"] in ("Role", "ClusterRole")
    }


def _args(values: Values) -> list[str]:
    (deployment,) = [one for one in render_chart(values) if one["kind"] == "Deployment"]
    args: list[str] = get_field(deployment, f"{CONTAINER}.args")
    config = read_config(args, read_environment({}, NAMESPACE))
    assert config.drives_releases
    return [one for one in args if one.startswith("-releases")]


def test_relb_28_rights_are_those_of_the_components() -> None:
    """RELB-28: what a component is for has a value of its own."""
    before = _roles({"webhooks": {"enabled": False}})[NAME]
    parts = ("releases", "releases-registries")
    wanted = set().union(*map(_grants, parts))
    assert _roles(releases())[NAME] - before == wanted - before

    least = _roles(releases(readPullSecrets=False, readInventory=False))
    assert least[NAME] - before == _grants("releases") - before
    assert not {WIDE, INVENTORY} & least.keys()
    assert _roles(releases())[f"{INVENTORY}-kinds"] == _grants("releases-inventory")
    assert SECRETS not in _roles(releases(metadata="none"))[NAME]
    assert _roles(releases(clusterSchedules=True))[WIDE] == _grants("releases-cluster")


def test_people_may_have_rights_for_the_kinds() -> None:
    """REL-118: by the roles of the cluster, and only where releases are enabled."""
    people = {"rbac": {"aggregateToDefaultRoles": True}}
    kinds = ("rollouts", "rolloutgates", "rolloutschedules", "healthchecks")
    for role, verbs in (("view", ("get", "list", "watch")), ("edit", ("create", "delete"))):
        wanted = {(kind, verb, "") for kind in kinds for verb in verbs}
        name = f"{NAME}-{NAMESPACE}-{role}"
        assert wanted <= _roles({**releases(), **people})[name]
        assert not wanted & _roles({"webhooks": {"enabled": False}, **people})[name]


def test_what_is_required_is_a_flag() -> None:
    assert _args(releases()) == ["-releases.enabled=true"]
    assert _args(releases(compat="kuberik", metadata="none")) == [
        "-releases.enabled=true",
        "-releases.compat=kuberik",
        "-releases.metadata=none",
    ]


@pytest.mark.parametrize("values", [{"compat": "flux"}, {"metadata": "all"}, {"more": True}])
def test_bad_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ChartError, match="releases"):
        render_chart(releases(**values))
