"""The kinds that releases read and write: those of `kuberik.com`, and those of Flux.

Of a kind with several versions the first that the cluster serves is followed.
"""

from typing import Final

from rollout_operator.kube.api import Resource

_GROUP: Final = "kuberik.com"
_VERSION: Final = "v1alpha1"
ROLLOUTS: Final = Resource(_GROUP, _VERSION, "rollouts", "Rollout")
ROLLOUT_GATES: Final = Resource(_GROUP, _VERSION, "rolloutgates", "RolloutGate")
HEALTH_CHECKS: Final = Resource(_GROUP, _VERSION, "healthchecks", "HealthCheck")
ROLLOUT_SCHEDULES: Final = Resource(_GROUP, _VERSION, "rolloutschedules", "RolloutSchedule")
CLUSTER_ROLLOUT_SCHEDULES: Final = Resource(
    _GROUP, _VERSION, "clusterrolloutschedules", "ClusterRolloutSchedule", False
)

_IMAGES: Final = "image.toolkit.fluxcd.io"
IMAGE_POLICIES: Final = tuple(
    Resource(_IMAGES, version, "imagepolicies", "ImagePolicy") for version in ("v1", "v1beta2")
)
IMAGE_REPOSITORIES: Final = tuple(
    Resource(_IMAGES, version, "imagerepositories", "ImageRepository")
    for version in ("v1", "v1beta2")
)
OCI_REPOSITORIES: Final = tuple(
    Resource("source.toolkit.fluxcd.io", version, "ocirepositories", "OCIRepository")
    for version in ("v1", "v1beta2")
)
KUSTOMIZATIONS: Final = (
    Resource("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", "Kustomization"),
)
