"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from assent.service import needs_service

with needs_service():
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import Response
    from starlette.exceptions import HTTPException

    from assent.service.context import Authenticate, Service

from assent.checkpointer.connect import checkpointer_from_url
from assent.checkpointer.sql import SqlCheckpointer
from assent.clock import Clock
from assent.errors import InvalidReview, ServiceError, StoreError
from assent.protocol import SigningKey
from assent.service import api, browser, wellknown
from assent.service.addresses import check_base_url
from assent.service.answer_headers import NoSniff
from assent.service.background import Background, OnCase
from assent.service.bodies import BodyLimit
from assent.service.budgets import Budgets
from assent.service.callback_secrets import SECRET_VARIABLE, callback_secret
from assent.service.callbacks import CallbackWorker
from assent.service.callers import Unauthorized
from assent.service.cases import Cases
from assent.service.described import describe
from assent.service.email_codes import EmailCodes
from assent.service.guarded import Guard
from assent.service.heads import HeadPusher, check_push_url
from assent.service.identity import Identify
from assent.service.keys import Keys
from assent.service.logging import RequestLog
from assent.service.mail import SMTP_VARIABLE, Mailer
from assent.service.metrics import Metrics, RequestCount
from assent.service.outbound import CallbackSender
from assent.service.pages import load_pages
from assent.service.person import Authorize
from assent.service.prefills import Prefills
from assent.service.problems import nowhere, of_error, of_error_to, problem, unauthorized
from assent.service.rate import CaseRate
from assent.service.spending import Spending
from assent.service.streaming import OpenStreams
from assent.service.terms import LINK_DAYS, LinkWay, Terms, seconds_of
from assent.service.verification import VerificationProvider, Verifier


