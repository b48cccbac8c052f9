"""What is read for checks, look-ups and caches: tables beside this file."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace
from rollout_lab.model.history import Called

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import JsonObject, Page, Resource, Served
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.model import names
from rollout_operator.model.names import ApiError, InvalidInput, NotFound
from rollout_operator.model.objects import LabelSelector, SelectorTerm, WatchedObject
from rollout_operator.operator.releases import build_caches
from rollout_operator.releases.controller import gather_flux, index_flux
from rollout_operator.releases.health_checks import CheckReader, CheckRequest
from rollout_operator.releases.model.plan import (
    CheckClass,
    FluxObject,
    FluxReference,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    CheckSelector,
    RefusedRelease,
    ReleaseRollout,
    parse_repository,
)
from rollout_operator.releases.registry import RegistryAccess
from rollout_operator.releases.sources import (
    ReleaseCaches,
    list_concerned,
    list_tags,
    read_access,
    tag_labels,
)
from tests.controllers.fed_context import FedContext
from tests.planning.releases.builders import ALL_CHECKS, at, check, gate, head, rollout
from tests.simulated import ACTOR, open_api, open_client
from tests.stories import check_tables, read_words
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.world.pki import Pki, make_pki

READY: Final = {"type": "Ready", "status": "True", "reason": "Ok", "message": "applied"}
BROKEN: Final = {"status": "False", "reason": "BuildFailed", "message": "no such file"}
LONG_AGO: Final = {"lastTransitionTime": "2020-01-01T00:00:00Z"}
IMAGE: Final = parse_repository("registry.example/team/app")
HIDDEN: Final = "s3cret"


class OneKustomization:
    """Stands in for the API server: a Kustomization of one Deployment, and perhaps an error."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._underway = 0
        self.most = 0
        """So many objects were read at a time."""
        self.reads: list[str] = []

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        self.reads.append(f"{resource.kind} {namespace}/{name}")
        self._underway += 1
        self.most = max(self.most, self._underway)
        await asyncio.sleep(1)
        self._underway -= 1
        is_own = resource.kind == "Kustomization"
        self._fail("own" if is_own else "objects")
        version = "kustomize.toolkit.fluxcd.io/v1" if is_own else "v1"
        status = self._describe() if is_own else {}
        body = {"apiVersion": version, "kind": resource.kind, "status": status}
        return json.dumps(body).encode()

    def _fail(self, what: str) -> None:
        if kind := self._given.get(what):
            error: ApiError = getattr(names, kind)("no answer")
            raise error

    def _describe(self) -> dict[str, object]:
        deployments = [f"prod_{one}_apps_Deployment" for one in self._list("names", "web")]
        ids = [*deployments, *self._list("more"), "prod_s__Secret"]
        entries = self._given.get("entries", json.dumps([{"id": one} for one in ids]))
        ready = {**READY, **BROKEN, **LONG_AGO} if "failing" in self._given else READY
        return {"conditions": [ready], "inventory": {"entries": json.loads(entries)}}

    def _list(self, key: str, usual: str = "") -> Sequence[str]:
        return [*filter(None, self._given.get(key, usual).split(","))]

    async def fetch_page(self, *args: Any, **how: Any) -> Page:
        self._fail("own")
        raise AssertionError("nothing is listed for a Kustomization")

    async def fetch_group(self, group: str) -> tuple[str, ...]:
        if group == "foo.example":
            raise NotFound("no such group")
        return ("v1",)

    async def fetch_resources(self, group: str, version: str) -> tuple[Served, ...]:
        kind = {"apps": "Deployment", "": "Namespace"}.get(group, "Role")
        resource = Resource(group, version, f"{kind.lower()}s", kind)
        return (Served(resource=resource, subresources=frozenset()),)


def request_check(unread: str = "0") -> CheckRequest:
    place = FluxReference(kind="Kustomization", namespace="prod", name="app")
    return CheckRequest(check=check(), place=place, now=at(0), unread=int(unread))


