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
from assent.errors import ServiceError, StoreError
from assent.protocol import SigningKey
from assent.service import api, browser, wellknown
from assent.service.addresses import check_base_url
from assent.service.background import Background, OnCase
from assent.service.callback_secrets import SECRET_VARIABLE, callback_secret
from assent.service.callbacks import CallbackWorker
from assent.service.callers import Unauthorized
from assent.service.cases import Cases
from assent.service.email_codes import EmailCodes
from assent.service.guarded import Guard
from assent.service.identity import Identify
from assent.service.keys import Keys
from assent.service.limits import BodyLimit
from assent.service.logging import RequestLog
from assent.service.mail import SMTP_VARIABLE, Mailer
from assent.service.metrics import Metrics, RequestCount
from assent.service.outbound import CallbackSender
from assent.service.pages import load_pages
from assent.service.prefills import Prefills
from assent.service.problems import nowhere, of_error_to, problem, unauthorized
from assent.service.rate import CaseRate
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
    smtp_url: str | None = None,
    retention_days: int = 30,
    development: bool = False,
    clock: Clock | None = None,
) -> FastAPI:
    """The service, to run or to mount in an application of one's own (see `assent.service.embedding`).

    ``checkpointer_or_url`` is an open checkpointer, or the address of a database that is opened with the
    application. ``base_url`` is where people and agents reach it, with the path it is mounted at. ``secret``
    (or ``ASSENT_SECRET``) signs callbacks; without it none are accepted. ``signing_key`` signs results.
    ``verification`` are the providers that look at proofs, by name. ``on_case`` hears of
    every case that a request of an agent has become and that is still open: once, in one of the processes that
    have it, or once more if that process dies while it tells. ``authenticate`` tells who calls, in place of
    API keys: from a request to an id of up to 255 characters, or None for nobody. ``identify`` tells who
    answers on the page, from a login of the host's: from the browser's request to their ``name`` and ``email``,
    or None if they are nobody it knows; if it raises, the answer is refused. ``smtp_url`` (or
    ``ASSENT_SMTP_URL``, ``smtp://user:password@host:587?from=address``) sends the codes of cases with
    ``verify_email``; without it there are none. ``development`` allows callbacks to this machine, and mail over
    connections that are not encrypted.
    """
    secret = secret or os.environ.get(SECRET_VARIABLE)
    if secret is not None:
        callback_secret(secret, "")  # says so now if it is too short
    check_base_url(base_url)
    if isinstance(checkpointer_or_url, str):
        checkpointer_from_url(checkpointer_or_url)  # says so now if it is no database's
    smtp_url = smtp_url or os.environ.get(SMTP_VARIABLE)
    mailer = None if smtp_url is None else Mailer(smtp_url, in_clear=development)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            checkpointer = checkpointer_or_url
            if isinstance(checkpointer, str):
                opened = checkpointer_from_url(checkpointer, clock=clock)
                checkpointer = await stack.enter_async_context(opened)
            cases = Cases(
                checkpointer, clock=clock, signing_key=signing_key, base_url=base_url, on_end=metrics.ended
            )
            rate = CaseRate(cases.store, clock)
            sender = await stack.enter_async_context(CallbackSender(development=development, clock=clock))
            guard = await stack.enter_async_context(Guard(development=development))
            await asyncio.to_thread(_read_files)
            app.state.service = Service(
                cases=cases,
                keys=Keys(checkpointer.engine, clock=clock),
                rate=rate,
                verifier=Verifier(verification or {}, cases.store.spend, clock),
                prefills=Prefills(guard),
                base_url=base_url.rstrip("/"),
                name=name,
                takes_callbacks=secret is not None,
                signing_key=signing_key,
                retention_days=retention_days,
                development=development,
                authenticate=authenticate,
                identify=identify,
                email_codes=None if mailer is None else EmailCodes(cases, mailer, urlsplit(base_url).netloc),
            )
            stack.callback(delattr, app.state, "service")
            callbacks = CallbackWorker(cases, sender, secret)
            background = Background(cases, callbacks, rate, metrics, on_case)
            background.start()
            stack.push_async_callback(background.stop)
            yield

    app = FastAPI(
        title=name,
        version="0.8",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # FastAPI's own spans hold whole addresses, and a review link's address holds its token.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.include_router(api.router)
    app.include_router(browser.router)
    app.include_router(wellknown.router)
    app.mount("/static", browser.static_files(), "static")
    app.add_exception_handler(ServiceError, _refused)
    app.add_exception_handler(StoreError, _refused)
    app.add_exception_handler(Unauthorized, _unauthorized)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(cast(Any, BodyLimit))
    app.add_middleware(cast(Any, RequestCount), metrics=metrics)
    app.add_middleware(cast(Any, RequestLog))
    return app


def _read_files() -> None:
    """Read now what the first page, or the first static file, would read while others wait."""
    load_pages()
    mimetypes.init()


async def _refused(request: Request, error: Exception) -> Response:
    return of_error_to(request, cast("ServiceError | StoreError", error))


async def _unauthorized(request: Request, error: Exception) -> Response:
    return unauthorized()


async def _invalid(request: Request, error: Exception) -> Response:
    """What does not fit, by path and in words, but without the values."""
    faults = {
        ".".join(str(step) for step in fault["loc"] if step != "body") or "body": fault["msg"]
        for fault in cast(RequestValidationError, error).errors()
    }
    said = "; ".join(f"{path}: {why}" for path, why in faults.items())
    return problem(422, "invalid_request", said, faults=faults)


async def _http(request: Request, error: Exception) -> Response:
    refused = cast(HTTPException, error)
    if refused.status_code == 404:
        return nowhere(request)
    code = {405: "method_not_allowed", 413: "too_long"}.get(refused.status_code, "refused")
    return problem(refused.status_code, code, str(refused.detail), dict(refused.headers or {}))
