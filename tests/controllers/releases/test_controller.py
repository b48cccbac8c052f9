"""What people write is consumed once, pins are verified, and a pass costs what one Rollout does."""

import pytest

from rollout_operator.kube import api as kinds
from tests.controllers.releases.bench import ReleaseBench
from tests.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    "text",
    [
        *("ann", "J\u00fcrgen", "Ann \u00c5str\u00f6m <ann@example.com>", "R&D", "\x7f", ""),
        *("\U0001f680", "\u65e5\u672c", 'a\n"b"\\', "\u2028", "\u00fc" * 5000),
    ],
)
@in_virtual_time
async def test_what_people_write_is_consumed_once_whatever_it_says(text: str) -> None:
    """REL-70, RELB-10, RELB-34: so that the second time it counts as the first time."""
    bench = ReleaseBench()
    await bench.rest()
    bench.api.add(kinds.ROLLOUT_GATES, "g", {"rolloutRef": {"name": "app"}, "passing": False})
    prefix = "rollout.kuberik.com/"
    for tag in ("1.1.0", "1.2.0"):
        bench.announce(tag)
        await bench.rest()
        rollout = bench.api.objects["rollouts", "app"]
        rollout["metadata"]["annotations"] = {
            f"{prefix}force-deploy": tag,
            f"{prefix}deploy-user": text,
            f"{prefix}deploy-message": text,
        }
        await bench.rest()
        rollout = bench.api.objects["rollouts", "app"]
        assert rollout["metadata"]["annotations"] == {}
        entry = bench.status["history"][0]
        assert entry["version"]["tag"] == tag
        if text:
            by = {"kind": "User", "name": text[:4096]}
            assert (entry["triggeredBy"], entry["message"]) == (by, text[:4096])


@in_virtual_time
async def test_an_intent_whose_text_is_very_long_is_removed() -> None:
    """RELB-10: of which only the beginning is kept, and only where nothing has changed since."""
    bench = ReleaseBench()
    await bench.rest()
    requested = {
        f"rollout.kuberik.com/{one}": "x" * 5000 for one in ("deploy-message", "deploy-user")
    }
    requested["rollout.kuberik.com/force-deploy"] = "1.1.0"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = requested
    bench.announce("1.1.0")
    await bench.rest()
    assert bench.history() == "1.1.0 1.0.0"
    assert bench.api.objects["rollouts", "app"]["metadata"]["annotations"] == {}

    key = "rollout.kuberik.com/retry"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = {key: "x" * 5000}
    bench.show()
    bench.api.add(
        kinds.ROLLOUTS,
        "app",
        bench.api.objects["rollouts", "app"]["spec"],
        status=bench.status,
        metadata={"annotations": {key: "x" * 5001}},
    )
    await bench.step()
    assert key in bench.api.objects["rollouts", "app"]["metadata"]["annotations"]


@in_virtual_time
async def test_a_pass_regards_the_objects_of_its_rollout_alone() -> None:
    """RELB-21: among a hundred Rollouts a pass costs as much as alone, and at rest nothing."""
    bench = ReleaseBench()
    for number in range(100):
        name = f"app-{number}"
        bench.api.add(kinds.ROLLOUTS, name, {"releasesImagePolicy": {"name": "app"}})
        bench.api.add(kinds.ROLLOUT_GATES, name, {"rolloutRef": {"name": name}})
        annotations = {"rollout.kuberik.com/rollout": name}
        bench.api.add(
            kinds.OCI_REPOSITORIES[0], name, {"ref": {}}, metadata={"annotations": annotations}
        )
        source = {"kind": "OCIRepository", "name": name}
        bench.api.add(kinds.KUSTOMIZATIONS[0], name, {"sourceRef": source})
    for _ in range(3):
        bench.show()
        for number in range(100):
            await bench.step(f"app-{number}")
    before = len(bench.api.calls)
    bench.show()
    for number in range(100):
        await bench.step(f"app-{number}")
    assert len(bench.api.calls) == before
    repository, kustomization = bench.flux.get_flux("app-7")
    assert (repository.head.name, kustomization.head.name) == ("app-7", "app-7")
    assert kustomization.rollouts == {}
