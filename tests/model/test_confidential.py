"""No secret stands in the text of a value that holds it."""

import pytest

from rollout_operator.controllers import release_sources
from rollout_operator.kube import client, kubeconfig
from rollout_operator.kube import kubeconfig as login
from rollout_operator.model.units import Confidential
from rollout_operator.oci import exchange


@pytest.mark.parametrize(
    "kind",
    [
        *(kubeconfig.Kubeconfig, kubeconfig.UserCredentials, kubeconfig._File),
        *(kubeconfig._User, kubeconfig._NamedUser),
        *(login.LoginProgram, login.ProgramCredentials, login._Printed),
        *(exchange._KeyringEntry, exchange._TokenAnswer, release_sources._Secret),
        client.HttpRequest,
    ],
)
def test_its_text_is_its_name(kind: type[Confidential]) -> None:
    assert repr(kind.__new__(kind)) == f"{kind.__name__}(...)"
