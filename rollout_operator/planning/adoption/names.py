"""Which names may stand in a command that a person pastes: those that the API server takes.

A file may say anything. A name with a line break would end a comment, and begin a command of its
own.
"""

import re
from typing import Final

from rollout_operator.model.adoption.namespace import AdoptableNamespace
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import quote

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def refuse_names(seen: AdoptableNamespace) -> None:
    """Raise InvalidInput where the namespace or a StatefulSet has a name that the API refuses."""
    names = [seen.namespace] if seen.namespace else []
    for name in (*names, *(sts.name for sts in seen.sets)):
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{quote(name)} is no name of an object in Kubernetes")


def refuse_group(name: str) -> None:
    """Raise InvalidInput where a group has a name that is no value of a label."""
    if not _LABEL_VALUE.fullmatch(name):
        raise InvalidInput(
            f"{quote(name)} is no value of a label, which the name of a group has to be:"
            " choose another name with -group"
        )


def name_budget(group: str) -> str:
    """Return the name of a group's budget: labels allow upper case and underscores, names do not.

    Each part between dots begins and ends with a letter or a digit.
    """
    parts = group.lower().replace("_", "-").split(".")
    return ".".join(filter(None, (part.strip("-") for part in parts)))
