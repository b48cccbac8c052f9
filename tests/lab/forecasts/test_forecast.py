"""`simulate -releases`: when which version comes, from a file of manifests."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from rollout_lab.forecasts.observe import ForecastSpan, foresee

from rollout_operator.cli.main import main
from rollout_operator.model.description import Arrival, Forecast, RolloutForecast
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.operator.copies import ObjectsCopy
from tests.code_rules import ROOT
from tests.goldens import Golden
from tests.lab.forecasts.objects import Json, check, gate, make, policy, rollout, schedule, source
from tests.lab.forecasts.schema import render_forecast_schema

Capture = pytest.CaptureFixture[str]
SCHEMA: Final = ROOT / "docs" / "simulate-releases.schema.json"
GOLDEN: Final = Path(__file__).parent / "foreseen.txt"
NOON: Final = "2026-03-27T12:00:00Z"
TIMED: Final = {"bakeTime": "10m", "deployTimeout": "1h"}
SELECTED: Final = {"selector": {"matchLabels": {"app": "app"}}}


def _run(folder: Path, objects: Sequence[Json], *words: str, begins: str = NOON) -> int:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return main(["simulate", "-releases", "-f", str(path), "-as-of", begins, *words])


def _foresee(
    folder: Path, capsys: Capture, objects: Sequence[Json], *words: str, begins: str = NOON
) -> Json:
    assert _run(folder, objects, "-o", "json", *words, begins=begins) == 0
    printed: Json = json.loads(capsys.readouterr().out)
    return printed


def _show(version: Json) -> str:
    """Return `1.1.0 deployed 2026-03-27T22:00:00+01:00: SomeGatesBlocking`."""
    when = f" {version['localTime']}" if version["localTime"] else ""
    reasons = ", ".join(hold["reason"] for hold in version["holds"])
    return f"{version['tag'] or '-'} {version['verdict']}{when}: {reasons}"


NOTHING: Final = "- none: NoReleaseCandidates"
BLOCKED: Final = "SomeGatesBlocking"


@pytest.mark.parametrize(
    ("objects", "begins", "expected"),
    [
        pytest.param(
            [rollout(), policy()],
            NOON,
            ["1.1.0 deployed 2026-03-27T12:00:00+00:00: ", NOTHING],
            id="nothing holds it",
        ),
        pytest.param([rollout(), policy("1.0.0")], NOON, [NOTHING], id="nothing is newer"),
        pytest.param(
            [
                rollout(),
                policy("1.1.0-0123456", filterTags={"pattern": "^([0-9.]+)", "extract": "$1"}),
            ],
            NOON,
            ["1.1.0-0123456 deployed 2026-03-27T12:00:00+00:00: ", NOTHING],
            id="RELB-03 what the policy extracts is newer",
        ),
        pytest.param(
            [rollout(), policy("2.0.0", filterTags={"pattern": "("})],
            NOON,
            ["- person: UpgradePathUnknown"],
            id="RELB-03 a policy that compares nothing",
        ),
        pytest.param(
            [rollout(), policy(), schedule()],
            NOON,
            [f"1.1.0 deployed 2026-03-27T22:00:00+01:00: {BLOCKED}", NOTHING],
            id="a window over midnight opens in the evening",
        ),
        pytest.param(
            [rollout(), policy(), schedule()],
            "2026-03-28T01:00:00Z",
            ["1.1.0 deployed 2026-03-28T02:00:00+01:00: ", NOTHING],
            id="a window over midnight is open after it",
        ),
        pytest.param(
            [rollout(), policy(), schedule(start="03:00", end="04:00")],
            "2026-03-28T12:00:00Z",
            [f"1.1.0 deployed 2026-03-29T03:00:00+02:00: {BLOCKED}", NOTHING],
            id="clocks go forward: the offset is that of summer",
        ),
        pytest.param(
            [rollout(), policy(), schedule(start="02:00", end="02:30")],
            "2026-03-28T12:00:00Z",
            [f"1.1.0 deployed 2026-03-30T02:00:00+02:00: {BLOCKED}", NOTHING],
            id="clocks go forward: an hour that is left out does not come",
        ),
        pytest.param(
            [rollout(), policy(), schedule(start="02:00", end="02:30")],
            "2026-10-25T00:30:00Z",
            [f"1.1.0 deployed 2026-10-25T02:00:00+01:00: {BLOCKED}", NOTHING],
            id="clocks go back: an hour comes twice",
        ),
        pytest.param(
            [
                rollout(bake="Deploying", bakeTime="1h"),
                policy(),
                schedule(start="13:00", end="18:00"),
            ],
            NOON,
            [
                "1.0.0 deployed 2026-03-01T00:00:00+00:00: ",
                "1.1.0 deployed 2026-03-27T14:00:00+01:00: InProgress",
                NOTHING,
            ],
            id="a bake holds the next version",
        ),
        pytest.param(
            [rollout(), policy(), schedule(), schedule("days", start="08:00", end="20:00")],
            NOON,
            [f"1.1.0 later: {', '.join([BLOCKED] * 5)}"],
            id="two windows are never open together",
        ),
        pytest.param(
            [
                rollout(),
                policy(),
                schedule(rules=[{"dateRange": {"start": "2020-01-01", "end": "2020-01-02"}}]),
            ],
            NOON,
            [f"1.1.0 later: {BLOCKED}"],
            id="a window is over for good",
        ),
        pytest.param(
            [rollout(), policy(), schedule(), gate()],
            NOON,
            [f"1.1.0 person: {BLOCKED}"],
            id="a person keeps a gate",
        ),
        pytest.param(
            [rollout(), policy(), gate(passing=True, allowedVersions=["1.0.9"])],
            NOON,
            ["1.1.0 person: NoAllowedVersions"],
            id="a gate allows another version",
        ),
        pytest.param(
            [rollout(), policy(), schedule(zone="Mars/Base")],
            NOON,
            [f"1.1.0 person: {BLOCKED}"],
            id="an unknown time zone opens nothing",
        ),
        pytest.param(
            [rollout(bake="Failed"), policy()], NOON, ["1.1.0 person: BakeTimeFailed"], id="failed"
        ),
        pytest.param(
            [rollout(healthCheckSelector=SELECTED), policy(), check("Unhealthy")],
            NOON,
            ["1.1.0 person: UnhealthyHealthChecks"],
            id="health is against it",
        ),
        pytest.param(
            [rollout(suspend=True), policy()], NOON, ["1.1.0 person: Suspended"], id="suspended"
        ),
        pytest.param([rollout()], NOON, ["- person: RolloutFailed"], id="no policy"),
        pytest.param(
            [rollout(deployed=""), policy("")],
            NOON,
            ["- person: NoReleasesAvailable"],
            id="no tag is selected",
        ),
        pytest.param(
            [rollout(wantedVersion="not a tag"), policy()],
            NOON,
            ["- person: InvalidSpec"],
            id="a tag that no registry has",
        ),
        pytest.param(
            [rollout(wantedVersion="0.9.0"), policy(), gate()],
            NOON,
            ["0.9.0 deployed 2026-03-27T12:00:00+00:00: ", "- none: ManualDeployment"],
            id="a pin goes past gates",
        ),
        pytest.param(
            [rollout(bakeTime="10m"), policy(), source(suspend=True)],
            NOON,
            ["1.1.0 deployed 2026-03-27T12:00:00+00:00: ", NOTHING],
            id="Flux is suspended",
        ),
    ],
)
def test_a_version_comes_when_nothing_holds_it(
    tmp_path: Path, capsys: Capture, objects: list[Json], begins: str, expected: list[str]
) -> None:
    """REL-53, REL-56, REL-91 to REL-100: as the planners decide at each moment."""
    (found,) = _foresee(tmp_path, capsys, objects, begins=begins)["rollouts"]

    assert [_show(version) for version in found["versions"]] == expected


def test_a_table_is_for_people(tmp_path: Path, capsys: Capture, golden: Golden) -> None:
    """Each Rollout with its versions, what holds them by name and zone, and what helps."""
    objects = [
        rollout(bakeTime="10m", healthCheckSelector=SELECTED),
        *(policy(), source(), check("Healthy"), schedule()),
        {**rollout("db"), "spec": {"releasesImagePolicy": {"name": "lost"}}},
        make("Rollout", "web", {"releasesImagePolicy": {"name": "app"}}, labels={"at": "mars"}),
        schedule("mars", "Mars/Base", rolloutSelector={"matchLabels": {"at": "mars"}}),
        {**gate(), "spec": {"rolloutRef": {"name": "db"}, "passing": "no"}},
    ]

    assert _run(tmp_path, objects, "-exit-code") == 4
    golden.check(GOLDEN, capsys.readouterr().out)


def test_a_gate_of_a_person_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert _run(tmp_path, [rollout(), policy(), gate()]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    assert "1.1.0 never without a person not passing: manual [SomeGatesBlocking]" in shown
    assert "manual: the gate is not passing; no schedule keeps it" in shown


@pytest.mark.parametrize(
    ("objects", "words", "code"),
    [
        ([rollout(), policy()], (), 0),
        ([rollout(), policy(), schedule()], ("-until", "1h"), 3),
        ([rollout(), policy(), gate()], (), 4),
        # The bake does not begin, and fails when its time is over.
        ([rollout(bakeTime="10m"), policy(), source(suspend=True)], ("-until", "20m"), 3),
        ([rollout(**TIMED), policy(), source(suspend=True)], (), 4),
    ],
)
def test_an_exit_code_says_how_it_ends(
    tmp_path: Path, capsys: Capture, objects: list[Json], words: tuple[str, ...], code: int
) -> None:
    assert _foresee(tmp_path, capsys, objects, *words)["exitCode"] == code
    assert _run(tmp_path, objects, "-exit-code", *words) == code


@pytest.mark.parametrize(
    ("objects", "words", "code", "error"),
    [
        ([], (), 1, "there is no Rollout of kuberik.com"),
        ([policy()], (), 1, "there is no Rollout of kuberik.com"),
        ([rollout()], ("-n", "dev"), 1, "there is no Rollout of kuberik.com in namespace dev"),
        ([rollout(), rollout()], (), 1, "Rollout prod/app is in the input twice"),
        ([rollout()], ("-change", "image v2"), 2, "-change is of pods"),
        ([rollout()], ("-releases.compat", "flux"), 2, "-releases.compat must be one of kuberik"),
        ([rollout()], ("-releases.order", "odd"), 2, "-releases.order must be one of version"),
        ([rollout()], ("-until", "9601h"), 2, "-until must not be negative and at most"),
    ],
)
def test_what_cannot_be_foreseen_is_refused(
    tmp_path: Path,
    capsys: Capture,
    objects: list[Json],
    words: tuple[str, ...],
    code: int,
    error: str,
) -> None:
    assert _run(tmp_path, objects, *words) == code
    assert error in capsys.readouterr().err


def test_flags_of_the_operator_count(tmp_path: Path, capsys: Capture) -> None:
    """RELB-31: by kuberik's rules the hours after midnight belong to the next day."""
    friday = [{"timeRange": {"start": "22:00", "end": "06:00"}, "daysOfWeek": ["Friday"]}]
    objects = [rollout(), policy(), schedule(rules=friday)]
    begins = "2026-03-27T00:00:00Z"
    for words, expected in (
        ((), "2026-03-27T22:00:00+01:00"),
        (("-releases.compat=kuberik",), "2026-03-27T01:00:00+01:00"),
    ):
        (found,) = _foresee(tmp_path, capsys, objects, *words, begins=begins)["rollouts"]
        assert found["versions"][0]["localTime"] == expected
    assert main(["simulate", "-f", "-", "-releases.compat=kuberik"]) == 2
    assert "it goes with -releases" in capsys.readouterr().err


