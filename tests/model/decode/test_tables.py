"""What decoders make of objects: tables of cases, read as `tests.model.cases` says."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.gates.model import FlawedHealthCheck, decode_health_check
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.custom import (
    decode_budget,
    decode_budget_status,
    decode_policy,
    decode_watched_policy,
    parse_budget,
)
from rollout_operator.model.decode.installation import (
    decode_hooks,
    decode_operator,
    decode_validating_webhooks,
    decode_zone_set,
)
from rollout_operator.model.decode.objects import (
    decode_pod,
    decode_pod_answer,
    decode_replica_writers,
    decode_statefulset,
)
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import DecodeError
from rollout_operator.model.objects import Pod
from rollout_operator.model.policy import Policy, PolicyStatus, RefusedPolicy, WatchedPolicy
from rollout_operator.model.scaling import Review, Scalable
from rollout_operator.releases.model import decode as releases
from rollout_operator.releases.model import decode_flux as flux
from rollout_operator.releases.model.releases import (
    CLUSTER_SCHEDULE,
    RefusedRelease,
    ReleaseRollout,
)
from tests.gates.trees import health_check_tree
from tests.goldens import Golden
from tests.model.budget_trees import budget_tree
from tests.model.cases import attempt, bend, split_texts, tell
from tests.model.decode.releases.trees import tree as release_tree
from tests.model.policy_trees import policy_tree, status_tree
from tests.model.review_trees import review_tree
from tests.model.webhook_trees import configuration_tree, hook_tree
from tests.model.wire_trees import pod_tree, set_tree
from tests.stories import Story, read_stories

Reader = Callable[[str], str]

encode: Final = msgspec.json.encode
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def reads(
    decode: Callable[[bytes], Any],
    tree: Any,
    at: str = "spec",
    show: Callable[[Any, Any], str] = tell,
) -> Reader:
    """Return a reader that shows what differs from the object without changes, which is `plain`."""
    plain = decode(encode(tree))

    def read(changes: str) -> str:
        if changes == "plain":
            return tell(plain)
        return attempt(lambda: show(decode(encode(bend(tree, changes, at))), plain))

    return read


def decode_consistent_pod(body: bytes) -> Pod:
    """Return a pod after checking that its fields agree, and that salvage finds the same owner."""
    pod = decode_pod(body)
    assert salvage("Pod", body, DecodeError("x")).owner_uid == pod.owner_uid
    assert pod.is_ready is not bool(pod.why_not_ready)
    assert not pod.is_ready or not (pod.was_ready or pod.never_ready)
    assert not (pod.was_ready and pod.never_ready)
    return pod


def read_budget(changes: str) -> str:
    """Read it as in a watch and as under review, which agree but for what is shown."""
    plain = parse_budget(encode(budget_tree()))
    if changes == "plain":
        return tell(plain)
    body = encode(bend(budget_tree(), changes))
    watched = attempt(lambda: tell(decode_budget(body), plain))
    reviewed = attempt(lambda: tell(parse_budget(body), plain))
    problem = reviewed.removeprefix("refused: ")
    if watched == reviewed or watched.endswith(f" problem={problem}"):
        return watched
    return f"{watched}; reviewed: {reviewed}"


def tell_policy(found: Policy | RefusedPolicy, plain: Policy) -> str:
    if not isinstance(found, RefusedPolicy):
        return tell(found, plain)
    prefix = "MultiAZRollout prod/db: "
    assert found.head == plain.head
    assert all(one.text.startswith(f"{prefix}{one.field}: ") for one in found.refusals)
    return "; ".join(f"{one.code.value} {one.text.removeprefix(prefix)}" for one in found.refusals)


def tell_policy_status(found: WatchedPolicy, plain: WatchedPolicy) -> str:
    """Return what differs, or that the whole status is as if nothing had been written."""
    if found.status != PolicyStatus():
        return tell(found, plain)
    return f"empty: {tell(replace(found, status=plain.status), plain)}"


def tell_review(found: Review, plain: Review) -> str:
    """Return what differs in the review, and why one of its objects cannot be judged."""
    unusable = [
        f"unusable: {one.error}" for one in (found.old, found.new) if not isinstance(one, Scalable)
    ]
    kept = {
        side: getattr(plain, side)
        for side in ("old", "new")
        if not isinstance(getattr(found, side), Scalable)
    }
    said = tell(replace(found, body=plain.body, **kept), plain)
    return "; ".join([*([] if unusable and said == "the same" else [said]), *unusable])


def _review_tree() -> Any:
    tree = review_tree()
    del tree["request"]["dryRun"]
    return tree


def read_health_check(changes: str) -> str:
    """Read it, and of its checks the first."""
    tree = health_check_tree()
    plain = decode_health_check(encode(tree))
    assert not isinstance(plain, FlawedHealthCheck)
    [check] = plain.checks
    if changes == "plain":
        return f"{tell(replace(plain, checks=()))}\n{tell(check)}"

    def read() -> str:
        found = decode_health_check(encode(bend(tree, changes)))
        if isinstance(found, FlawedHealthCheck):
            return tell(replace(found, head=plain.head), plain)
        said = [tell(replace(found, checks=plain.checks), plain), tell(found.checks[0], check)]
        said += [f"and {len(found.checks) - 1} more"] if found.checks[1:] else []
        return " ".join(one for one in said if one != "the same") or "the same"

    return attempt(read)


def read_hook(changes: str) -> str:
    """Read the first webhook of a configuration, and with more of its fields for `doctor`."""
    plain = decode_validating_webhooks(encode(CONFIGURATION))
    if changes == "plain":
        return tell(plain)
    tree = bend(CONFIGURATION, changes, "webhooks.0")

    def read() -> str:
        found = decode_validating_webhooks(encode(tree))
        hook = found.webhooks[0] if found.webhooks else plain.webhooks[0]
        said = [
            tell(replace(found, webhooks=plain.webhooks[: len(found.webhooks)]), plain),
            tell(hook, plain.webhooks[0]),
        ]
        return " ".join(one for one in said if one != "the same") or "the same"

    def examine() -> str:
        decode_hooks("ValidatingWebhookConfiguration", encode(tree))
        return ""

    found, more = attempt(read), attempt(examine)
    return found if not more or more == found else f"{found}; doctor: {more}"


def read_writers(changes: str) -> str:
    body = encode(bend({"metadata": {"name": "zone-b"}}, changes))
    return ", ".join(decode_replica_writers(body, but="us")) or "none"


def read_answer(text: str) -> str:
    """Read the body of a pod's answer, in which `\\xff` is a byte, after its status if not 200."""
    *status, body = split_texts(text)
    answer = decode_pod_answer(
        "zone-a-4", int(*status) if status else 200, body.encode("latin-1"), NOW
    )
    assert answer.called_at == NOW
    return answer.problem or f"since {answer.since:%Y-%m-%dT%H:%M:%SZ}"


