"""JSON of objects of Flux: both versions of its API, and what is refused by its name."""

from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.decode.flux import (
    decode_image_policy,
    decode_image_repository,
    decode_kustomization,
    decode_oci_repository,
)
from rollout_operator.model.decode.objects import decode_field_writers
from rollout_operator.model.names import DecodeError
from rollout_operator.model.release_plan import AnnouncedTag, FluxProgress, FluxReference
from rollout_operator.model.releases import PolicyOrder, TagOrder
from tests.model.decode.releases.trees import as_json

DIGEST: Final = f"sha256:{'a' * 64}"
NAMED: Final = {"imageRepositoryRef": {"name": "app"}}
SOURCE: Final = {"sourceRef": {"kind": "OCIRepository", "name": "app"}}
PLACE: Final = "rollout.kuberik.com/substitute."


def latest(status: dict[str, Any] | None) -> AnnouncedTag | None:
    return decode_image_policy(as_json(NAMED, status=status)).latest


def test_a_policy_of_the_current_version() -> None:
    """REL-24."""
    spec = {
        "imageRepositoryRef": {"name": "app", "namespace": "images"},
        "policy": {"semver": {"range": ">=1.0.0"}},
    }
    status = {"latestRef": {"name": "ghcr.io/team/app", "tag": "1.2.3", "digest": DIGEST}}
    policy = decode_image_policy(as_json(spec, status=status))

    assert policy.repository == FluxReference(
        kind="ImageRepository", namespace="images", name="app"
    )
    assert policy.latest == AnnouncedTag(tag="1.2.3", image="ghcr.io/team/app", digest=DIGEST)
    assert policy.order == TagOrder(by=PolicyOrder.SEMVER)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(None, None, id="REL-24 not reconciled yet"),
        pytest.param({"latestRef": {"name": "a"}}, None, id="REL-24 it selects none"),
        pytest.param(
            {"latestImage": "ghcr.io/team/app:1.0"},
            AnnouncedTag(tag="1.0", image="ghcr.io/team/app"),
            id="RELB-27 the text of before",
        ),
        pytest.param(
            {"latestImage": "ghcr.io/team/app:1.0", "latestRef": {"name": "x", "tag": "2.0"}},
            AnnouncedTag(tag="2.0", image="x"),
            id="RELB-27 both",
        ),
        pytest.param(
            {"conditions": [{"type": "Ready", "status": "False"}], "latestRef": {"tag": "1"}},
            AnnouncedTag(tag="1"),
            id="REL-32 whether it is ready does not matter",
        ),
    ],
)
def test_what_a_policy_announces(
    status: dict[str, Any] | None, expected: AnnouncedTag | None
) -> None:
    assert latest(status) == expected


def test_a_policy_is_of_its_own_namespace_and_may_have_another_order() -> None:
    """REL-24: what orders tags here is known for sure, or taken from announcements."""
    policy = decode_image_policy(as_json({**NAMED, "policy": {"moonPhase": {}}}))

    assert (policy.repository.namespace, policy.order) == ("prod", None)


HASHED: Final = {"pattern": "^(?P<v>.*)-[0-9a-f]{7}$", "extract": "$v"}


@pytest.mark.parametrize(
    ("choice", "tags", "expected"),
    [
        ({"numerical": {"order": "asc"}}, None, TagOrder(by=PolicyOrder.NUMERICAL)),
        ({"numerical": {}}, {}, TagOrder(by=PolicyOrder.NUMERICAL)),
        (
            {"alphabetical": {"order": "desc"}},
            {"pattern": "^main-"},
            TagOrder(by=PolicyOrder.ALPHABETICAL, is_descending=True, pattern="^main-"),
        ),
        (
            {"semver": {"range": "*"}},
            HASHED,
            TagOrder(by=PolicyOrder.SEMVER, pattern=HASHED["pattern"], extract="$v"),
        ),
        (
            {"numerical": {"order": "desc"}, "semver": {"range": "*"}},
            None,
            TagOrder(by=PolicyOrder.SEMVER),
        ),
        ({"semver": None, "numerical": {"order": None}}, None, TagOrder(by=PolicyOrder.NUMERICAL)),
        ({}, HASHED, None),
        (None, None, None),
    ],
)
def test_how_a_policy_compares_tags(
    choice: dict[str, Any] | None, tags: dict[str, Any] | None, expected: TagOrder | None
) -> None:
    """RELB-03: of several choices Flux takes versions, then texts, then numbers."""
    policy = decode_image_policy(as_json({**NAMED, "policy": choice, "filterTags": tags}))

    assert policy.order == expected


