"""`create_app`: the service as an ASGI application."""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock
from askfirst.delivery.base import Deliver, RequestsDelivery
from askfirst.errors import InvalidReview, ServiceError, StoreError
from askfirst.limits import LINK_DAYS
from askfirst.protocol import SigningKey
from askfirst.service import needs_service
from askfirst.smtp import SMTP_VARIABLE

with needs_service():
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import Response
    from starlette.exceptions import HTTPException
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from askfirst.service import api, live_routes, long_texts, review_routes, well_known
    from askfirst.service.assets import static_app
    from askfirst.service.audit import HeadPusher, check_push_url
    from askfirst.service.background import Background, OnCase
    from askfirst.service.budgets import Budgets, OpenStreams, Spending
    from askfirst.service.callbacks import SECRET_VARIABLE, CallbackSender, CallbackWorker, callback_secret
    from askfirst.service.cases import Cases
    from askfirst.service.context import (
        Authenticate,
        Quotas,
        Service,
        Settings,
        Unauthorized,
        checked_hold,
        checked_reasons,
    )
    from askfirst.service.deliveries import DeliverySettings, Sender
    from askfirst.service.egress import Guard, Prefills, check_base_url
    from askfirst.service.email_codes import EmailCodes, Mailer
    from askfirst.service.keys import Keys
    from askfirst.service.links import LinkWay, Terms, seconds_of
    from askfirst.service.observability import Metrics, RequestCount, RequestLog
    from askfirst.service.openapi import describe
    from askfirst.service.pages import load_pages
    from askfirst.service.pages.language import DEFAULT, checked_language
    from askfirst.service.person import Authorize, Identify
    from askfirst.service.places import Place, Places, given_places
    from askfirst.service.problems import (
        error_response,
        error_response_to,
        not_found_response,
        problem,
        unauthorized_response,
    )
    from askfirst.service.rate import CaseRate
    from askfirst.service.request_bodies import BodyLimit
    from askfirst.service.risk_patterns import RiskPatterns, patterns_from
    from askfirst.service.schedule import Schedule
    from askfirst.service.thread_events import MayFollow
    from askfirst.service.verification import VerificationProvider, Verifier


_HEADER, _HEADER_VALUE = b"x-content-type-options", b"nosniff"