def test_the_schema_stands_in_the_documents_and_describes_what_is_printed(
    tmp_path: Path, capsys: Capture
) -> None:
    assert SCHEMA.read_bytes() == render_forecast_schema(), (
        "write it anew: python -m tests.pictures forecast"
    )
    printed = _foresee(tmp_path, capsys, [rollout(), policy(), schedule()])
    document = msgspec.convert(printed, Forecast)
    assert json.loads(msgspec.json.encode(document)) == printed
    assert document.schema_version == 1


def test_flags_that_hold_a_version_hold_it(tmp_path: Path, capsys: Capture) -> None:
    """RELB-23, RELB-26: in the words of the operator."""
    elsewhere, pinned = rollout(), rollout()
    elsewhere["spec"] = {
        **elsewhere["spec"],
        "releasesImagePolicy": {"name": "app", "namespace": "x"},
    }
    pinned["spec"] = {**pinned["spec"], "wantedVersion": "9.9.9"}
    for found, word, reason, text in (
        (elsewhere, "no-cross-namespace-refs", "RolloutFailed", "ImagePolicy x/app: other names"),
        (pinned, "verify-wanted-version", "WantedVersionNotVerified", "no registry has said yet"),
    ):
        (forecast,) = _foresee(tmp_path, capsys, [found, policy()], f"-releases.{word}")["rollouts"]
        (version,) = forecast["versions"]
        assert (version["verdict"], version["holds"][0]["reason"]) == ("person", reason)
        assert version["holds"][0]["text"].startswith(text)


