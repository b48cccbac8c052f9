"""The documents say what the code does: flags, reasons, metrics, paths, findings and rights."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec
import yaml

from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.doctor import OUTPUT, STRICT, render_usage
from rollout_operator.cli.main import COMMANDS
from rollout_operator.config.checks import render_flag_table
from rollout_operator.controllers.budgets import UNTOUCHED_FOR
from rollout_operator.guards.grants import QUARANTINE, RECORD_COUNTS
from rollout_operator.model import names
from rollout_operator.model.budget import BudgetStatus, EventAction, EventKind
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.outcome import Code, Family, list_codes
from rollout_operator.operator import reviews
from rollout_operator.planning.adoption import AdoptionCode
from rollout_operator.planning.doctor import CHECKS, EXPLANATIONS
from rollout_operator.planning.events import NAMED_REASONS
from rollout_operator.planning.wording import camel_case
from rollout_operator.releases.model.decode import decode_rollout
from rollout_operator.releases.model.decode_flux import (
    decode_image_policy,
    decode_image_repository,
    decode_kustomization,
    decode_oci_repository,
)
from rollout_operator.releases.model.releases import INTENTS, KUBERIK, ReleaseRollout
from rollout_operator.releases.planning import candidates
from rollout_operator.releases.planning.describe import REMEDIES
from rollout_operator.telemetry.metrics import EVENT_OUTCOMES, Metrics
from rollout_operator.telemetry.states import Health
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules
from tests.code_rules import ROOT
from tests.own_metrics import make_all_metrics
from tests.pages import DOCS, chapter_of, rows_of
from tests.rendered import MANIFESTS, list_fields
from tests.site.reference import PAGE, fill_reasons, render_page
from tests.system.grants import shipped_grants
from tests.test_packaging import PROJECT
from tests.world.kuberik import SCHEMAS
from tests.world.manifests import read_manifests

COMMANDS_PAGE: Final = (DOCS / "commands.md").read_text()
REASONS: Final = chapter_of("monitoring.md", "Reasons")
SUPPORT: Final = (DOCS / "support.md").read_text()
SECURITY: Final = (ROOT / "SECURITY.md").read_text()
RELEASES: Final = (DOCS / "releases.md").read_text()
MIGRATE: Final = "releases-migrate.md"
KUBERIK_FLAGS: Final = {
    *("metrics-bind-address", "health-probe-bind-address", "leader-elect", "metrics-secure"),
    *("metrics-cert-path", "metrics-cert-name", "metrics-cert-key", "enable-http2"),
    *("webhook-cert-path", "webhook-cert-name", "webhook-cert-key"),
}


def between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def read_samples(page: str) -> list[dict[str, Any]]:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return [one for block in blocks for one in yaml.safe_load_all(block)]


def test_the_flag_table_is_that_of_the_code() -> None:
    table = between(
        (DOCS / "flags.md").read_text(), "checked by a test -->\n", "<!-- end of flags -->"
    )
    assert table == render_flag_table(), "see 'Add a flag' in CONTRIBUTING.md, step 4"


def test_reasons_are_those_of_the_code() -> None:
    """D-40, D-75: a page, a terminal and the documents say the same, each code once.

    Missing pods are odd, and hold a group all the same.
    """
    assert fill_reasons(REASONS) == REASONS, "python -m tests.site.reference"
    assert sorted(quoted(row[0])[0] for row in rows_of(REASONS)) == sorted(Code)
    apart = [one for one in REASONS.split("\n### ") if one.startswith(("Moving", "Odd"))]
    codes = {quoted(row[0])[0] for row in rows_of("\n".join(apart))}
    assert codes - {Code.PODS_MISSING} == {*list_codes(Family.MOVES, Family.ODD)}


def test_the_metrics_are_those_that_are_exposed() -> None:
    exposed = {one.name for one in make_all_metrics().registry.collect()}
    named = re.findall(r"`(rollout_operator_\w+)`", chapter_of("monitoring.md", "Metrics"))
    own = {one.removesuffix("_total") for one in exposed if one.startswith("rollout_operator_")}
    assert {name.removesuffix("_total") for name in named} == own


def test_the_events_are_those_of_the_code() -> None:
    """D-40: each action and each kind of object stands there; each reason is one that is given."""
    chapter = chapter_of("monitoring.md", "Events")
    rows = [row for row in rows_of(chapter) if row[0].startswith("`")]
    assert {row[0].strip("`") for row in rows} == set(EventAction)
    assert {row[1] for row in rows} == set(EventKind)
    reasons = [reason for row in rows for reason in re.findall(r"`(\w+)`", row[2])]
    assert len(reasons) == len(set(reasons))
    assert NAMED_REASONS <= set(reasons) <= NAMED_REASONS | {camel_case(code) for code in Code}
    assert all(f"`{outcome}`" in chapter for outcome in EVENT_OUTCOMES)


def test_custom_resources_are_those_that_are_shipped() -> None:
    """Repair it by `python -m tests.site.reference`."""
    assert PAGE.read_text() == render_page()


def test_labels_and_annotations_are_those_of_the_code() -> None:
    page = (DOCS / "labels.md").read_text()
    values = {str(value) for name, value in vars(names).items() if name.isupper()}
    ours = re.compile(r"(grafana\.com/|rollout-)\S+")
    keys = {value for value in values - {names.FIELD_MANAGER} if ours.fullmatch(value)}
    assert {key for key in keys if f"`{key}`" not in page} == set()
    assert {*re.findall(r"`(grafana\.com/[\w/-]+)`", page)} - keys == set()


async def test_the_paths_are_those_that_are_served() -> None:
    rules = ClusterRules(namespace="prod")
    server = AdminServer(0, Metrics(), Health(LoopClock()), rules)
    served = {
        route.resource.canonical.partition("/{")[0]
        for route in server._runner.app.router.routes()
        if route.resource is not None
    }
    hooks = {str(value) for name, value in vars(reviews).items() if name.endswith("_PATH")}
    assert collect_paths("8001") == served | {"/debug/pprof/…"}
    assert collect_paths("8443") == hooks
    assert collect_paths("8444") == {*reviews.LED_PATHS}


def collect_paths(port: str) -> set[str]:
    """Return the paths that the page names below the heading of a port."""
    sections = chapter_of("monitoring.md", "Endpoints").split("\n### ")
    (section,) = (part for part in sections if part.startswith(port))
    return {path for row in rows_of(section) for path in quoted(row[0]) if path.startswith("/")}


def test_findings_are_those_of_the_code() -> None:
    rows = [f"| `{code}` | {' | '.join(told)} |\n" for code, told in EXPLANATIONS.items()]
    head = "| code | severity | what it means | what to do |\n| --- | --- | --- | --- |\n"
    table = between(COMMANDS_PAGE, "compared by a test -->\n", "<!-- end of findings -->")
    assert table == head + "".join(rows)
    assert f"`{len(CHECKS)} checks passed`" in COMMANDS_PAGE
    assert all(f"-{flag.name}" in render_usage() for flag in (OUTPUT, STRICT))
    page = (DOCS / "moving.md").read_text().partition("\n## Shadow mode\n")[0]
    adopted = re.findall(r"^\| `(\w+)` \| (?:info|warn|error) \|", page, re.MULTILINE)
    assert adopted == [str(code) for code in AdoptionCode]


def test_commands_that_are_named_have_a_row_in_the_help() -> None:
    """The old names of tasks of `admin` still work, but neither help nor completion shows them."""
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("charts/**/NOTES.txt")]
    text = "\n".join(page.read_text() for page in pages if page.name != "CHANGELOG.md")
    named = re.findall(r"(?:`|^\$ |^ {3,})rollout-operator ([a-z][\w-]*)", text, re.MULTILINE)
    assert {*named} - {command.name for command in COMMANDS} == set()


def test_budgets_are_explained_with_examples_that_would_be_stored() -> None:
    """ZPDB-01, ZPDB-10 to 26: read by the parser of watched budgets and of the webhook."""
    found = [one for one in read_samples("budgets.md") if "selector" in one.get("spec", {})]
    whole = next(one for one in found if one.get("kind") == "ZoneAwarePodDisruptionBudget")
    budgets = [parse_budget(msgspec.json.encode({**whole, **one})) for one in found]
    assert {one.by_partition for one in budgets} == {False, True}
    assert any(one.delay for one in budgets)
    page = (DOCS / "budgets.md").read_text()
    explained = re.findall(r"^\| `([\w.]+)`(?:, `\w+`)? \|", page, re.MULTILINE)
    crd = yaml.safe_load((MANIFESTS / "crds/zoneawarepoddisruptionbudgets.yaml").read_text())
    fields = {one.partition(".")[0] for one in explained}
    assert fields == {*_schema_of(crd)["spec"]["properties"], *msgspec.to_builtins(BudgetStatus())}
    for span, words in (
        (UNTOUCHED_FOR, "after `lasts`, and 8 s at least"),
        (RECORD_COUNTS, "One older than two minutes counts for nothing"),
        (QUARANTINE, "refuses all evictions of its first twelve seconds"),
    ):
        numbers = {"8 s": 8, "two minutes": 120, "twelve seconds": 12}
        (seconds,) = (number for word, number in numbers.items() if word in words)
        assert span == timedelta(seconds=seconds)
        assert words in " ".join(page.split())


def _schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    (version,) = crd["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return schema


# Rights


def test_rights_are_explained_as_they_are_shipped() -> None:
    """SEED-064, SEC-17: of the base, and of the components that one moves to."""
    install = (DOCS / "install.md").read_text()
    for rule in _rules():
        line = f"| {', '.join(rule['verbs'])} | {', '.join(rule['resources'])} |"
        assert line in install
    verbs = re.compile(r"\b(?:get|list|watch|delete|patch|update|create)\b")
    documented = {
        (verb, quoted(row[0])[0])
        for row in rows_of(chapter_of("moving.md", "Rights"))
        for verb in verbs.findall(row[2])
    }
    components = ("webhooks", "scaling", "mirroring", "zone-tracker")
    folders = ("base", *(f"components/{one}" for one in components))
    assert documented == set().union(*map(shipped_grants, folders))


def test_a_stolen_token_can_do_what_the_page_says() -> None:
    """SEC-19: each write of the base stands there in words; it reads no secret."""
    writes = {
        f"{verb} {resource}"
        for rule in _rules()
        for resource in rule["resources"]
        for verb in {*rule["verbs"]} - {"get", "list", "watch"}
    }
    assert writes == {
        *("delete pods", "patch pods", "update statefulsets/status"),
        *("patch leases", "create leases", "create events", "patch events"),
        "patch zoneawarepoddisruptionbudgets/status",
    }
    resources = {resource for rule in _rules() for resource in rule["resources"]}
    assert not resources & {"secrets", "pods/exec", "configmaps"}
    for words in (
        "none at all in the base",
        "delete any pod of the namespace, and patch any pod",
        "`status.currentRevision` of StatefulSets, the status of budgets, Events, and the Lease",
    ):
        assert words in SECURITY


def test_each_component_that_may_write_stands_beside_what_it_may_write() -> None:
    """SEC-19: for a tenant who checks what the account can do."""
    points = [" ".join(point.split()).lower() for point in re.split(r"\n\n|\n- ", SECURITY)]
    missing = [
        (component, resource)
        for component, resource in _component_writes()
        if not [one for one in points if f"`{component}`" in one and _kind(resource) in one]
    ]
    assert missing == []


def _component_writes() -> Iterator[tuple[str, str]]:
    for component in {path.parent.name for path in MANIFESTS.glob("components/*/*role.yaml")}:
        for verb, resource in shipped_grants(f"components/{component}"):
            if verb not in {"get", "list", "watch"}:
                yield component, resource


def _kind(resource: str) -> str:
    name = resource.partition("/")[0].removesuffix("s")
    return (
        "webhook configuration"
        if name.endswith("webhookconfiguration")
        else name.removesuffix("ie")
    )


def _rules() -> list[dict[str, Any]]:
    (role,) = [one for one in read_manifests() if one["kind"] == "Role"]
    rules: list[dict[str, Any]] = role["rules"]
    return rules


# What is supported, and how one moves here


def test_what_is_tested_is_what_the_tests_build() -> None:
    module = (ROOT / "tests/controlplane/go.mod").read_text()
    (kubernetes,) = re.findall(r"k8s\.io/kubernetes v(\d+\.\d+)\.", module)
    wanted = PROJECT["project"]["requires-python"].removeprefix(">=")
    launcher = (ROOT / "image/rollout-operator").read_text()
    (image,) = re.findall(r"^#!/usr/bin/python(\S+)", launcher)
    tested = {row[0]: row[1] for row in rows_of(SUPPORT)}
    assert tested["Kubernetes"].startswith(f"{kubernetes}:")
    assert tested["Python"] == f"{wanted}, by the whole gate. The image runs on {image}"
    assert f"| {wanted} or newer |" in SUPPORT


def test_nothing_installs_what_no_registry_has() -> None:
    """D-77: until there is a release, of the name there might be another one's package."""
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    messages = [path for top in ("rollout_operator", "lab") for path in (ROOT / top).rglob("*.py")]
    wanted = {
        what.strip("'")
        for page in (*pages, *messages)
        for what in re.findall(r"pip install ([^`\s]+)", page.read_text())
    }
    assert wanted
    assert {each for each in wanted if not each.startswith(".")} == set()


