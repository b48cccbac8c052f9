"""No secret stands in the text of a value that holds it."""

import pytest

from rollout_operator.controllers.releases import look_ups
from rollout_operator.kube.client import exchange
from rollout_operator.kube.connection import kubeconfig, login
from rollout_operator.model.units import Confidential
from rollout_operator.oci import keyring, tokens


@pytest.mark.parametrize(
    "kind",
    [
        *(kubeconfig.Kubeconfig, kubeconfig.UserCredentials, kubeconfig._File),
        *(kubeconfig._User, kubeconfig._NamedUser),
        *(login.LoginProgram, login.ProgramCredentials, login._Printed),
        *(keyring._Entry, tokens._TokenAnswer, look_ups._Secret),
        exchange.HttpRequest,
    ],
)
def test_its_text_is_its_name(kind: type[Confidential]) -> None:
    assert repr(kind.__new__(kind)) == f"{kind.__name__}(...)"
