"""Where a person's command finds its cluster (D-76): flags, KUBECONFIG, home, service account."""

import asyncio
from errno import EACCES
from pathlib import Path

import pytest

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.cli.main import main
from rollout_operator.config.grammar import UsageError, parse_mixed
from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.kube.connection import Access
from rollout_operator.model.names import ConfigError
from tests.cli.kubeconfig import write_kubeconfig
from tests.kube.fake_api import FakeApi, refuse, reply

POD = "/api/v1/namespaces/mimir/pods/a-0"
SETS = "/apis/apps/v1/namespaces/mimir/statefulsets"
PODS_OF = "/api/v1/namespaces/mimir/pods"
EMPTY: JsonObject = {"metadata": {"resourceVersion": "1"}, "items": []}


def find(*words: str, **environ: str) -> Access:
    return choose_access(parse_mixed(ACCESS_FLAGS, words), environ, Path("/nowhere"))


def files_of(access: Access) -> tuple[Path, ...]:
    assert access.kubeconfig is not None
    return access.kubeconfig.files


def test_d_76_a_flag_goes_before_the_environment_and_that_before_home(tmp_path: Path) -> None:
    places = ("flag", "environ", "home/.kube/config")
    by_flag, by_environ, at_home = (write_kubeconfig(tmp_path / place) for place in places)
    environ = {"KUBECONFIG": str(by_environ), "HOME": str(tmp_path / "home")}

    assert files_of(find(f"--kubeconfig={by_flag}", **environ)) == (by_flag,)
    assert files_of(find(**environ)) == (by_environ,)
    assert files_of(find(HOME=environ["HOME"])) == (at_home,)


def test_d_76_files_of_the_environment_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    first, second = (write_kubeconfig(tmp_path / name, namespace=name) for name in ("one", "two"))

    access = find(KUBECONFIG=f"{tmp_path}/none:{first}::{second}")

    assert files_of(access) == (first, second)
    assert access.namespace == "one"


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        pytest.param((), "mimir", id="of the current context"),
        pytest.param(("-context", "second"), "default", id="of a context without one"),
        pytest.param(("-n", "loki"), "loki", id="short flag"),
        pytest.param(("--namespace=loki", "-context=second"), "loki", id="long flag"),
    ],
)
def test_d_76_the_namespace(tmp_path: Path, words: tuple[str, ...], namespace: str) -> None:
    file = write_kubeconfig(tmp_path / "config")

    assert find(*words, KUBECONFIG=str(file)).namespace == namespace


def test_d_76_in_a_pod_without_a_kubeconfig_the_service_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("ops\n")

    words = parse_mixed(ACCESS_FLAGS, ())
    access = choose_access(words, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)

    assert (access.kubeconfig, access.namespace) == (None, "ops")
    assert access.service_account == tmp_path


@pytest.mark.parametrize("words", [(), ("-context=prod",)], ids=["nothing", "a context"])
def test_without_any_cluster_it_says_where_it_searched(words: tuple[str, ...]) -> None:
    host = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if words else {}
    with pytest.raises(ConfigError, match="there is no kubeconfig: give -kubeconfig, or set KUBEC"):
        find(*words, **host)


def test_files_that_kubeconfig_names_and_that_are_not_there_are_reported(tmp_path: Path) -> None:
    """The advice to set KUBECONFIG would lead nowhere."""
    with pytest.raises(ConfigError, match=f'KUBECONFIG names "{tmp_path}/none", where there is no'):
        find(KUBECONFIG=f"{tmp_path}/none")


