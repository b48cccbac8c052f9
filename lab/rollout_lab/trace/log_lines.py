"""Lines of the operator's log, as a story tells them: the message, and the keys that say more."""

import re
from typing import Final

import msgspec

_PAIR: Final = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|\S*)')
_ESCAPED: Final = re.compile(r"\\(.)")
_FRAME: Final = frozenset({"level", "ts", "msg", "caller"})
# Told by the message, or by another key: a zone names its group.
_SILENT: Final = frozenset({"why", "reason", "group"})
TERMINATING: Final = "Terminating pod"
OBEYING: Final = "Obeying budget"
WAITING: Final = "Group waits"
POLICY_WAITING: Final = "Policy waits"
# Waits that are told by what policies record.
_RECORDED: Final = frozenset(
    {
        *((POLICY_WAITING, code) for code in ("batch_open", "interval_wait", "up_to_date")),
        (WAITING, "driven_by_policy"),
    }
)
# Told by what comes of them, or of no use to who reads a story.
_MUTE: Final = frozenset(
    {
        "Allowing change",
        "Correcting gate",
        "Creating gate",
        "Deleting gate",
        "Listed",
        "Recording revision",
        "Refusing change",
        "Resetting HealthCheck",
        "Rollout operator is ready",
        "Rollout reports",
        "Writing an object of Flux",
    }
)


class LogLine(msgspec.Struct, frozen=True):
    """One record of the log."""

    message: str
    keys: dict[str, str]

    @property
    def is_mute(self) -> bool:
        """Return whether a story does without it."""
        is_recorded = (self.message, self.keys.get("reason")) in _RECORDED
        return is_recorded or self.message in _MUTE or self.keys.get("level") == "debug"

    @property
    def is_wait(self) -> bool:
        """Return whether it says what something waits for: worth telling only where it lasts."""
        return self.message in (WAITING, POLICY_WAITING)

    @property
    def deleted_pod(self) -> str:
        """Return the pod that it says is about to be deleted, empty where it says no such thing."""
        return self.keys.get("pod", "") if self.message == TERMINATING else ""

    def render(self) -> str:
        """Return it without what is the same everywhere."""
        why = self.keys.get("why", "")
        pod = self.deleted_pod
        if pod:
            why = why.removeprefix(f"{pod} is ") or self.keys.get("reason", "")
            return f"deletes {pod}: {why}"
        if self.is_wait:
            return f"waits: {why}"
        if self.message == OBEYING:
            pattern = self.keys.get("partition_pattern")
            within = f" in each partition of {pattern}" if pattern else ""
            limit = self.keys.get("max_unavailable", "")
            return f"obeys budget {self.keys.get('zpdb', '')}: at most {limit} unavailable{within}"
        shown = [
            f"{key} {value}" for key, value in self.keys.items() if key not in _FRAME | _SILENT
        ]
        whole = f"{self.message} ({', '.join(shown)})" if shown else self.message
        return f"{whole}: {why}" if why else whole


def read_log_line(text: str) -> LogLine | None:
    """Return the record of a line in logfmt, None where a person has said something."""
    keys = {key: _plain(value) for key, value in _PAIR.findall(text)} if "msg=" in text else {}
    return LogLine(keys["msg"], keys) if "msg" in keys else None


def strip_time(text: str) -> str:
    """Return a line without the time of the machine that wrote it, which no two runs share."""
    return re.sub(r"(^| )ts=\S+", "", text)


def _plain(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
