"""`rollout-operator demo`, as the table of commands requires it."""

from rollout_operator.lab.demo.command import run
from rollout_operator.lab.demo.flags import render_demo_usage as render_usage

__all__ = ["render_usage", "run"]
