"""Send one request to a registry: with credentials where it requires them, over safe redirects.

Decides where a credential goes: to the registry that the image names and never on to another host,
scheme or port. A redirect from TLS to none is refused. What is sent to whom for a token is decided
in `tokens`; what an answer means in `client`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal
from weakref import WeakValueDictionary

import msgspec
from yarl import URL

from rollout_operator.aio.clock import Clock
from rollout_operator.model.releases.reference import Repository
from rollout_operator.oci.errors import BadAnswer, NoAnswer
from rollout_operator.oci.keyring import RegistryCredential
from rollout_operator.oci.sender import RegistryAnswer, RegistryRequest, RegistrySender, Route
from rollout_operator.oci.tokens import Holder, NotAccepted, Tokens, parse_challenges
from rollout_operator.telemetry.logs import log

# From a registry to its store, and there perhaps to another region.
MOST_REDIRECTS: Final = 5
# Bodies are up to some megabytes each, and a container has 200.
AT_MOST: Final = 4
# A registry that hangs must leave turns for the others.
AT_MOST_PER_HOST: Final = 2
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

ChooseProxy = Callable[[str], str | None]
"""Returns the URL of the proxy for a URL, None for a direct connection."""


class LookUp(msgspec.Struct, kw_only=True):
    """One look-up in a registry: what all of its requests share."""

    repository: Repository
    credential: RegistryCredential | None
    is_insecure: bool = False
    """Whether a registry without TLS is read all the same."""
    route: Route = msgspec.field(default_factory=Route)
    scheme: Literal["https", "http"] = "https"
    """Becomes http where that is allowed and the registry does not speak TLS."""

    @property
    def origin(self) -> str:
        """Return scheme and host of the registry."""
        return f"{self.scheme}://{self.repository.host}"

    @property
    def holder(self) -> Holder:
        """Return the holder of the tokens of this look-up."""
        return Holder(
            origin=self.origin,
            name=self.repository.name,
            credential=self.credential,
            route=self.route,
        )


class RegistryQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is requested from a repository."""

    path: str
    """Below `/v2/NAME/`, with its query."""
    method: Literal["GET", "HEAD"] = "GET"
    accept: str = ""
    longest: int = 0


class RegistryExchange:
    """Requests to all registries, some at a time."""

    def __init__(
        self,
        sender: RegistrySender,
        clock: Clock,
        choose_proxy: ChooseProxy = lambda url: None,
    ) -> None:
        self._sender = sender
        self._choose_proxy = choose_proxy
        self._tokens = Tokens(self._send, clock)
        self._turns = asyncio.Semaphore(AT_MOST)
        self._host_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fetch(self, look_up: LookUp, question: RegistryQuestion) -> RegistryAnswer:
        """Return the answer, whatever its status.

        Raises NoAnswer, BadAnswer, and NotAccepted for a 401 that no credential turns into
        something else. Sends two requests at most.
        """
        answer, is_its_own = await self._follow(look_up, question)
        if answer.status != 401:
            return answer
        # Another host gets no credential, whatever it requires.
        if not is_its_own:
            raise NotAccepted
        self._tokens.forget(look_up.holder)
        challenges = parse_challenges(answer.headers.getall("WWW-Authenticate", ()))
        await self._tokens.obtain(look_up.holder, challenges)
        answer, _ = await self._follow(look_up, question)
        if answer.status == 401:
            self._tokens.forget(look_up.holder)
            raise NotAccepted
        return answer

    async def _follow(
        self, look_up: LookUp, question: RegistryQuestion
    ) -> tuple[RegistryAnswer, bool]:
        """Return the answer at the end of all redirects, and whether the registry gave it."""
        answer, url = await self._begin(look_up, question)
        origin = url.origin()
        for _ in range(MOST_REDIRECTS):
            if answer.status not in _REDIRECTS:
                return answer, url.origin() == origin
            url = _read_location(url, answer.headers.get("Location", ""))
            answer = await self._fetch_from(
                url, look_up, question, is_its_own=url.origin() == origin
            )
        if answer.status in _REDIRECTS:
            raise BadAnswer(f"more than {MOST_REDIRECTS} redirects")
        return answer, url.origin() == origin

    async def _begin(
        self, look_up: LookUp, question: RegistryQuestion
    ) -> tuple[RegistryAnswer, URL]:
        """Send to the registry itself, without TLS only where it may and speaks none."""
        below = f"/v2/{look_up.repository.name}/{question.path}"
        url = URL(f"{look_up.origin}{below}", encoded=True)
        try:
            return await self._fetch_from(url, look_up, question, is_its_own=True), url
        except NoAnswer as error:
            is_over = look_up.scheme == "http" or not look_up.is_insecure
            if is_over or not error.is_without_tls:
                raise
        look_up.scheme = "http"
        url = url.with_scheme("http")
        return await self._fetch_from(url, look_up, question, is_its_own=True), url

    async def _fetch_from(
        self, url: URL, look_up: LookUp, question: RegistryQuestion, *, is_its_own: bool
    ) -> RegistryAnswer:
        headers = {"Accept": question.accept} if question.accept else {}
        if is_its_own and (shown := self._tokens.find(look_up.holder)):
            headers["Authorization"] = shown
        request = RegistryRequest(
            url=url,
            method=question.method,
            headers=headers,
            route=look_up.route,
            longest=question.longest,
        )
        return await self._send(request)

    async def _send(self, request: RegistryRequest) -> RegistryAnswer:
        """Send one request in its turn, through the proxy of its URL."""
        host = request.url.authority
        if request.route.proxy is None and (proxy := self._choose_proxy(f"{request.url}")):
            request = replace(request, route=replace(request.route, proxy=proxy))
        turns = self._host_turns.setdefault(host, asyncio.Semaphore(AT_MOST_PER_HOST))
        async with turns, self._turns:
            # The path may hold what only its finder may fetch, and the query a signature.
            log.debug("Calling registry", host=host, method=request.method)
            return await self._sender.send(request)


def _read_location(url: URL, text: str) -> URL:
    """Return where a redirect leads. Raises BadAnswer where no request may go there."""
    try:
        target = url.join(URL(text, encoded=True)) if text else None
        is_url = target is not None and bool(target.host) and not target.user
    except ValueError:
        target, is_url = None, False
    if target is None or not is_url or target.scheme not in {"https", "http"}:
        raise BadAnswer("a redirect to no URL of a server")
    if url.scheme == "https" and target.scheme == "http":
        raise BadAnswer("a redirect from TLS to a server without it")
    return target