def create_app(
    checkpointer_or_url: SqlCheckpointer | str,
    *,
    base_url: str,
    name: str = "Assent",
    secret: str | None = None,
    signing_key: SigningKey | None = None,
    verification: Mapping[str, VerificationProvider] | None = None,
    on_case: OnCase | None = None,
    authenticate: Authenticate | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    inline: bool = False,
    links: LinkWay = "caller",
    link_days: float = LINK_DAYS,
    least_timeout: str | float | None = None,
    allow_default_approve: bool = False,
    smtp_url: str | None = None,
    retention_days: int = 30,
    push_heads: str | None = None,
    development: bool = False,
    budgets: Budgets | None = None,
    clock: Clock | None = None,
) -> FastAPI:
    """The service, to run or to mount in an application of one's own (see `assent.service.embedding`).

    ``checkpointer_or_url`` is an open checkpointer, or the address of a database that is opened with the
    application. ``base_url`` is where people and agents reach it, with the path it is mounted at. ``secret``
    (or ``ASSENT_SECRET``) signs callbacks; without it none are accepted. ``signing_key`` signs results.
    ``verification`` are the providers that look at proofs, by name. ``on_case`` hears of every case that a request
    of an agent has become and that is still open (with ``links="service"``, of all cases): once, in one of the
    processes that have it, or again if that process dies while it tells, or if it raises, with growing pauses.
    ``smtp_url`` (or ``ASSENT_SMTP_URL``, ``smtp://user:password@host:587?from=address``) sends the codes of cases
    with ``verify_email``; without it there are none. ``development`` allows callbacks to this machine, and mail over
    connections that are not encrypted. ``budgets`` says how much a key, a link or an address may use.
    ``push_heads`` is an address to which the audit trail's head is pushed whenever it has moved, signed if there is a
    ``signing_key``.

    ``authenticate`` tells who calls, in place of API keys: from a request to an id of up to 255 characters, or None
    for nobody. ``identify`` tells who answers, on the page or by a messenger's button, from a login of the host's:
    from the request to their ``name`` and ``email``, or None if they are nobody it knows; if it raises, the answer
    is refused. ``authorize`` is asked before an answer counts, on every surface: from the `Person`, the `Case` and
    the action to True if they may; anything else refuses, and so does raising.

    ``inline`` hands a submit token to whoever opens a case, who may then carry answers from a messenger, and could
    answer alone. ``links`` says who brings the link to the person: the ``"caller"``, who gets it with the 202, or
    the ``"service"`` itself, in ``on_case``. A link is good for ``link_days``. ``least_timeout`` is how long a case
    is open at least, in seconds or as ``"5m"``; ``allow_default_approve`` lets a case count as approved when nobody
    has answered.
    """
    secret = secret or os.environ.get(SECRET_VARIABLE)
    if secret is not None:
        callback_secret(secret, "")  # says so now if it is too short
    check_base_url(base_url)
    if isinstance(checkpointer_or_url, str):
        checkpointer_from_url(checkpointer_or_url)  # says so now if it is no database's
    if push_heads is not None:
        check_push_url(push_heads)
    terms = Terms(inline, links, seconds_of(least_timeout), allow_default_approve, link_days)
    smtp_url = smtp_url or os.environ.get(SMTP_VARIABLE)
    mailer = None if smtp_url is None else Mailer(smtp_url, in_clear=development)
    metrics = Metrics()
    budgets = budgets or Budgets()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            checkpointer = checkpointer_or_url
            if isinstance(checkpointer, str):
                opened = checkpointer_from_url(checkpointer, clock=clock)
                checkpointer = await stack.enter_async_context(opened)
            cases = Cases(
                checkpointer,
                clock=clock,
                signing_key=signing_key,
                base_url=base_url,
                on_end=metrics.ended,
                budgets=budgets,
                terms=terms,
                authorize=authorize,
                secret=secret,
            )
            spending = Spending(cases.store, budgets, clock)
            streams = OpenStreams(cases.store, budgets, clock)
            rate = CaseRate(cases.store, clock)
            sender = await stack.enter_async_context(CallbackSender(development=development, clock=clock))
            guard = await stack.enter_async_context(Guard(development=development))
            await asyncio.to_thread(_read_files)
            app.state.service = Service(
                cases=cases,
                keys=Keys(checkpointer.engine, clock=clock),
                rate=rate,
                verifier=Verifier(verification or {}, cases.store.spend, clock, spending),
                prefills=Prefills(guard, spending),
                spending=spending,
                streams=streams,
                base_url=base_url.rstrip("/"),
                name=name,
                takes_callbacks=secret is not None,
                signing_key=signing_key,
                retention_days=retention_days,
                development=development,
                terms=terms,
                authenticate=authenticate,
                identify=identify,
                email_codes=None
                if mailer is None
                else EmailCodes(cases, mailer, urlsplit(base_url).netloc, spending),
            )
            stack.callback(delattr, app.state, "service")
            callbacks = CallbackWorker(cases, sender, secret, on_outcome=metrics.called_back)
            heads = None
            if push_heads is not None:
                heads = HeadPusher(checkpointer.engine, push_heads, signing_key, clock)
            background = Background(cases, callbacks, rate, metrics, spending, streams, on_case, heads)
            background.start()
            stack.push_async_callback(background.stop)
            yield

    app = FastAPI(
        title=name,
        version="0.8",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # with a key only: see `wellknown`
        # FastAPI's own spans hold whole addresses, and a review link's address holds its token.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.include_router(api.router)
    app.include_router(browser.router)
    app.include_router(wellknown.router)
    app.mount("/static", browser.static_files(), "static")
    cast(Any, app).openapi = lambda: describe(app)
    app.add_exception_handler(ServiceError, _refused)
    app.add_exception_handler(StoreError, _refused)
    app.add_exception_handler(Unauthorized, _unauthorized)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(cast(Any, BodyLimit))
    app.add_middleware(cast(Any, NoSniff))
    app.add_middleware(cast(Any, RequestCount), metrics=metrics)
    app.add_middleware(cast(Any, RequestLog))
    return app


_CODES = {
    400: "invalid_json",
    405: "method_not_allowed",
    413: "too_long",
    415: "unsupported_media_type",
}


def _read_files() -> None:
    """Read now what the first page, or the first static file, would read while others wait."""
    load_pages()
    mimetypes.init()


async def _refused(request: Request, error: Exception) -> Response:
    return of_error_to(request, cast("ServiceError | StoreError", error))


async def _unauthorized(request: Request, error: Exception) -> Response:
    return unauthorized()


async def _invalid(request: Request, error: Exception) -> Response:
    """What does not fit of an address or a header, by its name and in words, but without the values."""
    faults = {
        str(fault["loc"][-1]): str(fault["msg"]) for fault in cast(RequestValidationError, error).errors()
    }
    return of_error(InvalidReview(faults))


async def _http(request: Request, error: Exception) -> Response:
    refused = cast(HTTPException, error)
    if refused.status_code == 404:
        return nowhere(request)
    code = _CODES.get(refused.status_code, "refused")
    return problem(refused.status_code, code, str(refused.detail), dict(refused.headers or {}))
