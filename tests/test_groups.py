"""Which worker gets which test next."""

from tests.groups import order_groups

NODE = "tests/{}.py::test_it"


def test_what_waits_for_the_control_plane_has_a_line_of_its_own_and_the_longest_go_first() -> None:
    waiting = [NODE.format(name) for name in ("system/test_a", "system/test_kills")]
    computing = [NODE.format(name) for name in ("planning/test_a", "simulation/test_schedules")]

    lines = order_groups([*computing, *waiting])

    assert list(lines[True]) == waiting[::-1]
    assert list(lines[False]) == computing[::-1]
