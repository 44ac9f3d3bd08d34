"""HitlClient: sends requests, and waits for a person's decision where a service answers 202."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar, get_args

import httpx2

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.client import discovery, submit
from askfirst.client.callback import CallbackReceiver
from askfirst.client.connections import Caller, Connections, own_headers
from askfirst.client.durable import Keyed, Sending, Waits, request_digest
from askfirst.client.exchange import HttpAnswer, Outgoing, exchange, may_repeat, read_answer
from askfirst.client.live_case import Desk, see_through
from askfirst.client.notify import Deliveries
from askfirst.client.offer import ForeignPages, Offer, may_call, place_of, read_offer
from askfirst.client.outcome import ReviewOutcome, SignatureChecks, VerifyResults
from askfirst.client.polling import USUAL, Pace
from askfirst.clock import Clock, SystemClock
from askfirst.delivery.base import Deliver, Press, PressAnswer
from askfirst.errors import ReviewError
from askfirst.messages import JsonObject
from askfirst.protocol import Discovery, SubmittedBy, VerificationEvidence

_LAST_WORDS = 10.0
"""Seconds that a closing client has left to tell people how their reviews ended."""
_NOBODY = "Nobody waits for this here any more."

T = TypeVar("T")


class HitlClient:
    """Calls services, and waits for a person where one of them answers 202 and asks for one.

    ``http`` is an HTTP client to be used as it is, without one the client has its own. ``deliver`` brings links
    to the person: a delivery, a name such as ``"telegram"``, a plain function of the notice, async or not, or a
    list of these. ``auth`` is as in httpx2. Or a ``token`` is sent as ``Authorization: Bearer``, and ``headers``
    with it, to the services that are called, and to no host to which these lead, by redirects or by poll URLs.
    A ``callback`` receiver is named in every JSON request. With a ``store``, any open checkpointer, a request
    with a ``key`` is sent once and its wait outlives the process.

    Polls come every ``poll_interval`` seconds, 30 to 300; ``min_poll_interval`` allows shorter ones. The agent
    calls the service that answered and the ``allowed_hosts``, nobody else. A review page on yet another host is
    pointed out to the person, or with ``foreign_pages="refuse"`` its offer is refused. ``progress`` is whether
    the person hears that the page was opened and how far a form is.

    With ``verify_results=True`` a result counts only if its service has signed it, with one of the keys that it
    publishes; or with one of yours, if that is a JWKS document. Without it, only results that are signed as
    Askfirst signs them are checked. False checks none.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient | None = None,
        *,
        deliver: Deliver | Sequence[Deliver],
        auth: Any = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        callback: CallbackReceiver | None = None,
        store: CheckpointKeeper | None = None,
        poll_interval: float | None = None,
        min_poll_interval: float = USUAL,
        allowed_hosts: Collection[str] = (),
        foreign_pages: ForeignPages = "tell",
        verify_results: VerifyResults = None,
        progress: bool = True,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        if token is not None and auth is not None:
            raise ValueError("a client has a token or an auth, not both")
        if foreign_pages not in get_args(ForeignPages):
            raise ValueError(f"foreign_pages is one of {', '.join(get_args(ForeignPages))}")
        self._own = own_headers(token, headers)
        no_auth: Any = httpx2.USE_CLIENT_DEFAULT if token is None else None
        self._auth: Any = no_auth if auth is None else auth
        self._foreign_pages: ForeignPages = foreign_pages
        connections, hosts = Connections(http), frozenset(allowed_hosts)

        def may_call_for(url: str, service: str) -> bool:
            return may_call(url, service, hosts)

        self._desk = Desk(
            connections=connections,
            deliveries=Deliveries(deliver, clock),
            clock=clock,
            pace=Pace.chosen(poll_interval, min_poll_interval),
            allowed_hosts=hosts,
            progress=progress,
            callback=callback,
            signatures=SignatureChecks(verify_results, connections, may_call_for, clock),
        )
        self._keyed = None if store is None else Keyed(self._desk, Waits(store, clock=clock))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._desk.connections)
            await self._desk.deliveries.listen(self._pressed, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._desk.deliveries.finish(_LAST_WORDS)
        await self._stack.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        repeatable: bool | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> httpx2.Response | ReviewOutcome:
        """Send a request; returns its response, or the outcome of the review that the service asked for.

        ``options`` are those of httpx2 (``json``, ``headers``, ``params``, ...). With a ``key`` and a store, a
        request that was sent under that key before is not sent again: its wait goes on, wherever it began. If
        it is not known whether the request got through, it is repeated only if its method may be repeated, or
        if an ``idempotency_key`` is given, which is sent as ``Idempotency-Key``; else `RequestInDoubt` is
        raised. A 5xx is tried again, a few times and with growing pauses, under the same condition, or if
        ``headers`` has an ``Idempotency-Key``; else it is handed back. ``repeatable`` says otherwise, either way.
        Of an answer that asks nobody, ``max_bytes`` are read, or all; a longer one raises `ResponseTooLarge`.

        Raises httpx2's errors for the request itself, `InvalidOffer` for a 202 that cannot be used, and the
        other `ReviewError`s.
        """
        sending = self._sending(method, url, idempotency_key, repeatable, max_bytes, options)
        if key is not None:
            return await self.keyed.request(key, sending)
        response, offer = await sending.send()
        return response if offer is None else await self._outcome(offer, sending.caller)

    async def begin(
        self,
        method: str,
        url: str,
        *,
        key: str,
        thread_id: str | None = None,
        idempotency_key: str | None = None,
        repeatable: bool | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> httpx2.Response | ReviewOutcome | None:
        """As `request` with a key, but returns None as soon as a person is asked, without waiting for them.

        The wait is in the store then, and belongs to ``thread_id``; see `askfirst.client.http_tool`.
        """
        sending = self._sending(method, url, idempotency_key, repeatable, max_bytes, options)
        return await self.keyed.begin(key, sending, thread_id=thread_id)

    async def handle(self, response: T, *, key: str | None = None) -> T | ReviewOutcome:
        """As `request`, for a response of your own: returns the response, or the outcome of its review.

        It is one of httpx2, httpx, requests or aiohttp, or anything with ``status_code`` or ``status``,
        ``url``, and ``json()``, async or not. Polls are authenticated with the client's ``auth``; without one,
        with the ``Authorization`` and ``X-...`` headers of ``response.request``, where there is one. With a
        ``key`` and a store the wait outlives the process.
        """
        answer = await read_answer(response)
        offer = self._offer(answer)
        if offer is None:
            return response
        auth_given = self._auth is not httpx2.USE_CLIENT_DEFAULT
        caller = self._calling(answer.caller.with_auth(self._auth) if auth_given else answer.caller)
        if key is None:
            return await self._outcome(offer, caller)
        return await self.keyed.handled(key, offer, caller)

    async def resume_wait(self, key: str) -> ReviewOutcome | ReviewError | None:
        """Go on with one stored wait; returns its outcome or error, or None if no request was sent."""
        return (await self.keyed.go_on(key, self._calling(Caller(auth=self._auth))))[1]

    async def resume_waits(self) -> AsyncIterator[tuple[str, ReviewOutcome | ReviewError]]:
        """Go on with every stored wait that has a key; gives key and outcome, or error, as they end.

        They are authenticated with the client's ``auth``, or by its ``http``. Waits of agents' tools are not
        among them: they go on with their threads.
        """
        async for key, outcome in self.keyed.resume(self._calling(Caller(auth=self._auth))):
            yield key, outcome

    async def submit(
        self,
        case: str,
        action: str,
        *,
        submitted_via: str,
        submitted_by: SubmittedBy | Mapping[str, Any],
        data: JsonObject | None = None,
        evidence: Sequence[VerificationEvidence] | None = None,
    ) -> PressAnswer:
        """Answer a case, by its id, for a person who has just pressed a button; an agent must not answer for itself.

        The case is one that this client waits for just now. See `askfirst.client.submit`.
        """
        live = self._desk.live.get(case)
        if live is None:
            return PressAnswer("closed", _NOBODY)
        answer = await submit.submit(
            self._desk.connections.calls,
            live.state.offer.hitl,
            action,
            submitted_via=submitted_via,
            submitted_by=submitted_by,
            data=data,
            evidence=evidence,
        )
        if answer.kind in ("done", "closed"):
            live.hint()
        return answer

    async def discover(self, base_url: str) -> Discovery:
        """What a service says about itself at ``/.well-known/hitl.json``. Raises `DiscoveryFailed`."""
        return await discovery.discover(self._desk.connections.calls, base_url)

    @property
    def is_durable(self) -> bool:
        """Whether there is a store."""
        return self._keyed is not None

    @property
    def keyed(self) -> Keyed:
        """The stored waits. Raises ``ValueError`` for a client without a store."""
        if self._keyed is None:
            raise ValueError("a key needs a store: HitlClient(store=...)")
        return self._keyed

    def _sending(
        self,
        method: str,
        url: str,
        idempotency_key: str | None,
        repeatable: bool | None,
        max_bytes: int | None,
        options: dict[str, Any],
    ) -> Sending:
        headers = httpx2.Headers(options.pop("headers", None))
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        auth = options.pop("auth", self._auth)
        caller = self._calling(Caller.of(headers))
        if auth is None:
            caller = replace(caller, auth=None)
        elif auth is not httpx2.USE_CLIENT_DEFAULT:
            caller = caller.with_auth(auth)
        by_method = idempotency_key is not None or may_repeat(method)
        may_be_resent = by_method or "Idempotency-Key" in headers

        async def send() -> tuple[httpx2.Response, Offer | None]:
            body, callback = options.get("json"), self._desk.callback
            with_callback = {} if body is None or callback is None else {"json": callback.added_to(body, url)}
            outgoing = Outgoing(
                method,
                url,
                headers,
                self._own,
                auth,
                {**options, **with_callback},
                is_repeatable=may_be_resent if repeatable is None else repeatable,
                max_bytes=max_bytes,
            )
            response = await exchange(self._desk.connections.calls, outgoing, self._desk.clock)
            return response, self._offer(await read_answer(response), asked=url)

        known = by_method if repeatable is None else repeatable
        return Sending(send, caller, partial(request_digest, method, url, options), known)

    def _calling(self, caller: Caller) -> Caller:
        return replace(caller, own=self._own)

    def _offer(self, answer: HttpAnswer, asked: str | None = None) -> Offer | None:
        offer = read_offer(
            answer.status,
            answer.url,
            answer.body,
            allowed_hosts=self._desk.allowed_hosts,
            foreign_pages=self._foreign_pages,
            now=self._desk.clock.now(),
        )
        first = asked or answer.asked
        if offer is None or first is None or place_of(first) == offer.service:
            return offer
        return replace(offer, is_redirected=True)

    async def _outcome(self, offer: Offer, caller: Caller) -> ReviewOutcome:
        _, outcome = await see_through(self._desk, self._desk.rounds.begin(offer), caller)
        return outcome

    async def _pressed(self, press: Press) -> PressAnswer:
        by = {"platform": press.platform, "platform_user_id": press.platform_user_id}
        if press.display_name is not None:
            by["display_name"] = press.display_name
        return await self.submit(
            press.case_id, press.action, submitted_via=press.submitted_via, submitted_by=by
        )
