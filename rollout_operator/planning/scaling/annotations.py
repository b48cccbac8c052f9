"""What a person wrote into the annotations of scaling, and how it is complained of.

Only what both following and mirroring zones read; what is theirs alone, they read themselves.
"""

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import FORCE_REPLICAS
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.units import parse_go_int, quote


def read_force(sts: StatefulSet) -> int | Reason | None:
    """Return the count that a person forces, the problem with it, or None for no such annotation.

    SCALE-07: what cannot be read counts as absent.
    """
    text = sts.annotations.get(FORCE_REPLICAS)
    if text is None:
        return None
    try:
        replicas = parse_go_int(text, bits=32)
        if replicas < 0:
            raise InvalidInput(f"{quote(text)} is negative")
    except InvalidInput as error:
        return complain(sts, Code.BAD_FORCE_REPLICAS, FORCE_REPLICAS, f"{error}; it is ignored")
    return replicas


def complain(sts: StatefulSet, code: Code, key: str, why: str) -> Reason:
    """Return what is wrong with an annotation of a zone, on one printable line."""
    text = f"StatefulSet {sts.name}: annotation {key}: {_printable(why)}"
    return Reason(code=code, text=text, severity=Severity.WARN, zone=sts.name)


def _printable(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
