"""Rules of `metadata` that all kinds share: what a write may say and what it may not change.

Names are checked as DNS labels or subdomains; labels, annotations and finalizers by their grammar.
Who sets uid, creationTimestamp, resourceVersion and namespace is the server's frame
(`lab.apiserver.api`).
"""

import re
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import children, metadata_of, text
from rollout_operator.lab.schemas.invalid import IMMUTABLE, Problems
from rollout_operator.lab.schemas.labels import strings

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_WORD: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_IS_LABEL: Final = re.compile(_LABEL)
_IS_SUBDOMAIN: Final = re.compile(_SUBDOMAIN)
_IS_WORD: Final = re.compile(_WORD)

_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    rf"for validation is '{_LABEL}(\.{_LABEL})*')"
)
_KEY_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_WORD}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LONGEST_LABEL: Final = 63
_LONGEST_SUBDOMAIN: Final = 253
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_FIXED: Final = ("name", "namespace", "uid")


def check_label_name(field: str, name: str, problems: Problems) -> None:
    """Note where a name is no DNS label."""
    if len(name) > _LONGEST_LABEL:
        problems.invalid(field, name, f"must be no more than {_LONGEST_LABEL} bytes")
    if not _IS_LABEL.fullmatch(name):
        problems.invalid(field, name, _LABEL_TEXT)


def check_subdomain_name(field: str, name: str, problems: Problems) -> None:
    """Note where a name is no DNS subdomain."""
    if len(name) > _LONGEST_SUBDOMAIN:
        problems.invalid(field, name, f"must be no more than {_LONGEST_SUBDOMAIN} bytes")
    if not _IS_SUBDOMAIN.fullmatch(name):
        problems.invalid(field, name, _SUBDOMAIN_TEXT)


def check_metadata(obj: JsonObject, problems: Problems) -> None:
    """Note what is malformed in labels, annotations, owner references and finalizers."""
    check_labels("metadata.labels", strings(obj, "metadata", "labels"), problems)
    for key in strings(obj, "metadata", "annotations"):
        _check_key("metadata.annotations", key, key.lower(), problems)
    for owner in children(obj, "metadata", "ownerReferences"):
        for part in ("kind", "name", "uid"):
            if not owner.get(part):
                problems.invalid(f"metadata.ownerReferences.{part}", "", "must not be empty")
    _check_controllers(children(obj, "metadata", "ownerReferences"), problems)


def _check_controllers(owners: list[JsonObject], problems: Problems) -> None:
    """Note each controlling owner after the first one."""
    named = [f"{one.get('kind')}/{one.get('name')}" for one in owners if one.get("controller")]
    shown = [{key: one[key] for key in _OWNER if key in one} for one in owners]
    for other in named[1:]:
        problems.invalid(
            "metadata.ownerReferences",
            shown,
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{named[0]} and {other}",
        )


def check_labels(field: str, labels: dict[str, str], problems: Problems) -> None:
    """Note labels whose key or value is malformed."""
    for key, value in labels.items():
        _check_key(field, key, key, problems)
        if len(value) > _LONGEST_LABEL:
            problems.invalid(field, value, f"must be no more than {_LONGEST_LABEL} bytes")
        if value and not _IS_WORD.fullmatch(value):
            problems.invalid(field, value, _VALUE_TEXT)


def keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Put back in `new.metadata` what an update can never change, whatever it says."""
    before, after = metadata_of(old), metadata_of(new)
    for key in ("generation", "creationTimestamp"):
        after.pop(key, None)
        if key in before:
            after[key] = before[key]
    after.setdefault("uid", before.get("uid"))
    if "deletionTimestamp" in before:
        after["deletionTimestamp"] = before["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in before:
            after.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])


def check_metadata_update(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    """Note what changed in `metadata` although it may not."""
    before, after = metadata_of(old), metadata_of(new)
    if "deletionTimestamp" in before:
        known, added = _texts(before, "finalizers"), _texts(after, "finalizers")
        extra = sorted(set(added) - set(known))
        if extra:
            listed = ", ".join(f'"{one}"' for one in extra)
            problems.forbid(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
            )
    for key in _FIXED:
        if after.get(key) != before.get(key):
            problems.invalid(f"metadata.{key}", text(new, "metadata", key), IMMUTABLE)
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if after.get(key) != before.get(key):
            problems.invalid(f"metadata.{key}", after.get(key), IMMUTABLE)
    check_metadata(new, problems)


def _check_key(field: str, key: str, checked: str, problems: Problems) -> None:
    prefix, slash, name = checked.rpartition("/")
    if slash and not _IS_SUBDOMAIN.fullmatch(prefix):
        problems.invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if len(name) > _LONGEST_LABEL:
        problems.invalid(field, key, f"name part must be no more than {_LONGEST_LABEL} bytes")
    if not name:
        problems.invalid(field, key, "name part must be non-empty")
    if not _IS_WORD.fullmatch(name):
        problems.invalid(field, key, _KEY_TEXT)


def _texts(holder: JsonObject, key: str) -> list[str]:
    found = holder.get(key)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
