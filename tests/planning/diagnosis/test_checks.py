"""Each check: silent on a good installation, and what it says of one thing that is wrong."""

from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.diagnosis import (
    CallableService,
    FindingCode,
    HeldLease,
    Installation,
    LabelledPod,
    NativeBudget,
    PodTrial,
    Source,
)
from rollout_operator.model.objects import LabelSelector
from rollout_operator.planning.doctor import CHECKS, check_shared, diagnose
from rollout_operator.planning.doctor_install import check_operator
from rollout_operator.planning.doctor_remedies import EXPLANATIONS
from tests.planning.diagnosis.installations import (
    NOW,
    OPERATOR,
    Case,
    good,
    native,
    reach,
    with_sets,
    zone_set,
)
from tests.planning.diagnosis.spoilt_groups import SPOILT_GROUPS
from tests.planning.diagnosis.spoilt_operators import SPOILT_OPERATORS
from tests.planning.diagnosis.spoilt_policies import SOUND_POLICIES, SPOILT_POLICIES
from tests.planning.diagnosis.spoilt_releases import SOUND_RELEASES, SPOILT_RELEASES

CASES: Final = (*SPOILT_OPERATORS, *SPOILT_GROUPS, *SPOILT_POLICIES, *SPOILT_RELEASES)
LAPTOP: Final = HeldLease(name="rollout-operator", holder="laptop_1", renewed=NOW)
SOUND: Final = {**SOUND_POLICIES, **SOUND_RELEASES}


def test_a_good_installation_passes_every_check() -> None:
    diagnosis = diagnose(good())

    assert diagnosis.findings == ()
    assert (diagnosis.passed, diagnosis.skipped) == (len(CHECKS), ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_thing_is_wrong(case: Case) -> None:
    """Nothing else is found beside it."""
    findings = diagnose(case.installation).findings

    assert {one.code for one in findings} == {case.code}, findings
    assert case.object in {one.object for one in findings}
    assert any(case.text in one.text for one in findings), findings
    assert {one.severity for one in findings} == {EXPLANATIONS[case.code].severity}


def test_every_finding_is_provoked_and_explained() -> None:
    assert {case.code for case in CASES} == {*FindingCode} == {*EXPLANATIONS}


@pytest.mark.parametrize("source", list(Source))
def test_what_could_not_be_read_is_skipped_and_reported(source: Source) -> None:
    diagnosis = diagnose(good(unread={source: "cannot list it"}))

    wanted = [check.name for check in CHECKS if source in check.needs]
    assert [one.check for one in diagnosis.skipped] == wanted != []
    assert {one.why for one in diagnosis.skipped} == {"cannot list it"}
    assert diagnosis.passed == len(CHECKS) - len(wanted)
    assert diagnosis.findings == ()


@pytest.mark.parametrize(
    "installation",
    [
        pytest.param(
            good(operators=(OPERATOR, replace(OPERATOR, name="s", arguments=("-mode=shadow",)))),
            id="a shadow beside it",
        ),
        pytest.param(
            good(operators=(OPERATOR, replace(OPERATOR, name="off", replicas=0, ready=0))),
            id="another one that is scaled to nothing",
        ),
        *(pytest.param(sound, id=name) for name, sound in SOUND.items()),
        pytest.param(good(lease=HeldLease(name="x", holder="")), id="a Lease that was released"),
        *(
            pytest.param(good(operators=operators, lease=LAPTOP), id=f"a process acts, {what}")
            for what, operators in {
                "and no Deployment": (),
                "beside a shadow": (replace(OPERATOR, arguments=("-mode=shadow",)),),
                "in place of a Deployment without replicas": (replace(OPERATOR, replicas=0),),
            }.items()
        ),
        pytest.param(
            with_sets(zone_set("zone-c", annotations={"grafana.com/dashboard": "x"})),
            id="a key of another tool",
        ),
        pytest.param(
            good(
                services=(
                    CallableService(name="rollout-operator", ports=(443,), has_endpoints=False),
                ),
                ready_endpoints={},
            ),
            id="a Service that is another name",
        ),
        pytest.param(
            reach('admission webhook "no-downscale" denied the request: label'),
            id="a refusal is an answer",
        ),
        pytest.param(
            reach("admission webhook x does not support dry run", must_be_refused=True),
            id="another webhook that takes no dry runs",
        ),
        pytest.param(
            reach("422 Invalid: spec.podNameRegexGroup", must_be_refused=True),
            id="a schema that refuses first",
        ),
        pytest.param(
            good(pod_trials=(PodTrial(set_name="a", error="exceeded quota: pods"),)),
            id="a quota that is used up by what there is",
        ),
        pytest.param(
            good(zone_budgets=(), native_budgets=(native("p", min_available="3"),)),
            id="room for one",
        ),
        pytest.param(
            good(zone_budgets=(), native_budgets=(NativeBudget(name="p", max_unavailable="0"),)),
            id="a native budget that selects nothing",
        ),
        pytest.param(
            good(
                pods=(*good().pods, LabelledPod(name="other", labels={"app": "store"})),
                zone_budgets=(),
                native_budgets=(
                    NativeBudget(
                        name="p",
                        selector=LabelSelector(labels={"app": "store"}),
                        max_unavailable="0",
                    ),
                ),
            ),
            id="a native budget of other pods",
        ),
    ],
)
def test_what_is_fine_is_left_alone(installation: Installation) -> None:
    assert diagnose(installation).findings == ()


@pytest.mark.parametrize(
    ("lease", "is_missing"),
    [
        pytest.param(None, True, id="no Lease"),
        pytest.param(HeldLease(name="l", holder="laptop_1"), True, id="of unknown age"),
        pytest.param(HeldLease(name="l", holder="", renewed=NOW), True, id="released"),
        pytest.param(
            HeldLease(name="l", holder="a_1", renewed=NOW - timedelta(minutes=1)), True, id="old"
        ),
        pytest.param(
            HeldLease(name="l", holder="a_1", renewed=NOW - timedelta(seconds=9)), False, id="live"
        ),
        pytest.param(
            HeldLease(name="l", holder="a_1", renewed=NOW + timedelta(minutes=1)),
            False,
            id="by a clock that is ahead",
        ),
    ],
)
def test_a_process_that_renews_the_lease_is_an_operator(
    lease: HeldLease | None, is_missing: bool
) -> None:
    """It may run on a person's machine, as in the tutorial."""
    found = [one.code for one in check_operator(good(operators=(), lease=lease))]
    assert found == [FindingCode.OPERATOR_MISSING] * is_missing


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(("app.kubernetes.io/name",), id="an application for each zone"),
        pytest.param(("app.kubernetes.io/instance",), id="a release for each zone"),
        pytest.param(("app.kubernetes.io/name", "app.kubernetes.io/instance"), id="both"),
        pytest.param((), id="no labels"),
    ],
)
def test_zones_of_a_group_may_be_installed_apart(labels: tuple[str, ...]) -> None:
    zones = tuple(zone_set(name, labels=dict.fromkeys(labels, name)) for name in ("a", "b", "c"))
    assert list(check_shared(good(sets=zones))) == []
