"""`rollout-operator simulate`, as the table of commands wants it."""

from rollout_operator.lab.simulate.command import run
from rollout_operator.lab.simulate.flags import render_simulate_usage as render_usage

__all__ = ["render_usage", "run"]