@pytest.mark.parametrize(
    ("choice", "tags", "problem"),
    [
        (
            {"semver": {"range": "*"}},
            {"pattern": "("},
            'spec.filterTags: {"pattern": "(", "extract": null}: missing ): (',
        ),
        (
            {"semver": {"range": "*"}},
            {"pattern": "(?=x)"},
            'spec.filterTags: {"pattern": "(?=x)", "extract": null}: invalid perl operator: (?=',
        ),
        (
            {"semver": {"range": "*"}},
            {"extract": "$v" * 129},
            'spec.filterTags: {"pattern": null, "extract": "$v$v$v',
        ),
        (
            {"numerical": {"order": "up"}},
            None,
            'spec.policy.numerical.order: "up" is neither asc nor desc',
        ),
    ],
)
def test_what_compares_no_tags_says_why(
    choice: dict[str, Any], tags: dict[str, Any] | None, problem: str
) -> None:
    """RELB-03: what is announced already, and a pin, count all the same."""
    spec = {**NAMED, "policy": choice, "filterTags": tags}
    policy = decode_image_policy(as_json(spec, status={"latestRef": {"tag": "1"}}))

    assert policy.latest is not None
    assert policy.order is not None
    assert policy.order.problem.startswith(f"ImagePolicy prod/app: {problem}")


@pytest.mark.parametrize(
    ("spec", "status", "problem"),
    [
        (None, None, "object missing required field spec"),
        ({}, None, "spec: object missing required field imageRepositoryRef"),
        (NAMED, {"latestRef": {"tag": 7}}, "status.latestRef.tag: expected str, got int: 7"),
        (NAMED, {"latestRef": {"tag": "../x"}}, 'status.latestRef: "../x" is no tag: up to 128 of'),
        (NAMED, {"latestRef": {"tag": "1", "digest": "md5:1"}}, 'status.latestRef: "md5:1" is no'),
        (NAMED, {"latestImage": "ghcr.io/app"}, 'status.latestImage: "ghcr.io/app" has no tag'),
        (NAMED, {"latestImage": "https://a:1"}, 'status.latestImage: "https://a:1" is no name of'),
    ],
)
def test_a_policy_that_cannot_be_read(spec: Any, status: Any, problem: str) -> None:
    """REL-24: object, field and value."""
    with pytest.raises(DecodeError) as caught:
        decode_image_policy(as_json(spec, status=status))

    assert str(caught.value).startswith(f"ImagePolicy prod/app: {problem}")


def test_where_images_are() -> None:
    """REL-25."""
    spec = {
        "image": "ghcr.io/team/app",
        "secretRef": {"name": "pull"},
        "certSecretRef": {"name": "ca"},
        "proxySecretRef": {"name": "proxy"},
        "provider": "generic",
        "insecure": True,
    }
    found = decode_image_repository(as_json(spec))

    assert (str(found.image), found.pull_secret, found.certificates, found.proxy) == (
        "ghcr.io/team/app", "pull", "ca", "proxy",
    )  # fmt: skip
    assert (found.provider, found.is_insecure) == ("generic", True)
    plain = decode_image_repository(as_json({"image": "ghcr.io/team/app", "secretRef": None}))
    assert (plain.pull_secret, plain.provider, plain.is_insecure) == (None, "", False)


@pytest.mark.parametrize("image", ["ghcr.io/team/app:1", "", "https://ghcr.io/app"])
def test_what_is_no_repository_is_refused(image: str) -> None:
    """REL-25."""
    with pytest.raises(DecodeError, match=r"^ImageRepository prod/app: spec\.image: "):
        decode_image_repository(as_json({"image": image}))


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_an_artifact_with_its_tag_and_its_progress(version: str) -> None:
    """REL-27: what is written goes back in the version that was read."""
    api_version = f"source.toolkit.fluxcd.io/{version}"
    status = {
        "observedGeneration": 3,
        "artifact": {"revision": f"1.0.0@{DIGEST}"},
        "conditions": [{"type": "Ready", "status": "True", "message": "stored"}],
    }
    found = decode_oci_repository(
        as_json(
            {"ref": {"tag": "1.0.0", "digest": "", "semver": "1.x"}, "suspend": True},
            apiVersion=api_version,
            annotations={"rollout.kuberik.com/rollout": "web"},
            status=status,
        )
    )

    assert (found.kind, found.api_version, found.rollouts) == (
        "OCIRepository", api_version, {"tag": "web"}
    )  # fmt: skip
    assert found.values == {"tag": "1.0.0", "semver": "1.x"}
    assert found.progress == FluxProgress(
        is_suspended=True,
        observed_generation=3,
        is_ready=True,
        message="stored",
        revision=f"1.0.0@{DIGEST}",
    )


def test_a_tag_below_another_field_is_none() -> None:
    """REL-31: of the two spellings in kuberik's examples Flux has `spec.ref`."""
    found = decode_oci_repository(
        as_json({"reference": {"tag": "1.0.0"}}, apiVersion="source.toolkit.fluxcd.io/v1")
    )

    assert found.values == {}


