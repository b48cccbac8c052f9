"""What a registry answered instead → the error that says what to do."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from rollout_operator.model.units import quote
from rollout_operator.oci.errors import (
    RegistryBusy,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
    ReleaseNotFound,
)
from rollout_operator.oci.keyring import RegistryCredential
from rollout_operator.oci.sender import RegistryAnswer

# A registry that says a year must not silence us for one.
LONGEST_WAIT: Final = timedelta(hours=1)
# Messages are free text, which may repeat what we have sent.
_CODE: Final = re.compile(r"[A-Z_]{1,40}")


class _RegistryRefusal(msgspec.Struct):
    code: str = ""


class _Refusals(msgspec.Struct):
    errors: list[_RegistryRefusal] | None = None


_REFUSALS: Final = msgspec.json.Decoder(_Refusals)


def deny(subject: str, host: str, credential: RegistryCredential | None) -> RegistryDenied:
    """Return the error for a registry that wants other credentials."""
    if credential is None:
        return RegistryDenied(
            f"{subject}: it wants credentials, or there is no such repository; name a pull secret "
            f"with an entry for {host} in the ImageRepository's spec.secretRef"
        )
    return RegistryDenied(
        f"{subject}: it does not accept the pull secret's entry {quote(credential.key)}; renew "
        "that entry, or give it the right to pull"
    )


def error_of(
    subject: str, answer: RegistryAnswer, credential: RegistryCredential | None, now: datetime
) -> RegistryError:
    """Return the error for an answer that is no success; `subject` begins its sentence."""
    shown = ", ".join(filter(None, (f"HTTP status {answer.status}", _read_code(answer.body))))
    if answer.status == 404:
        return ReleaseNotFound(
            f"{subject}: there is no such tag or repository ({shown}); push it, or correct its name"
        )
    if answer.status == 403:
        whose = (
            f"the pull secret's entry {quote(credential.key)}"
            if credential
            else "clients without credentials"
        )
        return RegistryDenied(
            f"{subject}: it does not let {whose} pull ({shown}); change the rights there"
        )
    wait = parse_retry_after(answer.headers, now)
    if answer.status == 429:
        return RegistryBusy(
            f"{subject}: too many requests ({shown}); it is called again later, and less often"
            " with a longer spec.releaseUpdateInterval",
            retry_after=wait,
        )
    return RegistryUnreachable(
        f"{subject}: it answered with {shown}; it is called again later", retry_after=wait
    )


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long to wait, at most an hour; None where the registry does not say."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=int(text)) if len(text) < 8 else LONGEST_WAIT
    else:
        try:
            time = parsedate_to_datetime(text)
            wait = (time if time.tzinfo else time.replace(tzinfo=UTC)) - now
        except (ValueError, OverflowError):
            return None
    return min(wait, LONGEST_WAIT) if wait > timedelta(0) else None


def _read_code(body: bytes) -> str:
    try:
        errors = _REFUSALS.decode(body).errors or []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return next((error.code for error in errors if _CODE.fullmatch(error.code)), "")