def test_messages_of_the_original_are_in_the_program() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "rollout_operator").rglob("*.py"))
    rows = [row[1] for row in rows_of(chapter_of("moving.md", "Messages")) if len(row) == 2]
    messages = [text for row in rows for text in re.findall(r"`([A-Z][a-z ]+)`", row)]
    assert len(messages) > 8
    assert [text for text in messages if f'"{text}"' not in sources] == []
    reasons = re.findall(r"`reason=(\w+)`|or `(\w+)`", " ".join(rows))
    assert {one or other for one, other in reasons} <= {str(code) for code in Code}


# Releases


def test_samples_of_releases_can_be_obeyed() -> None:
    """RELB-41: and mean each other."""
    head = {"namespace": "prod", "uid": "u", "resourceVersion": "1"}
    samples = {
        one["kind"]: msgspec.json.encode({**one, "metadata": {**one["metadata"], **head}})
        for one in read_samples("releases.md")
    }
    rollout = decode_rollout(samples["Rollout"])
    assert isinstance(rollout, ReleaseRollout)
    assert rollout.spec.has_bake
    policy = decode_image_policy(samples["ImagePolicy"])
    repository = decode_image_repository(samples["ImageRepository"])
    assert policy.head.name == rollout.spec.policy_name
    assert policy.repository.name == repository.head.name
    source = decode_oci_repository(samples["OCIRepository"])
    applied = decode_kustomization(samples["Kustomization"])
    assert source.rollouts == {"tag": rollout.head.name}
    assert applied.rollouts == {"app_version": rollout.head.name}
    assert source.problems + applied.problems == ()


