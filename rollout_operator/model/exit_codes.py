"""The exit codes of all commands: what a script learns without reading a word."""

from enum import IntEnum, unique


@unique
class ExitCode(IntEnum):
    """How a command ended. `docs/commands.md` has the table."""

    DONE = 0
    FAILED = 1
    """The command could not begin, or not complete what was requested; stderr says why."""
    BAD_COMMAND_LINE = 2
    """Nothing was tried."""
    TIMED_OUT = 3
    """What it waited for has not come yet."""
    NEEDS_A_PERSON = 4
    """What it waited for, or looked at, will not come by itself."""
    BOUND_CROSSED = 5
    """`simulate`: more would be down at a time than a rollout may take down."""
    UNREACHED = 124
    """`doctor`: the API server does not reach a webhook in time; as `timeout` of a shell ends."""
    # As shells count a process that a signal ended.
    INTERRUPTED = 130
    UNREAD = 141