def _foresee_copy(*objects: Json, absent: frozenset[str] = frozenset()) -> RolloutForecast:
    """Return what is foreseen of the Rollout of `prod`, among objects of a cluster."""
    begins = parse_rfc3339(NOON)
    copy = ObjectsCopy(objects=objects, read_at=begins, absent=absent)
    span = ForecastSpan(begins=begins, lasts=timedelta(days=1), settles_after=timedelta(seconds=1))
    (found,) = foresee(copy, "prod", span).rollouts
    return found


@pytest.mark.parametrize(
    "absent", [{"ImagePolicy"}, {"OCIRepository", "Kustomization"}, {"OCIRepository"}]
)
def test_a_cluster_without_flux_is_foreseen_as_the_operator_says_it(absent: set[str]) -> None:
    """RELB-27: nothing comes before a person installs what is missing."""
    (version,) = _foresee_copy(rollout(), policy(), absent=frozenset(absent)).versions

    assert (version.verdict, version.holds[0].reason) == (Arrival.PERSON, "FluxNotInstalled")


@pytest.mark.parametrize(
    "other", [policy("9.9.9"), {**policy(), "spec": "text"}, source(suspend=True)]
)
def test_objects_of_other_namespaces_with_the_same_names_do_not_count(other: Json) -> None:
    elsewhere = {**other, "metadata": {**other["metadata"], "namespace": "x"}}
    own = (rollout(bakeTime="1m"), source())

    for objects in (own, (*own, policy())):
        assert _foresee_copy(elsewhere, *objects) == _foresee_copy(*objects)


def test_a_policy_that_cannot_be_read_holds_all() -> None:
    (version,) = _foresee_copy(rollout(), {**policy(), "spec": "text"}).versions

    assert (version.verdict, version.holds[0].reason) == (Arrival.PERSON, "RolloutFailed")
    assert "ImagePolicy prod/app: spec" in version.holds[0].text


def test_what_is_not_obeyed_is_named(tmp_path: Path, capsys: Capture) -> None:
    """By object, field and value."""
    broken: Json = {**gate("odd"), "spec": {"passing": True}}
    objects: list[Any] = [rollout(), policy(), schedule(zone="Mars/Base"), broken]
    problems = _foresee(tmp_path, capsys, objects)["problems"]

    assert 'RolloutSchedule prod/nights: spec.timezone: no time zone is "Mars/Base"' in problems
    assert any("prod/odd" in each and "rolloutRef" in each for each in problems)