def test_releases_are_explained_and_installed_by_what_is_there() -> None:
    """REL-119, REL-120, D-75: annotations, components for an overlay, reasons and remedies."""
    keys = {*INTENTS, names.WAIT_FOR_FLUX} - {names.DEPLOYMENT_MESSAGE}
    assert [
        one for one in keys if f"`{one.removeprefix('rollout.kuberik.com/')}`" not in RELEASES
    ] == []
    install = chapter_of("releases.md", "Install")
    (folder,) = re.findall(r"kubectl apply -k (\S+)", install)
    assert (ROOT / folder / "kustomization.yaml").exists()
    assert {*re.findall(r"^\| `(releases[a-z-]*)`", install, re.MULTILINE)} == _components()
    rows = rows_of(chapter_of("releases.md", "What holds a release"))
    assert {quoted(row[0])[0]: row[2] for row in rows} == REMEDIES


def _components() -> set[str]:
    return {one.name for one in (MANIFESTS / "components").glob("releases*")}


def test_what_the_definitions_add_to_kuberiks_is_all_that_they_add() -> None:
    """REL-04, REL-15, REL-16, REL-18: nothing of kuberik's is missing, and no more is required."""
    added = {
        (kind, field)
        for row in rows_of(chapter_of(MIGRATE, "What the definitions add"))
        for kind in row[0].split(", ")
        for field in quoted(row[1])
    }
    found = set()
    for kind, schema in SCHEMAS.items():
        crd = yaml.safe_load((MANIFESTS / f"crds/releases/{kind.lower()}s.yaml").read_text())
        ours = {part: one for part, one in _schema_of(crd).items() if part in ("spec", "status")}
        for part, one in ours.items():
            assert one.get("required", []) == schema["properties"][part].get("required", [])
        own, theirs = (
            {path for path, _ in list_fields({"properties": one})}
            for one in (ours, schema["properties"])
        )
        assert theirs <= own
        # What is new is named by its topmost field.
        new = own - theirs
        tops = [one for one in new if not any(one.startswith((f"{it}.", f"{it}[]")) for it in new)]
        found |= {(kind, one) for one in tops}
    assert added == found


