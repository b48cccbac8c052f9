"""Objects of Flux: what announces releases, and what is written when a release is deployed.

Only what decides is kept of them. They belong to others: nothing but the tag of an OCIRepository
and single variables of a Kustomization is ever written.
"""

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.releases.reference import Repository
from rollout_operator.model.releases.release import TagOrder
from rollout_operator.model.releases.rollout import ReleaseHead

IMAGE_POLICY: Final = "ImagePolicy"
IMAGE_REPOSITORY: Final = "ImageRepository"
OCI_REPOSITORY: Final = "OCIRepository"
KUSTOMIZATION: Final = "Kustomization"
TAG: Final = "tag"
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    OCI_REPOSITORY: ("spec", "ref"),
    KUSTOMIZATION: ("spec", "postBuild", "substitute"),
}
"""By kind, where the fields stand that may carry a tag."""

Writers = Mapping[str, tuple[str, ...]]
"""By field, its field managers."""


class AnnouncedTag(msgspec.Struct, frozen=True, kw_only=True):
    """The tag that an image policy selects now."""

    tag: str
    image: str = ""
    """The repository by name; empty where the policy does not say it."""
    digest: str | None = None


class FluxReference(msgspec.Struct, frozen=True, kw_only=True):
    """Another object, by kind, namespace and name."""

    kind: str
    namespace: str
    name: str


class ImagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What announces releases. Whether it is ready does not matter (REL-32)."""

    head: ReleaseHead
    repository: FluxReference
    latest: AnnouncedTag | None = None
    """None while no tag is selected."""
    order: TagOrder | None = None


class ImageRepository(msgspec.Struct, frozen=True, kw_only=True):
    """Where the images of a policy are, and how the registry is called."""

    head: ReleaseHead
    image: Repository
    pull_secret: str | None = None
    certificates: str | None = None
    """The Secret with the certificates for the registry."""
    proxy: str | None = None
    """The Secret with the address of a proxy."""
    provider: str = ""
    """The cloud that has the credentials; empty and `generic` are none."""
    is_insecure: bool = False


class FluxProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a controller of Flux has come with an object."""

    is_suspended: bool = False
    observed_generation: int = 0
    is_ready: bool = False
    message: str = ""
    """Of the condition `Ready`."""
    failed_generation: int = 0
    """Which generation it failed with: that is not observed until it succeeds."""
    revision: str = ""
    """What an OCIRepository fetched or a Kustomization applied last; empty for nothing."""


class AnnotationProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that cannot be obeyed."""

    rollout: str
    """The Rollout that it names, or seems to."""
    text: str


class FluxObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of Flux that may carry a tag: an OCIRepository, or a Kustomization with variables.

    Its fields are `tag`, `digest` and `semver` of `spec.ref`, or variables.
    """

    kind: str
    head: ReleaseHead
    api_version: str
    source: FluxReference | None = None
    """What a Kustomization applies."""
    rollouts: Mapping[str, str] = {}
    """By field, the Rollout that writes it: `tag`, or any variable."""
    values: Mapping[str, str] = {}
    """By field, what stands there; of variables those alone that any Rollout writes or wrote."""
    writers: Writers = {}
    progress: FluxProgress = FluxProgress()
    problems: tuple[AnnotationProblem, ...] = ()

    @property
    def reference(self) -> FluxReference:
        """Return what another object refers to it by."""
        return FluxReference(kind=self.kind, namespace=self.head.namespace, name=self.head.name)


@unique
class FluxWriteCode(StrEnum):
    """Why an object of Flux is written."""

    VALUE_SET = "value_set"
    """There was no value."""
    VALUE_MOVED = "value_moved"
    """The Rollout wrote the value that was there, or a writer that left no name."""
    VALUE_TAKEN = "value_taken"
    """Another writer wrote the value that was there."""
    CHOICE_CLEARED = "choice_cleared"
    """The tag would not count beside it (RELB-14)."""
    VALUE_KEPT = "value_kept"
    """Before the Rollout lets go of a value that only it holds: the API server would remove it."""
    VALUE_RELEASED = "value_released"
    """No annotation gives it to the Rollout any more."""


@unique
class PatchMethod(StrEnum):
    """How an object is written."""

    APPLY = "application/apply-patch+yaml"
    """Server-side apply: of the fields that the manager holds, what is left out is let go."""
    MERGE = "application/merge-patch+json"


class FluxWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write to one object."""

    kind: str
    head: ReleaseHead
    manager: str
    method: PatchMethod
    body: Mapping[str, object]
    """Names the UID, so that it reaches no object of the same name, and creates none."""
    is_forced: bool
    """Whether fields are taken from other managers."""
    code: FluxWriteCode
    text: str
    """Names object, fields, values and the writers whose values go."""


class FluxWrites(msgspec.Struct, frozen=True, kw_only=True):
    """What one Rollout has to write, in this order; nothing where all is as it should be."""

    writes: tuple[FluxWrite, ...] = ()
    problems: tuple[str, ...] = ()
    """Annotations of the same objects that cannot be obeyed."""