def test_objects_that_flux_has_not_reconciled() -> None:
    """REL-27 and REL-28: Flux begins with the generation -1."""
    status = {"observedGeneration": -1}

    assert decode_oci_repository(as_json({}, status=status)).progress == FluxProgress()
    assert decode_kustomization(as_json(SOURCE, status=status)).progress == FluxProgress()


@pytest.mark.parametrize(("status", "failed"), [("False", 4), ("Unknown", 0), ("True", 0)])
def test_which_generation_flux_fails_with(status: str, failed: int) -> None:
    """RELB-16: it is observed only with success; the condition says it before."""
    ready = {"type": "Ready", "status": status, "message": "m\n", "observedGeneration": 4}
    found = decode_oci_repository(as_json({}, status={"conditions": [ready]})).progress

    assert (found.failed_generation, found.message) == (failed, "m")


def test_variables_and_source() -> None:
    """REL-28: values that no Rollout writes are not kept."""
    found = decode_kustomization(
        as_json(
            {**SOURCE, "postBuild": {"substitute": {"version": "1", "other": "x"}}},
            annotations={f"{PLACE}version.from": "web", f"{PLACE}app_version.from": "api"},
            status={"lastAppliedRevision": "1@sha256:b"},
        )
    )

    assert found.rollouts == {"app_version": "api", "version": "web"}
    assert found.values == {"version": "1"}
    assert found.source == FluxReference(kind="OCIRepository", namespace="prod", name="app")
    assert found.progress.revision == "1@sha256:b"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("version", "web", "it does not end in .from, after the name of a variable"),
        ("from", "web", "it does not end in .from, after the name of a variable"),
        ("", "web", "it does not end in .from, after the name of a variable"),
        ("version.from.", "web", "it does not end in .from, after the name of a variable"),
        (".from.from", "web", '".from" is no variable: letters, digits and _'),
        ("a.b.from", "web", '"a.b" is no variable: letters, digits and _'),
        ("app-version.from", "web", '"app-version" is no variable: letters, digits and _'),
        ("1st.from", "web", '"1st" is no variable: letters, digits and _'),
        (".from", "web", '"" is no variable: letters, digits and _'),
        ("version.from", "web ", '"web " is no name of a Rollout'),
        ("version.from", "prod/web", '"prod/web" is no name of a Rollout'),
        ("version.from", "", '"" is no name of a Rollout'),
    ],
)
def test_annotations_that_cannot_be_obeyed(key: str, value: str, problem: str) -> None:
    """REL-20 and REL-61: the others of the object are."""
    annotations = {f"{PLACE}{key}": value, f"{PLACE}good.from": "api"}
    found = decode_kustomization(as_json(SOURCE, annotations=annotations))

    assert found.rollouts == {"good": "api"}
    (problem_found,) = found.problems
    assert problem_found.text == f"Kustomization prod/app: annotation {PLACE}{key}: {problem}"
    assert problem_found.rollout == value.strip()


def test_a_tag_of_no_rollout() -> None:
    """REL-20."""
    found = decode_oci_repository(as_json({}, annotations={"rollout.kuberik.com/rollout": "A b"}))

    assert found.rollouts == {}
    assert [one.text for one in found.problems] == [
        'OCIRepository prod/app: annotation rollout.kuberik.com/rollout: "A b" is no name of a '
        "Rollout"
    ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"sourceRef": 1}, "spec.sourceRef: expected object, got int: 1"),
        ({}, "spec: object missing required field sourceRef"),
        (
            {**SOURCE, "postBuild": {"substitute": {"a": 1}}},
            "spec.postBuild.substitute[a]: expected str, got int",
        ),
    ],
)
def test_manifests_that_cannot_be_read(spec: Any, problem: str) -> None:
    """REL-28: object, field and value."""
    with pytest.raises(DecodeError) as caught:
        decode_kustomization(as_json(spec))

    assert str(caught.value) == f"Kustomization prod/app: {problem}"


MANAGED: Final = [
    {"manager": "kustomize-controller", "fieldsV1": {"f:spec": {"f:ref": {".": {}, "f:tag": {}}}}},
    {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:ref": {"f:tag": {}, "f:semver": {}}}}},
    {"manager": "whole", "fieldsV1": {"f:spec": {"f:ref": {}}}},
    {"manager": "odd", "fieldsV1": {"f:spec": 7}},
    {"manager": "none"},
]


def test_which_manager_wrote_a_field() -> None:
    """RELB-13: by the name of the field, whatever else stands there."""
    body = b'{"metadata": {"managedFields": %b}}' % msgspec.json.encode(MANAGED)

    assert decode_field_writers(body, ("spec", "ref")) == {
        "tag": ("kustomize-controller", "kubectl-edit"),
        "semver": ("kubectl-edit",),
    }


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[", b'{"metadata": {"managedFields": 7}}', b"\xff", b"[" * 100_000]
)
def test_what_cannot_be_read_was_written_by_no_manager(body: bytes) -> None:
    """RELB-13."""
    assert decode_field_writers(body, ("spec", "ref")) == {}