def test_each_flag_of_kuberiks_controller_has_its_counterpart() -> None:
    """REL-115, REL-116, REL-117: and each that is named is one."""
    rows = [row for row in rows_of(chapter_of(MIGRATE, "What runs otherwise")) if "`--" in row[0]]
    theirs = {one for row in rows for one in re.findall(r"`--([a-z0-9-]+)`", row[0])}
    ours = {one for row in rows for one in re.findall(r"`(-[a-z][a-z.-]+)`", row[1])}
    assert {one for one in theirs if not one.startswith("zap-")} == KUBERIK_FLAGS
    known = re.findall(r"^\| `(-[^`]+)`", (DOCS / "flags.md").read_text(), re.MULTILINE)
    assert ours
    assert ours <= {*known}


def test_each_difference_from_kuberik_stands_in_one_row_with_its_scenarios() -> None:
    """REL-118: those of three cells are what the switch turns back, and nothing else."""
    rows = rows_of(chapter_of(MIGRATE, "What behaves otherwise"))
    shown = [re.findall(r"<!-- (.*) -->", row[0])[0].split() for row in rows if "<!--" in row[0]]
    scenarios = [one for each in shown for one in each]
    assert len(scenarios) == len({*scenarios})
    assert all(re.fullmatch(r"[a-m]\d\d", one) for one in scenarios)
    assert {len(row) for row in rows} == {3, 4}
    assert sum(len(row) == 3 for row in rows) == len(msgspec.structs.fields(KUBERIK))


def test_the_move_names_components_values_and_conditions_that_there_are() -> None:
    page, text = (
        rows_of(chapter_of(MIGRATE, "5. Install the operator")),
        (DOCS / MIGRATE).read_text(),
    )
    assert {*re.findall(r"manifests/components/([a-z-]+)", text)} == _components()
    assert {*re.findall(r"component `([a-z-]+)`", str(page))} == _components()
    values = yaml.safe_load((ROOT / "charts/rollout-operator/values.yaml").read_text())
    assert {re.findall(r"`releases\.(\w+)", row[0])[0] for row in page} <= {*values["releases"]}
    ours = {
        *(candidates.RECONCILING, candidates.STALLED, candidates.PATH_UNKNOWN),
        *(candidates.WANTED_FOUND, candidates.TARGET_CONFLICT),
    }
    back = rows_of(chapter_of(MIGRATE, "5. Start kuberik's controller"))
    (row,) = (row for row in back if "Stalled" in row[0])
    assert {*quoted(row[0])} == ours
    of_kuberik = {"Ready", "ReleasesUpdated", "GatesPassing", "DeploymentBlocked"}
    assert {*candidates._ORDER} - ours - of_kuberik == {candidates.RECOVERING}