async def show_check(case: str) -> str:
    given = read_words(case.split())
    api = OneKustomization(given)
    found: dict[str, None] = {}
    compat = KUBERIK if "kuberik" in given else OURS
    reader = CheckReader(api, KindCatalog(api, VirtualClock()), compat=compat)
    of = CheckClass(given.get("class", "kustomization"))
    for unread in given.get("unread", "0").split(","):
        try:
            one = await reader.evaluate(of, request_check(unread))
        except ApiError as error:
            found[type(error).__name__] = None
        else:
            mark = ", unread" * one.has_unread
            found[f"{one.finding.status}{mark}: {one.finding.text}"] = None
    if "reads" in given:
        found.update(dict.fromkeys(api.reads))
    return "\n".join(found)


test_what_a_check_is = in_virtual_time(check_tables(__file__, "tables", checks=show_check))


@in_virtual_time
async def test_large_inventories_are_read_a_few_objects_at_a_time() -> None:
    """REL-30: of all checks together, so that nothing else waits long for its turn."""
    api = OneKustomization({"names": ",".join(f"web-{number}" for number in range(40))})
    reader = CheckReader(api, KindCatalog(api, VirtualClock()))
    await gather_all(reader.evaluate(CheckClass.KUSTOMIZATION, request_check()) for _ in range(5))
    assert len(api.reads) == 5 * 41
    assert api.most == 8


async def show_access(case: str, tmp_path: Path) -> str:
    fields, has_secret, data = case.partition(" ;")
    spec: dict[str, Any] = read_words(fields.split())
    if "insecure" in spec:
        spec["is_insecure"] = spec.pop("insecure") == ""
    pki = make_pki(tmp_path)
    api = open_api("prod")
    if has_secret:
        values = {key: _fill(pki, text) for key, text in read_words(data.split()).items()}
        api.put(_make_secret(values), actor="person")
    client = open_client(api)
    try:
        access = await read_access(client, ImageRepository(head=head("app"), image=IMAGE, **spec))
    except InvalidInput as error:
        found, secret = [f"{error}"], f"{error} {error.__cause__}"
    else:
        found, secret = [*_show_access(access), *await _show_tls(pki, access)], ""
    assert HIDDEN not in secret
    reads = [
        f"{one.request.verb} secrets/{one.request.name}"
        for one in api.history.list_all(Called)
        if one.actor == ACTOR
    ]
    return "; ".join([*found, *reads])


test_how_a_registry_is_called = check_tables(__file__, "tables", access=show_access)


def _make_secret(data: dict[str, str]) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "prod"},
        "data": data,
    }


def _fill(pki: Pki, text: str) -> str:
    """Return what a Secret has in place of a word; `!` stands for what is no base64."""
    if text.startswith("!"):
        return text[1:]
    if text == "AUTHS":
        auth = base64.b64encode(f"amy:{HIDDEN}".encode()).decode()
        text = json.dumps({"auths": {"https://registry.example/v2/": {"auth": auth}}})
    elif text == "LOCKED":
        key = serialization.load_pem_private_key(pki.key.read_bytes(), None)
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(HIDDEN.encode()),
        ).decode()
    elif text in ("CA", "CERT", "KEY"):
        text = getattr(pki, text.lower()).read_text()
    return base64.b64encode(text.encode()).decode()


def _show_access(access: RegistryAccess) -> list[str]:
    key = access.keyring.choose(IMAGE)
    found = [f"{key.username} {key.password}" if key else "no credentials"]
    found += ["insecure"] * access.is_insecure
    found += [f"proxy {access.route.proxy}"] * bool(access.route.proxy)
    return found


