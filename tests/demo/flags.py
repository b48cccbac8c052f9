"""What the words in ARGS of `make demo-cluster` request."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import msgspec

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import parse_duration

MOST_PODS: Final = 20
LONGEST_START: Final = timedelta(minutes=1)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    pods: int = 3
    limit: int = 1
    ready_after: timedelta = timedelta(seconds=1)
    is_plain: bool = False
    is_kept: bool = False


def read_settings(argv: Sequence[str]) -> Settings:
    """Return what the words request. Raises SystemExit: 0 after the help text, 2 for mistakes."""
    parser = argparse.ArgumentParser(
        prog='make demo-cluster ARGS="..."',
        description="The operator at work on a real control plane: etcd, API server, controller"
        " manager and the operator are processes of their own, with the rights that the manifests"
        " grant. Only kubelets are played. Nothing is left running or written in the end. Exit code"
        " 1: a promise was broken.",
        add_help=False,
        allow_abbrev=False,
    )
    keep = "leave all running after the rollout, say how to reach it by kubectl, and end on Ctrl-C"
    flags: dict[str, dict[str, Any]] = {
        "help": {"action": "help", "help": "print this"},
        "pods": {"type": _count, "help": f"pods of each of the three zones, to {MOST_PODS}"},
        "limit": {"type": _count, "help": "of a zone's pods that may be down at a time"},
        "ready-after": {"type": _span, "help": "how long a new pod takes to be ready, to 1m"},
        "plain": {"action": "store_true", "dest": "is_plain", "help": "a line for each change"},
        "keep": {"action": "store_true", "dest": "is_kept", "help": keep},
    }
    for name, how in flags.items():
        parser.add_argument(f"-{name}", f"--{name}", **how)
    given = vars(parser.parse_args(argv))
    return Settings(**{key: value for key, value in given.items() if value is not None})


def _count(text: str) -> int:
    if not 1 <= int(text) <= MOST_PODS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST_PODS}: {text}")
    return int(text)


def _span(text: str) -> timedelta:
    with suppress(InvalidInput):
        if timedelta(0) < (span := parse_duration(text)) <= LONGEST_START:
            return span
    raise argparse.ArgumentTypeError(f"must be a duration above 0s and at most 1m: {text}")