class NoSniff:
    """ASGI middleware that adds ``X-Content-Type-Options: nosniff`` to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name.lower() == _HEADER for name, _ in headers):
                    message = {**message, "headers": [*headers, (_HEADER, _HEADER_VALUE)]}
            await send(message)

        await self._app(scope, receive, send_with_header)


def create_app(
    checkpointer_or_url: SqlCheckpointer | str,
    *,
    base_url: str,
    name: str = "Askfirst",
    secret: str | None = None,
    signing_key: SigningKey | None = None,
    verification: Mapping[str, VerificationProvider] | None = None,
    on_case: OnCase | None = None,
    deliver: Place | Deliver | Sequence[Place | Deliver] | None = None,
    schedule: Schedule | None = None,
    authenticate: Authenticate | None = None,
    may_follow: MayFollow | None = None,
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
    hold_seconds: float = 5.0,
    risk_patterns: RiskPatterns | str | os.PathLike[str] | None = None,
    quick_reasons: Sequence[str] = (),
    language: str = DEFAULT,
    clock: Clock | None = None,
) -> FastAPI:
    """The service, to run alone or to mount in your own application (see `askfirst.service.embedding`).

    - ``checkpointer_or_url``: an open checkpointer, or the URL of a database that is opened with the application.
    - ``base_url``: the address at which people and agents reach the service, with the path that it is mounted at.
    - ``secret`` (or ``ASKFIRST_SECRET``): signs callbacks; without it the service accepts no callback URLs.
    - ``signing_key``: signs results.
    - ``verification``: the providers that verify proofs, by name.
    - ``on_case``: called for every case that an agent's request has become, while it is open; with
      ``links="service"``, for all cases. One of the processes calls it, once. It is called again if that process dies
      meanwhile, and, with back-off, if it raises.
    - ``deliver``: how the service itself delivers these cases to people: a `Place`, a delivery, its name, or a list.
    - ``schedule``: who gets messages, when they are reminded, and who is next (see `Schedule`).
    - ``smtp_url`` (or ``ASKFIRST_SMTP_URL``; ``smtp://user:password@host:587?from=address``): the server that sends
      the codes of cases with ``verify_email``; without it no codes can be sent.
    - ``development``: allows callbacks to this machine, and mail over connections that are not encrypted.
    - ``budgets``: how much an API key, a link or a network address may use.
    - ``push_heads``: a URL to which the head of the audit trail is pushed whenever it has moved, signed if there is a
      ``signing_key``.

    Functions of the host:

    - ``authenticate``: replaces API keys. It takes a request, and returns the caller's id of up to 255 characters, or
      None for an unknown caller.
    - ``may_follow``: takes a caller's id and a thread's id, and returns whether the caller may follow the thread;
      without it nobody may.
    - ``identify``: takes a request, and returns the ``name`` and ``email`` of the person who is signed in, or None.
      If it raises, the answer is refused.
    - ``authorize``: takes the `Person`, the `Case` and the action, and returns whether the person may answer so, on
      every surface. Only True allows; another value, or an exception, refuses.

    What callers may do:

    - ``inline``: the caller who opens a case gets a submit token. With it the caller submits answers from a
      messenger, and could also answer without a person.
    - ``links``: who delivers the link to the person: the ``"caller"``, who gets it with the 202, or the ``"service"``
      itself, in ``on_case`` or with ``deliver``. A link is valid for ``link_days``.
    - ``least_timeout``: the shortest time-out of a case, in seconds or as ``"5m"``.
    - ``allow_default_approve``: a caller may have a case count as approved when nobody has answered in time.

    The page:

    - ``hold_seconds``: a decision made on the page counts after this time, and can be undone until then; 0 for no
      hold.
    - ``risk_patterns``: patterns for lines to look at twice, or a file of them; by default those that Askfirst ships.
    - ``quick_reasons``: up to 6 reasons to reject that the page offers for one tap; by default four of its own.
    - ``language``: the language of pages for readers who prefer none that the pages have, such as ``"zh-Hans"``, and
      of the tools' own texts in messages, if those are given in several languages.
    """
    secret = secret or os.environ.get(SECRET_VARIABLE)
    _check_arguments(checkpointer_or_url, secret, base_url, push_heads)
    places = Places([] if deliver is None else given_places(deliver))
    least = seconds_of(least_timeout)
    terms = Terms(inline, links, least, allow_default_approve, link_days, bool(places.names))
    smtp_url = smtp_url or os.environ.get(SMTP_VARIABLE)
    mailer = None if smtp_url is None else Mailer(smtp_url, in_clear=development)
    metrics, budgets = Metrics(), budgets or Budgets()
    reasons, spoken = checked_reasons(quick_reasons), checked_language(language)
    of_pages = checked_hold(hold_seconds), patterns_from(risk_patterns), reasons, spoken
    settings = Settings(
        base_url.rstrip("/"), name, signing_key, retention_days, secret is not None, development, *of_pages
    )
    deliveries = DeliverySettings(places, schedule or Schedule(), Sender.of(settings))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            checkpointer = checkpointer_or_url
            if isinstance(checkpointer, str):
                opening = checkpointer_from_url(checkpointer, clock=clock)
                checkpointer = await stack.enter_async_context(opening)
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
            spending = Spending(cases.engine, budgets, clock)
            streams = OpenStreams(cases.engine, budgets, clock)
            quotas = Quotas(CaseRate(cases.engine, clock), spending, streams)
            callbacks = None
            if secret is not None:
                calls = await stack.enter_async_context(CallbackSender(development=development, clock=clock))
                callbacks = CallbackWorker(cases, calls, secret, on_outcome=metrics.called_back)
            guard = await stack.enter_async_context(Guard(development=development))
            await asyncio.to_thread(_read_files)
            app.state.service = Service(
                settings=settings,
                cases=cases,
                keys=Keys(checkpointer.engine, clock=clock),
                quotas=quotas,
                verifier=Verifier(verification or {}, cases.engine, clock, spending),
                prefills=Prefills(guard, spending),
                authenticate=authenticate,
                may_follow=may_follow,
                identify=identify,
                email_codes=None
                if mailer is None
                else EmailCodes(cases, mailer, urlsplit(base_url).netloc, spending, language),
            )
            stack.callback(delattr, app.state, "service")
            heads = None
            if push_heads is not None:
                heads = HeadPusher(checkpointer.engine, push_heads, signing_key, clock)
            worker_and_listeners = deliveries.opened(cases, checkpointer, clock, metrics.message_attempted)
            background = Background(cases, quotas, metrics, callbacks, on_case, heads, *worker_and_listeners)
            background.start()
            stack.push_async_callback(background.stop)
            yield

    app = FastAPI(
        title=name,
        version="0.8",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # served to callers with an API key only: see `well_known`
        # FastAPI's own spans contain whole URLs, and the URL of a review link contains its token.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    _add_routes_and_middleware(app, metrics, places)
    return app


def _check_arguments(
    checkpointer_or_url: SqlCheckpointer | str, secret: str | None, base_url: str, push_heads: str | None
) -> None:
    """Raise for invalid arguments now, not only when the application starts."""
    if secret is not None:
        callback_secret(secret, "")  # raises if the secret is too short
    check_base_url(base_url)
    if isinstance(checkpointer_or_url, str):
        checkpointer_from_url(checkpointer_or_url)  # raises if it is not the URL of a database
    if push_heads is not None:
        check_push_url(push_heads)


def _add_messenger_routes(app: FastAPI, places: Places) -> None:
    """Add the routes ``/messengers/NAME``, which take signed requests of messengers."""
    for place in places:
        delivery = place.delivery
        if isinstance(delivery, RequestsDelivery) and delivery.takes_requests:
            app.router.routes.append(
                Route(f"/messengers/{place.name}", delivery.request_app(), include_in_schema=False)
            )


def _add_routes_and_middleware(app: FastAPI, metrics: Metrics, places: Places) -> None:
    """Add the routes, the error responses and the middleware."""
    _add_messenger_routes(app, places)
    app.include_router(api.router)
    app.include_router(review_routes.router)
    app.include_router(live_routes.router)
    app.include_router(long_texts.router)
    app.include_router(well_known.router)
    app.mount("/static", static_app, "static")
    cast(Any, app).openapi = lambda: describe(app)
    app.add_exception_handler(ServiceError, _on_service_error)
    app.add_exception_handler(StoreError, _on_service_error)
    app.add_exception_handler(Unauthorized, _on_unauthorized)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(cast(Any, BodyLimit))
    app.add_middleware(cast(Any, NoSniff))
    app.add_middleware(cast(Any, RequestCount), metrics=metrics)
    app.add_middleware(cast(Any, RequestLog))


_CODES = {
    400: "invalid_json",
    405: "method_not_allowed",
    413: "too_long",
    415: "unsupported_media_type",
}


def _read_files() -> None:
    """Read templates and media types now, so that the first page does not block the event loop."""
    load_pages()
    mimetypes.init()


async def _on_service_error(request: Request, error: Exception) -> Response:
    return error_response_to(request, cast("ServiceError | StoreError", error))


async def _on_unauthorized(request: Request, error: Exception) -> Response:
    return unauthorized_response()


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    """The response for faults of a path or a header: by name, without the values."""
    faults = {
        str(fault["loc"][-1]): str(fault["msg"]) for fault in cast(RequestValidationError, error).errors()
    }
    return error_response(InvalidReview(faults))


async def _on_http_error(request: Request, error: Exception) -> Response:
    refused = cast(HTTPException, error)
    if refused.status_code == 404:
        return not_found_response(request)
    code = _CODES.get(refused.status_code, "refused")
    return problem(refused.status_code, code, str(refused.detail), dict(refused.headers or {}))
