"""What releases make of what Flux's controllers write, and whether our stand-in writes the same."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.decode.flux import decode_kustomization, decode_oci_repository
from rollout_operator.model.release_plan import ObjectStatus
from rollout_operator.planning.flux import map_flux_waits, name_manager
from rollout_operator.planning.health_checks import (
    assess_object,
    has_lasted,
    parse_inventory_id,
    track_failure,
)
from tests.flux.record import GENERATION, TIME, normalise, read_record
from tests.world.api import Json
from tests.world.flux import (
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    render_applied,
    render_fetched,
    render_inventory,
)

GRACE: Final = timedelta(minutes=2)
WRITTEN: Final = datetime.fromisoformat(TIME).astimezone(UTC)
ZONES: Final = ("db-zone-a", "db-zone-b", "db-zone-c")
FIRST: Final = "the first release is applied"
NEXT: Final = "the next release is applied"
BACK: Final = "rolled back"
RIGHT: Final = "a tag by hand is put right"
SHARED: Final = "Flux applies the objects as well"
DONE: Final = {FIRST: "1.0.0", NEXT: "1.1.0", BACK: "1.1.0", RIGHT: "1.4.0", SHARED: "1.4.0"}
UNKNOWN: Final = "it is not ready: failed to determine artifact digest: GET http://HOST/v2/"
NOT_BUILT: Final = "it is not ready: failed to decode Kubernetes YAML from /broken.yaml"
# By moment: the tag of the Rollout, and how each wait begins, the OCIRepository's first.
WAITS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **{moment: (tag, ()) for moment, tag in DONE.items()},
    "there is no such tag yet": (
        "1.0.0",
        (UNKNOWN, "it is not ready: Source artifact not found"),
    ),
    "the API server refuses manifests": (
        "1.2.0",
        ("it is not ready: ConfigMap/nowhere namespace not specified",),
    ),
    "manifests cannot be read": ("1.3.0", (NOT_BUILT,)),
    "the registry does not have the tag": ("1.4.0", (UNKNOWN, NOT_BUILT)),
}


@cache
def recorded() -> Json:
    return read_record()


def read(moment: str, kind: str) -> Json:
    """Return an object with a status as it was recorded, and the rest as a Rollout has it."""
    resource = OCI_REPOSITORIES if kind == "OCIRepository" else KUSTOMIZATIONS
    annotation = {
        "OCIRepository": "rollout.kuberik.com/rollout",
        "Kustomization": "rollout.kuberik.com/substitute.version.from",
    }[kind]
    return {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {
            "name": "app",
            "namespace": "prod",
            "uid": "u",
            "resourceVersion": "1",
            "generation": GENERATION,
            "annotations": {annotation: "app"},
        },
        "spec": {"sourceRef": {"kind": "OCIRepository", "name": "app"}},
        "status": recorded()["moments"][moment][kind],
    }


def test_all_moments_are_judged() -> None:
    assert recorded()["moments"].keys() == WAITS.keys()


@pytest.mark.parametrize("moment", WAITS)
def test_what_a_bake_waits_for(moment: str) -> None:
    """RELB-16: for what has yet to be fetched and applied, and with the error of Flux itself."""
    tag, expected = WAITS[moment]
    objects = (
        decode_oci_repository(msgspec.json.encode(read(moment, "OCIRepository"))),
        decode_kustomization(msgspec.json.encode(read(moment, "Kustomization"))),
    )
    waits = map_flux_waits("app", tag, objects)

    assert len(waits) == len(expected), waits
    for text, begin in zip(waits.values(), expected, strict=True):
        assert text.startswith(begin)
        assert text.isprintable()


@pytest.mark.parametrize("moment", WAITS)
def test_the_health_of_a_kustomization(moment: str) -> None:
    """RELB-37, REL-114: what fails is given the grace, and has failed after that."""
    tree = read(moment, "Kustomization")
    for age, failed in ((GRACE, ObjectStatus.IN_PROGRESS), (2 * GRACE, ObjectStatus.FAILED)):
        now = WRITTEN + age
        failure = track_failure(tree, None, now)
        counts = has_lasted(failure, now, GRACE)
        verdict = assess_object("app", tree, now, failure if counts else None).verdict
        assert verdict is not None
        assert verdict.status is (ObjectStatus.CURRENT if moment in DONE else failed)


def test_each_failure_of_flux_counts() -> None:
    """RELB-37: by its reason, while it tries again as well."""
    shown = [text for text in recorded()["passing"]["Kustomization"] if "Ready=False" in text]
    reasons = {text.partition("Ready=False ")[2].partition(",")[0] for text in shown}
    for reason in reasons:
        ready = {"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": TIME}
        tree = {**read(FIRST, "Kustomization"), "status": {"conditions": [ready]}}
        assert track_failure(tree, None, WRITTEN) is not None, reason
    assert reasons == {"ArtifactFailed", "BuildFailed", "ReconciliationFailed"}


def test_ids_of_an_inventory() -> None:
    """REL-109."""
    status = recorded()["moments"][NEXT]["Kustomization"]
    found = [parse_inventory_id(one["id"]) for one in status["inventory"]["entries"]]

    assert [(one.namespace, one.name, one.group, one.kind) for one in found] == [
        ("NAMESPACE", zone, "apps", "StatefulSet") for zone in ZONES
    ]


def test_our_manager_has_nothing_but_the_tag() -> None:
    """RELB-13: also beside Flux that applies the same objects by server-side apply."""
    managers, own = recorded()["managers"], f"{name_manager('app')} Apply"

    assert managers["OCIRepository"][own] == ["spec.ref.tag"]
    assert managers["Kustomization"][own] == ["spec.postBuild.substitute.version"]
    for kind in managers:
        flux = managers[kind]["kustomize-controller Apply"]
        assert not set(flux) & set(managers[kind][own])


@pytest.mark.parametrize(("moment", "tag"), [(FIRST, "1.0.0"), (NEXT, "1.1.0")])
def test_our_stand_in_writes_the_same(moment: str, tag: str) -> None:
    revision = f"{tag}@sha256:{tag}"
    applied = render_applied(revision, 3, TIME)
    applied["inventory"] = render_inventory("NAMESPACE", ZONES)
    written = {"OCIRepository": render_fetched(revision, 3, TIME), "Kustomization": applied}

    assert {kind: _normalise(status) for kind, status in written.items()} == recorded()["moments"][
        moment
    ]


def _normalise(status: Mapping[str, Any]) -> Json:
    return normalise({"metadata": {"generation": 3}, "status": status}, {})
