"""The flags of `simulate`, their checks and the help text."""

from datetime import UTC, datetime, timedelta

import pytest
from rollout_lab.simulate.changes import FORMS, NewTemplate, Pause
from rollout_lab.simulate.flags import (
    FLAGS,
    Output,
    SimulateSettings,
    read_settings,
    render_simulate_usage,
)

from rollout_operator.config.grammar import UsageError


def test_defaults() -> None:
    assert read_settings(["-f", "x.yaml"]) == SimulateSettings(
        files=("x.yaml",), terminates_after=timedelta(seconds=10), output=Output.TEXT
    )


def test_everything_is_read() -> None:
    words = "--f=- -namespace=prod -ready-after=1m -terminates-after=5s -seed=7 -o=json -until=1h"
    settings = read_settings([*words.split(), "-exit-code", "-as-of", "2026-01-02T03:04:05Z"])

    assert settings == SimulateSettings(
        files=("-",),
        namespace="prod",
        ready_after=timedelta(minutes=1),
        terminates_after=timedelta(seconds=5),
        as_of=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        seed=7,
        until=timedelta(hours=1),
        has_exit_code=True,
        output=Output.JSON,
    )


def test_each_change_counts_in_order() -> None:
    words = ["-f", "x", "-change", "new template", "-seed=1", "-change=pause zone-a at 5s"]

    changes = [(at.total_seconds(), one.deed) for at, one in read_settings(words).changes]

    assert changes == [(0, NewTemplate()), (5, Pause("zone-a", is_paused=True))]
    assert len(read_settings(words).changes) == 2, "nothing is left of the reading before"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-f", "-", "-f", "-"], "standard input is read once"),
        (["-f", "-", "-policy", "-"], "standard input is read once"),
        (
            ["-f", "x", "new", "template"],
            "unexpected word: new; a change stands in quotes, a file after -f",
        ),
        (["-f", "x", "-change", "new"], 'invalid value "new" for flag -change: no such change'),
        (["-f", "x", "-change"], "flag needs an argument: -change"),
        (["-f", "x", "-o", "yaml"], '-o must be one of text, json: "yaml"'),
        (["-f", "x", "-ready-after", "-1s"], "-ready-after must be between 0s and 24h"),
        (
            ["-f", "x", "-terminates-after", "25h"],
            "-terminates-after must be between 0s and 24h0m0s: 25h0m0s",
        ),
        (["-f", "x", "-change", "pause a at 25h"], "later than 24h0m0s"),
        (["-f", "x", "-until", "-1s"], "-until must be between 0s and 168h0m0s: -1s"),
        (["-f", "x", "-until", "1m", "-change", "pause a at 2m"], "later than 1m0s"),
        (["-f", "x", "-until", "5"], 'invalid value "5" for flag -until'),
        (["-f", "x", "-as-of", "noon"], '-as-of: "noon" is no RFC 3339 time'),
        (["-f", "x", "-as-of", "9001-01-01T00:00:00Z"], "is after the year 9000"),
        (["-f", "x", "-change", "pause a at 2s", "-change", "pause a at 1s"], "it comes before"),
        (["-file", "x"], "flag provided but not defined: -file"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(words)

    assert complaint in str(refused.value)
    assert refused.value.exit_code == 2


def test_help_names_every_flag_and_form() -> None:
    usage = render_simulate_usage()
    assert all(f"\n  -{flag.name}" in usage for flag in FLAGS)
    assert all(f"  {form.shown}\n" in usage for form in FORMS)
    assert max(map(len, usage.splitlines())) <= 100
