"""Find out what a `caBundle` holds, and whether it has signed what an operator serves.

Only certificates are read: `rollout-operator doctor` has no business with keys.
"""

from base64 import b64decode
from binascii import Error as Base64Error

from rollout_operator.model.diagnosis.installation import BundleFacts
from rollout_operator.model.errors import InvalidInput
from rollout_operator.pki.facts import Chain, is_trusted, load_chain


def read_bundle(bundle: str, certificate: bytes = b"") -> BundleFacts:
    """Return what a `caBundle` holds, in base64 as it is written.

    `certificate` is the PEM of what the operator serves, empty where that is not known.
    """
    try:
        cas = load_chain(b64decode(bundle, validate=True), "caBundle")
    except Base64Error:
        return BundleFacts(problem="caBundle: not base64")
    except InvalidInput as error:
        return BundleFacts(problem=f"{error}")
    return BundleFacts(
        ends=max(ca.not_valid_after_utc for ca in cas),
        vouches=_vouches(cas, certificate) if certificate else None,
    )


def _vouches(cas: Chain, certificate: bytes) -> bool | None:
    try:
        return is_trusted(load_chain(certificate, "cert"), cas)
    except InvalidInput:
        return None
