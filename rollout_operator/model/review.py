"""An admission review as far as it decides: which user changes what, from what, to what."""

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.names import Uid

# Names of service accounts have at most 339 characters.
MAX_USER: Final = 384


@unique
class Version(StrEnum):
    """Versions of AdmissionReview; the answer has the version of the question."""

    V1 = "admission.k8s.io/v1"
    V1BETA1 = "admission.k8s.io/v1beta1"


class Scalable(msgspec.Struct, frozen=True, kw_only=True):
    """An object with a replica count inside of a review: a workload, or the Scale of one."""

    kind: str
    """StatefulSet, Deployment, ReplicaSet or Scale."""
    uid: Uid = Uid("")
    resource_version: str = ""
    """Of the workload, also where it is its Scale."""
    replicas: int | None = None
    """None where it is absent; never None for a Scale."""
    labels: Mapping[str, str] = {}
    """Those that decide; a Scale has none."""
    annotations: Mapping[str, str] = {}
    """Those that decide."""
    has_annotations: bool = False
    """Whether it has a map of annotations, those that decide nothing included."""
    service_name: str = ""
    first_ordinal: int = 0
    """`spec.ordinals.start`; 0 for a Scale, which leaves it as it is."""


class Unusable(msgspec.Struct, frozen=True):
    """An object inside of a review that is absent, broken or of an unknown kind."""

    error: str


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the API server.

    `resource` is the plural of `request.resource`, such as `statefulsets`, and `subresource` such
    as `scale`. `dry_run` is False where the request leaves it out.
    """

    version: Version
    uid: str
    operation: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    user: str = ""
    """The user that sent the request, by the API server, on one line of at most `MAX_USER`."""
    old: Scalable | Unusable
    new: Scalable | Unusable
    body: bytes = b""
    """`request.object` as it came where `new` is Unusable: for hooks on other kinds of objects."""
    sent: bytes = b""
    """The question in JSON with all that decides, only where it may be sent to another replica."""