async def _show_tls(pki: Pki, access: RegistryAccess) -> list[str]:
    """Return what is trusted, and what a server that wants a certificate is shown."""
    trust = access.route.trust
    if trust is None:
        return []
    assert (trust.verify_mode, len(access.proof)) == (ssl.CERT_REQUIRED, 64)
    usual = ssl.create_default_context().cert_store_stats()["x509_ca"]
    wanting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.ca)
    wanting.load_cert_chain(pki.cert, pki.key)
    wanting.verify_mode = ssl.CERT_OPTIONAL
    shown: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert")
        shown.append(f"shows {certificate['subject'][0][0][1]}" if certificate else "shows none")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=wanting)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        assert await reader.read() == b""
        writer.close()
    return [f"{trust.cert_store_stats()['x509_ca'] - usual} CA more", *shown]


def named(name: str, **spec: Any) -> ReleaseRollout:
    found = rollout()
    return replace(found, head=head(name), spec=replace(found.spec, **spec))


def oci(of: str = "", name: str = "app") -> FluxObject:
    tagged = {"tag": of} if of else {}
    return FluxObject(kind="OCIRepository", head=head(name), api_version="v1", rollouts=tagged)


def policy() -> ImagePolicy:
    place = FluxReference(kind="ImageRepository", namespace="prod", name="images")
    return ImagePolicy(head=head("app"), repository=place)


def kustomization(source: str, **rollouts: str) -> FluxObject:
    """Return a Kustomization with the name of its source."""
    place = FluxReference(kind="OCIRepository", namespace="prod", name=source)
    return FluxObject(
        kind="Kustomization", head=head(source), api_version="v1", source=place, rollouts=rollouts
    )


def known() -> ReleaseCaches:
    """Return the namespace of the table."""
    client = open_client(open_api())
    caches = build_caches(FedContext(client, VirtualClock()), client)
    refused = RefusedRelease(head=head("r"), problem="no")
    rollouts: list[ReleaseRollout | RefusedRelease] = [
        refused,
        replace(refused, head=head("s"), announced=named("s", policy_name="app")),
        named("a", policy_name="app"),
        named("b", policy_name="app", policy_namespace="flux", checks=ALL_CHECKS),
        named("c", policy_name="app", policy_namespace="prod", checks=ALL_CHECKS),
    ]
    caches.rollouts.store.replace_all([watched(one) for one in rollouts])
    caches.policies.store.replace_all([watched(policy())])
    caches.oci_repositories.store.replace_all([watched(oci("b"))])
    return caches


def watched(one: ReleaseRollout | RefusedRelease | ImagePolicy | FluxObject) -> WatchedObject:
    place = {"name": one.head.name, "namespace": one.head.namespace}
    return WatchedObject(**place, uid=one.head.uid, resource_version="1", decoded=one)


async def show_concerned(case: str) -> str:
    what, *words = case.split()
    views: dict[str, Any] = {
        "rollout": named,
        "gate": lambda name: gate(rollout=name),
        "policy": policy,
        "check": lambda: check("h"),
        "oci": oci,
        "images": lambda name: ImageRepository(head=head(name), image=IMAGE),
        "ks": lambda source, of: kustomization(source, x=of),
    }
    if what in views:
        return " ".join(sorted(list_concerned(views[what](*words), known()))) or "none"
    if what == "order":
        applying, other = kustomization("b"), kustomization("other")
        flux = [applying, other, oci("web", "b"), oci("web"), oci("api", "other")]
        found = gather_flux("web", index_flux(flux))
        return " ".join(f"{one.kind}/{one.head.name}" for one in found)
    middle = words.index("of")
    wanted, labels = words[:middle], read_words(words[middle + 1 :])
    selector = None if what == "none" else LabelSelector(
        labels=read_words(word for word in wanted if "?" not in word),
        terms=tuple(SelectorTerm(key="app", operator="Exists") for word in wanted if "?" in word),
    )  # fmt: skip
    tags = {*list_tags(rollout(checks=CheckSelector(selector=selector)))} & {*tag_labels(labels)}
    assert tags or selector is None or not selector.takes(labels)
    return "found" if tags else "not found"


test_whom_a_change_concerns = in_virtual_time(
    check_tables(__file__, "tables", concerned=show_concerned)
)