def tell_rollout(found: ReleaseRollout | RefusedRelease, plain: ReleaseRollout) -> str:
    """Return also whether its versions are announced where it is refused."""
    if not isinstance(found, RefusedRelease):
        return tell(found, plain)
    seen = "announced" if found.announced else "not announced"
    if found.announced is not None:
        assert (found.announced.spec, found.announced.status) == (plain.spec, found.status)
    tags = [f", released {each.version.tag}" for each in found.status.history]
    return f"refused, {seen}{''.join(tags)}: {found.problem}"


def decode_cluster_schedule(body: bytes) -> Any:
    return releases.decode_schedule(CLUSTER_SCHEDULE, body)


CONFIGURATION: Final = configuration_tree("guard", 7, hook_tree(caBundle="QQ=="))
ROLLOUT: Final = release_tree({"releasesImagePolicy": {"name": "app"}})
REFERENCE: Final = {"name": "app"}
SCHEDULE: Final = {"rolloutSelector": {"matchLabels": {"app": "a"}}, "rules": [{"name": "r"}]}
OPERATOR: Final = {
    "metadata": {"name": "one"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {"image": "proxy:1"},
                    {"image": "rollout-operator", "command": ["x"], "args": ["-a"]},
                ]
            }
        }
    },
}
ZONE_SET: Final = {
    "metadata": {"name": "a", "namespace": "p", "uid": "u", "resourceVersion": "1"},
    "spec": {"template": {"metadata": {"labels": {"app": "a"}}}},
}
READERS: Final[dict[str, Reader]] = {
    "adoptable": reads(
        decode_adoptable,
        {
            "kind": "StatefulSet",
            "metadata": {"namespace": "prod", "name": "db"},
            "spec": {"template": {}, "updateStrategy": {"type": "RollingUpdate"}},
        },
    ),
    "budget": read_budget,
    "budget_status": reads(decode_budget_status, budget_tree(), "status"),
    "gate": reads(releases.decode_gate, release_tree({"rolloutRef": REFERENCE})),
    "health_check": reads(releases.decode_health_check, release_tree({})),
    "image_policy": reads(
        flux.decode_image_policy, release_tree({"imageRepositoryRef": REFERENCE})
    ),
    "image_repository": reads(
        flux.decode_image_repository, release_tree({"image": "ghcr.io/team/app"})
    ),
    "kustomization": reads(
        flux.decode_kustomization,
        release_tree({"sourceRef": {"kind": "OCIRepository", "name": "app"}}),
    ),
    "installed_hook": reads(
        partial(decode_hooks, "ValidatingWebhookConfiguration"),
        configuration_tree("c", 1, hook_tree()),
        "webhooks.0",
    ),
    "operator": reads(
        partial(decode_operator, program="rollout-operator"),
        OPERATOR,
        "spec.template.spec.containers.1",
    ),
    "zone_set": reads(decode_zone_set, ZONE_SET, "metadata"),
    "namespace": reads(releases.decode_labelled_namespace, release_tree({})),
    "oci_repository": reads(flux.decode_oci_repository, release_tree({})),
    "pod": reads(decode_consistent_pod, pod_tree(), "status"),
    "pod_answer": read_answer,
    "policy": reads(decode_policy, policy_tree(), show=tell_policy),
    "policy_status": reads(decode_watched_policy, status_tree(), "status", tell_policy_status),
    "replica_writers": read_writers,
    "review": reads(decode_review, _review_tree(), "request", tell_review),
    "rollout": reads(releases.decode_rollout, ROLLOUT, show=tell_rollout),
    "rollout_health_check": read_health_check,
    "schedule": reads(decode_cluster_schedule, release_tree(SCHEDULE, namespace="")),
    "statefulset": reads(decode_statefulset, set_tree()),
    "webhook": read_hook,
}


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.rglob("*.txt")))
def test_case(story: Story, golden: Golden) -> None:
    [changes] = story.commands
    story.check(READERS[story.path.stem](changes), golden)
