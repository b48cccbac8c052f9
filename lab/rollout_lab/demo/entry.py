"""`rollout-operator demo`, as the table of commands requires it."""

from rollout_lab.demo.command import run
from rollout_lab.demo.flags import render_demo_usage as render_usage

__all__ = ["render_usage", "run"]
