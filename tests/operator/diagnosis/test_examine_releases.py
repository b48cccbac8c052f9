"""What `doctor` reads of releases, and what it leaves alone."""

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.diagnosis import FindingCode, Source
from rollout_operator.model.names import NotFound
from rollout_operator.model.release_plan import ReleaseObjects
from rollout_operator.operator.examine import examine
from tests.operator.diagnosis.test_examine import NAMESPACE, NOW, Cluster, deployment, read

ON = "-releases.enabled"


def named(kind: str, name: str, spec: JsonObject) -> JsonObject:
    own = {} if kind.startswith("Cluster") else {"namespace": NAMESPACE}
    head: JsonObject = {"name": name, "uid": name, "resourceVersion": "1", **own}
    return {"kind": kind, "metadata": head, "spec": spec}


def making() -> Cluster:
    """Return a cluster whose operator makes releases, with a Rollout."""
    cluster = Cluster()
    cluster.put("deployments", deployment(ON))
    spec: JsonObject = {"releasesImagePolicy": {"name": "app"}}
    cluster.put("rollouts", named("Rollout", "app", spec=spec))
    return cluster


async def test_without_releases_one_kind_is_listed() -> None:
    cluster = Cluster()
    listed: list[str] = []
    cluster.before = listed.append
    installation = await read(cluster)

    assert installation.releases == ReleaseObjects()
    kinds = ("rollout", "health", "cluster", "image", "oci", "kustom")
    of_releases = [one.split()[1] for one in listed if one.split()[1].startswith(kinds)]
    assert of_releases == ["rollouts"]


async def test_objects_of_releases_are_read() -> None:
    cluster = making()
    gate: JsonObject = {"rolloutRef": {"name": "app"}, "passing": True}
    cluster.put("rolloutgates", named("RolloutGate", "freeze", spec=gate))
    rules = [{"name": "x"}]
    for plural, kind in (
        ("rolloutschedules", "RolloutSchedule"),
        ("clusterrolloutschedules", "ClusterRolloutSchedule"),
    ):
        spec: JsonObject = {"rolloutSelector": {}, "rules": rules}
        cluster.put(plural, named(kind, "nights", spec=spec))
    repository: JsonObject = {"image": "example.com/app", "secretRef": {"name": "pull"}}
    cluster.put("imagerepositories", named("ImageRepository", "app", spec=repository))
    cluster.put("healthchecks", named("HealthCheck", "app", spec={"class": "kustomization"}))
    installation = await read(cluster)
    releases = installation.releases

    assert [one.head.name for one in releases.rollouts] == ["app"]
    assert [one.rollout for one in releases.gates] == ["app"]
    assert [one.kind for one in releases.schedules] == ["RolloutSchedule", "ClusterRolloutSchedule"]
    assert (releases.absent, installation.kuberik) == ((), ())
    requested = {
        review["spec"]["resourceAttributes"]["resource"]  # type: ignore[index]  # JSON
        for review in cluster.reviews
        if "spec" in review
    }
    assert requested >= {"rollouts", "clusterrolloutschedules", "secrets", "kustomizations"}
    assert requested >= {"deployments", "jobs"}  # of what the HealthCheck looks at


async def test_kinds_that_are_not_there_are_named_in_whatever_version() -> None:
    cluster = making()

    def lacks(call: str) -> None:
        if call.split()[1] in {"rolloutgates", "imagepolicies"}:
            raise NotFound(call, status=404)

    cluster.before = lacks
    installation = await read(cluster)

    assert installation.releases.absent == ("RolloutGate", "ImagePolicy")
    assert installation.unread == {}


async def test_objects_are_read_in_the_version_that_is_there() -> None:
    cluster = making()
    spec: JsonObject = {"image": "example.com/app"}
    cluster.put("imagerepositories", named("ImageRepository", "app", spec=spec))
    requested: list[str] = []

    def lacks_the_newest(call: str) -> None:
        requested.append(call)
        if "imagerepositories" in call and requested.count(call) == 1:
            raise NotFound(call, status=404)

    cluster.before = lacks_the_newest
    releases = (await read(cluster)).releases

    assert [one.head.name for one in releases.repositories] == ["app"]
    assert releases.absent == ()


