"""Several namespaces as one: `namespaces.txt`."""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.description import Description, OperatorDescription, PolicyDescription
from rollout_operator.planning.describe_groups import merge_descriptions, select_namespace
from rollout_operator.planning.text import render_description
from tests.stories import check_tables
from tests.web.status.descriptions import NOW, budget, group, release, release_schedule

PROCESS: Final = OperatorDescription(version="9", is_ready=True, is_acting=True)
OWN: Final = Description(namespace="ops", now=NOW, operator=PROCESS)
SICK: Final = replace(PROCESS, is_ready=False, is_acting=False, missing=("pods watch: forbidden",))
FILLED: Final = Description(
    namespace="", now=NOW, operator=PROCESS, groups=(group(zones=()),), budgets=(budget(),)
)
SPACES: Final = {
    "loki": Description(namespace="loki", now=NOW, operator=SICK),
    "mimir": replace(FILLED, namespace="mimir"),
    "other": replace(FILLED, namespace="other"),
}
# What is of the cluster stands once, whoever shows it.
EVERYWHERE: Final = replace(release_schedule(), namespace="")


def _read_space(word: str) -> Description:
    """Return a namespace such as `mimir+obeying+making`, of policies or releases."""
    name, *more = word.split("+")
    found = SPACES[name]
    if "obeying" in more:
        one = PolicyDescription(name="db", namespace=name, phase="Idle", headline="")
        found = replace(found, policies=(one,))
    if "making" in more:
        one_release = replace(release(), namespace=name)
        found = replace(found, releases=(one_release,), schedules=(EVERYWHERE,), health_checks=())
    return found


def show(text: str) -> str:
    """Return what a process shows of namespaces, or of the first one out of all."""
    chosen, _, words = text.rpartition(" of ")
    spaces = [*map(_read_space, words.split())]
    found = merge_descriptions(OWN, spaces)
    if chosen == "lines":
        return "\n".join(line for line in render_description(found) if line[:1] != " ")
    if chosen == "alone":  # the description of one namespace stays as it is
        assert select_namespace(spaces[0], "elsewhere") is spaces[0]
        found = spaces[0]
    elif chosen:
        one = select_namespace(found, chosen)
        if one is None:
            return "none"
        found = one
    assert found.operator is not None
    lists = {
        "groups": found.groups,
        "budgets": found.budgets,
        "policies": found.policies,
        "releases": found.releases,
        "schedules": found.schedules,
        "checks": found.health_checks,
    }
    shown = [
        f"{name} {' '.join(one.title for one in items) or 'none'}"
        for name, items in lists.items()
        if items is not UNSET
    ]
    ready = [f"{one.name} {'ready' if one.is_ready else 'not ready'}" for one in found.namespaces]
    process = "ready" if found.operator.is_ready else "not ready"
    return "; ".join([f"{found.namespace} {process}", *ready, *shown])


test_case = check_tables(__file__, namespaces=show)