@pytest.mark.parametrize("variable", ["KUBECONFIG", "HOME"])
def test_a_file_that_may_not_be_opened_is_named(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose home belongs to another user."""

    def refuse(path: Path, **options: bool) -> None:
        raise PermissionError(EACCES, "Permission denied", f"{path}")

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=f"kubeconfig {tmp_path}/.*: Permission denied"):
        find(**{variable: f"{tmp_path}/x"})


def test_what_is_wrong_with_the_words_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path / "config")

    with pytest.raises(ConfigError, match=r"contexts\[name=frst\]\.context .* did you mean first"):
        find("-context=frst", KUBECONFIG=str(file))
    with pytest.raises(ConfigError, match=r"\.context is not there; there is only first, second$"):
        find("-context=other", KUBECONFIG=str(file))
    with pytest.raises(ConfigError, match=r'\.server: "10\.0\.0\.1:6443" must begin with https://'):
        find(KUBECONFIG=str(write_kubeconfig(tmp_path / "plain", "10.0.0.1:6443")))
    with pytest.raises(ConfigError, match=r'of the context: "\.\./x" is not a name of a namesp'):
        find(KUBECONFIG=str(write_kubeconfig(tmp_path / "odd", namespace="../x")))
    with pytest.raises(UsageError, match=r"-namespace: \"\.\./x\" is not a name of a namespace"):
        find("-n", "../x", KUBECONFIG=str(file))
    with pytest.raises(ConfigError, match=f"kubeconfig {tmp_path}/none: No such file"):
        find(f"-kubeconfig={tmp_path}/none", KUBECONFIG=str(file))


async def test_the_server_of_the_file_is_called(tmp_path: Path) -> None:
    async with FakeApi() as server:
        server.on("GET", POD, reply({}))
        file = write_kubeconfig(tmp_path / "config", server.url)
        async with open_client(find(KUBECONFIG=str(file))) as client:
            assert await client.fetch(PODS, "mimir", "a-0") == b"{}"


@pytest.mark.parametrize(
    ("words", "is_asked"),
    [
        (["explain", "a-0"], True),
        (["explain", "group/a"], True),
        (["explain", "mazr/a"], True),
        (["explain", "a-0", "-service="], False),
        (["explain", "rollout/a"], False),
        (["wait"], True),
        (["wait", "group/a"], True),
        (["wait", "-service=", "group/a"], False),
        (["wait", "rollout/a"], False),
        (["status"], True),
        (["status", "-service="], False),
    ],
)
async def test_the_operator_is_asked_what_only_it_knows(
    tmp_path: Path, words: list[str], is_asked: bool
) -> None:
    """D-76, SI-26: as by `status`; of releases it knows no more than their objects say."""
    async with FakeApi() as server:
        for path in (SETS, PODS_OF):
            server.on("GET", path, reply(EMPTY))
        config = write_kubeconfig(tmp_path / "config", server.url)
        await asyncio.to_thread(main, [*words, f"-kubeconfig={config}"])
        asked = any("/proxy/status.json" in request.path for request in server.requests)
        assert asked is is_asked


async def test_d_76_rights_to_list_sets_and_pods_are_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else is requested may be refused or missing."""
    async with FakeApi() as server:
        for path in (SETS, PODS_OF, "/apis/apps/v1/statefulsets"):
            server.on("GET", path, reply(EMPTY))
        server.on("GET", "/api/v1/namespaces/mimir", refuse(403, "Forbidden", ""))
        budgets = "/apis/rollout-operator.grafana.com/v1/namespaces/mimir"
        server.on("GET", f"{budgets}/zoneawarepoddisruptionbudgets", refuse(403, "Forbidden", ""))
        flag = f"-kubeconfig={write_kubeconfig(tmp_path / 'config', server.url)}"
        assert await asyncio.to_thread(main, ["status", flag]) == 0
        text = capsys.readouterr().out
        assert "namespace mimir  0 rollout groups" in text
        assert "budgets are left out: cannot list zoneawarepoddisruptionbudgets" in text
        assert "operator not reached" in text
        assert {request.method for request in server.requests} == {"GET"}
        assert await asyncio.to_thread(main, ["status", "-group=ingester", flag]) == 1
        assert "rollout group ingester not found in namespace" in capsys.readouterr().err
        assert await asyncio.to_thread(main, ["status", "-A", flag]) == 0
        assert capsys.readouterr().out == "no rollout groups found\n"


async def test_without_these_rights_it_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeApi() as server:
        server.on("GET", SETS, refuse(403, "Forbidden", "no"))
        flag = f"-kubeconfig={write_kubeconfig(tmp_path / 'config', server.url)}"
        assert await asyncio.to_thread(main, ["status", flag]) == 1
        assert 'grant verb list on "statefulsets"' in capsys.readouterr().err


NOT_SERVED = "no rollout group found in namespace mimir"
COMMANDS = [
    pytest.param(["status"], 0, "", id="status"),
    pytest.param(["status", "-o=json"], 0, "", id="JSON"),
    pytest.param(["status", "-A"], 0, "", id="all namespaces"),
    pytest.param(["status", "x"], 1, "Rollout x not found in namespace mimir", id="named"),
    pytest.param(["wait"], 1, NOT_SERVED, id="wait"),
    pytest.param(["explain", "x"], 1, "x not found in a rollout group of", id="explain"),
    pytest.param(["explain", "rollout/x"], 1, "rollout x not found", id="explain a release"),
    pytest.param(["adopt"], 1, "there is no StatefulSet in namespace mimir", id="adopt"),
    pytest.param(["simulate"], 1, "no StatefulSet", id="simulate"),
]


@pytest.mark.parametrize("answer", ["absent", "empty", "unread"])
@pytest.mark.parametrize(("words", "code", "said"), COMMANDS)
async def test_d_76_a_namespace_that_does_not_exist_is_no_empty_one(
    words: list[str],
    code: int,
    said: str,
    answer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The API server lists nothing in either. Without the right to read it, it counts as empty."""
    answers = {
        "absent": refuse(404, "NotFound", 'namespaces "mimir" not found'),
        "empty": reply({"kind": "Namespace", "metadata": {"name": "mimir"}}),
        "unread": refuse(403, "Forbidden", 'forbidden: User "u" cannot get resource "namespaces"'),
    }
    is_missed = answer == "absent" and "-A" not in words
    async with FakeApi() as server:
        server.on("GET", "/api/v1/namespaces/mimir", answers[answer])
        for scope in ("", "/namespaces/mimir"):
            server.on("GET", f"/apis/apps/v1{scope}/statefulsets", reply(EMPTY))
            server.on("GET", f"/api/v1{scope}/pods", reply(EMPTY))
        flag = f"-kubeconfig={write_kubeconfig(tmp_path / 'config', server.url)}"
        ended = await asyncio.to_thread(main, [*words, flag])

    shown = capsys.readouterr()
    assert ended == (1 if is_missed else code)
    assert (shown.err == "rollout-operator: namespace mimir does not exist\n") is is_missed
    if not is_missed:
        assert said in shown.err
    else:
        assert shown.out == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1:9", "Cannot connect to host 127.0.0.1:9: Connection refused"),
        ("http", "it may serve http:// there"),
    ],
    ids=["refused", "no TLS"],
)
@pytest.mark.parametrize(
    "words",
    [["doctor"], ["adopt"], ["simulate"], ["admin", "apply-crds", "manifests/crds"], ["status"]],
    ids=lambda words: words[0],
)
async def test_why_the_api_server_does_not_answer_is_told_once(
    words: list[str], url: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeApi() as server:
        where = url if ":" in url else server.url.replace("http", "https")
        flag = f"-kubeconfig={write_kubeconfig(tmp_path / 'config', where)}"
        assert await asyncio.to_thread(main, [*words, flag]) == 1

    said = capsys.readouterr().err
    assert said.endswith(f"{why}\n")
    assert said.count("127.0.0.1") == 1