@pytest.mark.parametrize(
    ("flag", "denied", "missed"),
    [
        ("true", "rollouts", {Source.RELEASES}),
        ("false", "rollouts", set()),
        ("true", "rolloutgates", {Source.RELEASES}),
        ("true", "kustomizations", {Source.FLUX}),
        ("true", "clusterrolloutschedules", set()),
    ],
)
async def test_they_are_missed_only_where_they_are_made(
    flag: str, denied: str, missed: set[Source]
) -> None:
    """Most users need no right to read them, and a check that is skipped may count as a failure."""
    cluster = Cluster(denied=(denied,))
    cluster.put("deployments", deployment(f"{ON}={flag}"))

    assert (await read(cluster)).unread.keys() == missed


async def test_rollouts_that_no_operator_makes_are_read_all_the_same() -> None:
    cluster = making()
    cluster.put("deployments", deployment(f"{ON}=false"))

    assert (await examine(cluster, NAMESPACE, NOW)).has(FindingCode.RELEASES_NOT_MADE)


async def test_kuberiks_controller_is_found_by_its_image_unless_it_is_scaled_to_nothing() -> None:
    cluster = making()
    other = deployment()
    other["metadata"] = {"name": "rollout-controller", "namespace": "kuberik-system"}
    spec = other["spec"]
    assert isinstance(spec, dict)
    spec["template"]["spec"]["containers"][0]["image"] = "ghcr.io/kuberik/rollout-controller:v1"
    cluster.put("deployments", other)
    assert (await examine(cluster, NAMESPACE, NOW)).has(FindingCode.RELEASES_MADE_TWICE)

    spec["replicas"] = 0
    cluster.put("deployments", other)
    assert not (await examine(cluster, NAMESPACE, NOW)).has(FindingCode.RELEASES_MADE_TWICE)


async def test_a_rollout_that_cannot_be_read_is_named_and_holds_no_check_of_others() -> None:
    """Its status may have been written by hand: a time that is none, for one."""
    cluster = making()
    broken = named("Rollout", "broken", spec={"releasesImagePolicy": {"name": "app"}})
    history = [{"version": {"tag": "1.0.0"}, "timestamp": "yesterday"}]
    cluster.put("rollouts", {**broken, "status": {"history": history}})
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    found = {(finding.code, finding.object): finding.text for finding in diagnosis.findings}
    refused = found[FindingCode.RELEASE_REFUSED, "Rollout broken"]
    assert "status.history[0].timestamp" in refused
    assert not any(title == "Rollout app" for _, title in found)
    assert not [skipped for skipped in diagnosis.skipped if "broken" in skipped.why]


@pytest.mark.parametrize(
    ("plural", "kind"),
    [
        ("rolloutgates", "RolloutGate"),
        ("healthchecks", "HealthCheck"),
        ("imagepolicies", "ImagePolicy"),
        ("imagerepositories", "ImageRepository"),
        ("ocirepositories", "OCIRepository"),
        ("kustomizations", "Kustomization"),
    ],
)
async def test_an_object_that_cannot_be_read_is_named_and_holds_no_check_of_others(
    plural: str, kind: str
) -> None:
    cluster = making()
    broken = named(kind, "broken", spec={})
    cluster.put(plural, {**broken, "spec": "text", "status": "text"})
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    found = {(finding.code, finding.object): finding.text for finding in diagnosis.findings}
    assert f"{kind} " in found[FindingCode.RELEASE_OBJECT_UNREADABLE, f"{kind} broken"]
    assert not any(title == "Rollout app" for _, title in found)
    assert not [skipped for skipped in diagnosis.skipped if "broken" in skipped.why]
