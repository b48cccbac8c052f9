"""Which StatefulSets have a template that their controller has not seen."""

from copy import deepcopy

import pytest
from rollout_lab.simulate.templates import is_template_seen

from tests.lab.simulate.dumps import Json

HASH = "controller-revision-hash"
TEMPLATE: Json = {
    "metadata": {"labels": {"app": "x"}, "creationTimestamp": None},
    "spec": {
        "containers": [{"name": "app", "image": "v1", "env": [{"name": "A", "value": "1"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    },
}


def _set(*, observed: int = 1, generation: int = 2) -> Json:
    return {
        "metadata": {"name": "web", "generation": generation},
        "spec": {"template": deepcopy(TEMPLATE)},
        "status": {"observedGeneration": observed, "updateRevision": "web-2"},
    }


def _pod(revision: str = "web-2") -> Json:
    """Return a pod as admission leaves it: with more of everything."""
    pod = deepcopy(TEMPLATE)
    pod["metadata"]["labels"] |= {HASH: revision, "pod-index": "0"}
    pod["metadata"]["annotations"] = {"seen": "by admission"}
    pod["spec"]["containers"][0] |= {"volumeMounts": [{"name": "token"}]}
    pod["spec"]["containers"].append({"name": "sidecar", "image": "s"})
    pod["spec"]["volumes"].insert(0, {"name": "token", "projected": {}})
    pod["spec"]["nodeName"] = "node-1"
    return pod


def test_a_status_that_has_caught_up_has_seen_it() -> None:
    assert is_template_seen(_set(observed=2), [])


def test_a_pod_of_the_newest_revision_that_was_made_of_it_shows_it() -> None:
    """Another count of replicas leaves the status behind, and the template as it was."""
    assert is_template_seen(_set(), [_pod("web-1"), _pod()])


@pytest.mark.parametrize("pods", [[], [_pod("web-1")]], ids=["no pod", "an older one"])
def test_where_no_pod_says_it_may_be_new(pods: list[Json]) -> None:
    assert not is_template_seen(_set(), pods)


@pytest.mark.parametrize("what", ["image", "env", "annotation", "volume"])
def test_a_template_of_which_pods_have_not_everything_is_new(what: str) -> None:
    sts = _set()
    template = sts["spec"]["template"]
    match what:
        case "image":
            template["spec"]["containers"][0]["image"] = "v2"
        case "env":
            template["spec"]["containers"][0]["env"][0]["value"] = "2"
        case "annotation":
            template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}
        case _:
            template["spec"]["volumes"].append({"name": "more", "emptyDir": {}})

    assert not is_template_seen(sts, [_pod()])
