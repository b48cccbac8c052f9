"""The scenarios, and the rows of the page that name them, agree; who plays them: tests/prove.py."""

from tests.kuberik.scenarios import FILE, list_rows, list_undocumented, read_scenarios
from tests.system.releasing import Actor

SCENARIOS = read_scenarios(FILE.read_text())


def test_each_scenario_is_equal_or_has_its_row() -> None:
    """REL-118: and each row that names a scenario shows a difference."""
    assert len(SCENARIOS) >= 100
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
    assert not list(list_undocumented(SCENARIOS, list_rows()))


def test_each_step_is_one_that_can_be_done() -> None:
    for one in SCENARIOS:
        for operation in "; ".join(one.steps).split("; "):
            verb = operation.split(" ")[0]
            assert verb == "bare" or hasattr(Actor, f"_{verb}"), f"{one.name}: {operation}"


def test_a_scenario_is_written_as_it_is_read() -> None:
    comment, _, rest = FILE.read_text().partition("\n\n")
    assert comment.startswith("#")
    assert "\n".join(one.render() for one in SCENARIOS) == rest
