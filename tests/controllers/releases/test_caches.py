"""What objects mention, and which Rollouts a change concerns (REL-89, RELB-20, RT-14, RT-56)."""

import asyncio
from typing import Any

import msgspec
import pytest

from rollout_operator.controllers.release_sources import (
    ReleaseCaches,
    build_wide_checks,
    list_concerned,
    list_tags,
    tag_labels,
)
from rollout_operator.controllers.releases import gather_flux, index_flux
from rollout_operator.kube.informer import Informer
from rollout_operator.model.names import Denied, Unreachable
from rollout_operator.model.objects import LabelSelector, SelectorTerm, WatchedObject
from rollout_operator.model.release_plan import (
    FluxObject,
    FluxReference,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.model.releases import (
    CheckSelector,
    RefusedRelease,
    ReleaseRollout,
    parse_repository,
)
from rollout_operator.telemetry.metrics import Metrics
from tests.controllers.releases.bench import ReleaseBench
from tests.kube.scripted_watch import ScriptedApi
from tests.planning.releases.builders import ALL_CHECKS, check, gate, head, rollout
from tests.virtual_time import VirtualClock, in_virtual_time

EXISTS = (SelectorTerm(key="app", operator="Exists"),)

FORBIDDEN = Denied("list: forbidden", status=403)


def named(name: str, **spec: Any) -> ReleaseRollout:
    found = rollout()
    changed = msgspec.structs.replace(found.spec, **spec)
    return msgspec.structs.replace(found, head=head(name), spec=changed)


def known() -> ReleaseCaches:
    """Return a namespace with five Rollouts, of which three follow the policy `app`."""
    caches = ReleaseBench().caches
    refused = RefusedRelease(head=head("r"), problem="no")
    rollouts: list[ReleaseRollout | RefusedRelease] = [
        refused,
        msgspec.structs.replace(refused, head=head("s"), announced=named("s", policy_name="app")),
        named("a", policy_name="app"),
        named("b", policy_name="app", policy_namespace="flux", checks=ALL_CHECKS),
        named("c", policy_name="app", policy_namespace="prod", checks=ALL_CHECKS),
    ]
    caches.rollouts.store.replace_all([watched(one) for one in rollouts])
    caches.policies.store.replace_all([watched(policy())])
    caches.oci_repositories.store.replace_all([watched(oci("b"))])
    return caches


def watched(decoded: ReleaseRollout | RefusedRelease | ImagePolicy | FluxObject) -> WatchedObject:
    head = decoded.head
    return WatchedObject(
        name=head.name,
        namespace=head.namespace,
        uid=head.uid,
        resource_version="1",
        decoded=decoded,
    )


def oci(rollout: str = "", name: str = "app") -> FluxObject:
    rollouts = {"tag": rollout} if rollout else {}
    return FluxObject(kind="OCIRepository", head=head(name), api_version="v1", rollouts=rollouts)


def policy() -> ImagePolicy:
    place = FluxReference(kind="ImageRepository", namespace="prod", name="images")
    return ImagePolicy(head=head("app"), repository=place)


def kustomization(source: str, **rollouts: str) -> FluxObject:
    """Return a Kustomization with the name of its source."""
    return FluxObject(
        kind="Kustomization",
        head=head(source),
        api_version="v1",
        source=FluxReference(kind="OCIRepository", namespace="prod", name=source),
        rollouts=rollouts,
    )


def concerned(view: object) -> list[str]:
    return sorted(list_concerned(view, known()))


def test_each_kind_concerns_those_that_depend_on_it() -> None:
    assert concerned(named("x")) == ["x"]
    assert concerned(gate(rollout="x")) == ["x"]
    assert concerned(policy()) == ["a", "c", "s"]
    assert concerned(check("h")) == ["b", "c"]
    assert concerned(oci("x")) == ["x"]
    assert concerned(oci()) == []


def test_an_image_repository_concerns_those_of_its_policies() -> None:
    image = parse_repository("registry.example/app")
    assert concerned(ImageRepository(head=head("images"), image=image)) == ["a", "c", "s"]
    assert concerned(ImageRepository(head=head("others"), image=image)) == []


def test_a_kustomization_concerns_whose_artifact_it_applies() -> None:
    assert concerned(kustomization("app", x="y")) == ["b", "y"]
    assert concerned(kustomization("other", x="y")) == ["y"]


@pytest.mark.parametrize(
    ("selector", "labels", "is_found"),
    [
        (LabelSelector(labels={"app": "a"}), {"app": "a", "b": "c"}, True),
        (LabelSelector(labels={"app": "a"}), {"app": "b"}, False),
        (LabelSelector(labels={"app": "a"}), {}, False),
        (LabelSelector(labels={"app": "a", "tier": "web"}), {"app": "a", "tier": "web"}, True),
        (LabelSelector(labels={"app": "a"}, terms=EXISTS), {"app": "a"}, True),
        (LabelSelector(terms=EXISTS), {"app": "a"}, True),
        (LabelSelector(), {}, True),
        (None, {"app": "a"}, False),
    ],
)
def test_a_rollout_is_found_by_the_labels_of_what_it_selects(
    selector: LabelSelector | None, labels: dict[str, str], is_found: bool
) -> None:
    """REL-54: among thousands, without a read of each of them."""
    of = rollout(checks=CheckSelector(selector=selector))
    found = {*list_tags(of)} & {*tag_labels(labels)}

    assert bool(found) is is_found
    assert is_found or selector is None or not selector.takes(labels)


def test_a_rollout_without_checks_is_not_found() -> None:
    """REL-54."""
    assert [*list_tags(rollout())] == []


def test_repositories_go_first_and_each_kind_by_name() -> None:
    """REL-60 and REL-61: the order of kuberik, and what applies its artifacts."""
    applying, other = kustomization("b"), kustomization("other")
    flux = [applying, other, oci("web", "b"), oci("web"), oci("api", "other")]
    found = gather_flux("web", index_flux(flux))

    assert [(one.kind, one.head.name) for one in found] == [
        ("OCIRepository", "app"), ("OCIRepository", "b"), ("Kustomization", "b")
    ]  # fmt: skip


@in_virtual_time
async def test_they_are_followed_from_the_first_question_on() -> None:
    api = ScriptedApi([[FORBIDDEN], [FORBIDDEN]])
    clock = VirtualClock()
    wide = build_wide_checks(api, lambda of: Informer(api, of, Metrics(), clock, lambda: 0.5))
    news: list[str] = []
    wide.on_change(lambda old, new: news.append("check"), lambda: news.append("all"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(wide.run(clock), name="wide checks")
        await asyncio.sleep(3600)
        assert api.calls == []
        with pytest.raises(Unreachable, match="HealthCheck: no answer yet"):
            wide.find_problem()
        await asyncio.sleep(1)
        assert wide.find_problem() == (
            "HealthChecks of other namespaces: HealthCheck: list: forbidden"
        )
        assert news == ["all", "all"]
        running.cancel()


@in_virtual_time
async def test_labels_of_a_namespace_that_change_are_news_for_all() -> None:
    """REL-54: which namespaces are selected depends on them."""
    bench = ReleaseBench()
    news: list[str] = []
    bench.wide.on_change(lambda old, new: news.append("check"), lambda: news.append("all"))
    bench.namespaces._notify(None, None)
    assert news == ["all"]
