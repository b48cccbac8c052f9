"""Mutants of the certificate's Secret and of the bundles: `planning.ownership`, `pki`."""

from typing import Final

from tests.mutants.entry import Mutant

_UNSEEN: Final = "no certificate is kept there: reviews are asked without TLS"

CERTIFICATES: Final = (
    Mutant(
        name="any-secret-is-ours",
        old="return self.is_labelled or is_issued or self.is_empty or self.is_known\n",
        new="return is_issued or True\n",
        breaks="LI-13: the private key of another application is overwritten",
        unseen=_UNSEEN,
        units="tests/pki/test_pki_ownership.py",
    ),
    Mutant(
        name="foreign-certificate-is-used",
        old="    if isinstance(facts, Held) and marks.leaf_name != LEAF_NAME:\n",
        new="    if isinstance(facts, Held) and not marks.leaf_name:\n",
        breaks="LI-13, SI-19: a CA of others that overwrote ours is published as one of ours",
        unseen=_UNSEEN,
        units="tests/pki/test_pki_ownership.py",
    ),
    Mutant(
        name="known-by-its-name",
        old="            is_known=bool(stored.uid) and stored.uid == self._uid,\n",
        new="            is_known=bool(self._uid),\n",
        breaks="LI-13: another application's Secret in the place of ours is overwritten",
        unseen=_UNSEEN,
        units="tests/pki/test_pki_ownership.py",
    ),
    Mutant(
        name="spoilt-is-forgotten",
        old="                self._uid = stored.uid\n",
        new="",
        breaks="LI-13: our own Secret is not healed where its label went with its data",
        unseen=_UNSEEN,
        units="tests/pki/test_pki_ownership.py",
    ),
    Mutant(
        name="bundle-into-any-hook",
        old="        if calls_us(hook, names) and hook.ca_bundle != bundle:\n",
        new="        if hook.ca_bundle != bundle:\n",
        breaks="SI-20: the CA of another server in a labelled configuration is replaced by ours",
        unseen=_UNSEEN,
        units="tests/pki/test_pki_hooks.py",
    ),
    Mutant(
        name="rotation-waits-for-strangers",
        old="for hook in hooks if calls_us(hook, names))\n",
        new="for hook in hooks)\n",
        breaks="SI-19: a rotation is forced at the end, since a hook is never written",
        unseen=_UNSEEN,
        units="tests/pki/test_pki_hooks.py",
    ),
)
