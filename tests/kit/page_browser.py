"""Chromium and axe for the tests of the pages, and a small service that shows and settles cases."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from askfirst.errors import InvalidFormData, InvalidReview
from askfirst.protocol import clean_form_data
from askfirst.service.answers import clean_answer
from askfirst.service.assets import static_app
from askfirst.service.case import Case
from askfirst.service.pages import (
    PAGE_HEADERS,
    Submission,
    load_pages,
    read_submission,
    render_case,
    render_unknown,
)
from kit.browsers import give_up
from kit.page_cases import NOW, TOKEN

AXE = "4.14.0"


def axe_source() -> str:
    """The script of axe-core, fetched once from the npm registry."""
    archive = Path(sys.prefix, f"axe-core-{AXE}.tgz")
    if not archive.exists():
        npm = shutil.which("npm") or give_up("there is no npm to fetch axe-core with")
        done = subprocess.run(  # noqa: S603
            [npm, "pack", f"axe-core@{AXE}", "--silent", "--pack-destination", sys.prefix],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            give_up(f"npm could not fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(archive) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


class Desk:
    """Cases by name, each with its page at ``/review/{name}?token=``, and finished pages at ``/scene/{name}``.

    A finished page that the desk serves takes a browser half the time of one that a test puts in by ``page.route``:
    with a route, every file of the page goes through the test, and the browser caches none of them.
    """

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.scenes: dict[str, str] = {}
        self.url = ""

    def put(self, name: str, case: Case) -> str:
        """Show a case; returns its link."""
        self.cases[name] = dataclasses.replace(case, case_id=name)
        return f"{self.url}/review/{name}?token={TOKEN}"

    def show(self, html: str, name: str = "scene") -> str:
        """Show a finished page, in place of the one of this name; returns its link."""
        self.scenes[name] = html
        return f"{self.url}/scene/{name}"

    def result(self, name: str) -> Any:
        """The result of a case, or None."""
        return self.cases[name].result

    def app(self) -> Starlette:
        """The pages, the form's address and the static files."""
        return Starlette(
            routes=[
                Route("/scene/{name}", self._scene),
                Route("/review/{name}", self._show),
                Route("/review/{name}/respond", self._respond, methods=["POST"]),
                Mount("/static", static_app),
            ]
        )

    async def _scene(self, request: Request) -> Response:
        """A finished page, without the headers that would keep a script from running which got into it.

        A script that fetches the page again gets nothing: it might get the next one.
        """
        if request.headers["sec-fetch-mode"] != "navigate":
            return Response(status_code=503)
        return HTMLResponse(self.scenes[request.path_params["name"]], headers={"Cache-Control": "no-store"})

    async def _show(self, request: Request) -> Response:
        case = self.cases.get(request.path_params["name"])
        if case is None or request.query_params.get("token") != TOKEN:
            return _page(render_unknown(), 404)
        stage = "edit" if request.query_params.get("edit") else "decide"
        return _page(_render(case, stage=stage))

    async def _respond(self, request: Request) -> Response:
        name = request.path_params["name"]
        case = self.cases[name]
        posted = parse_qs((await request.body()).decode(), keep_blank_values=True)
        submission = read_submission(case, posted)
        if submission.begun is not None:
            self.cases[name] = case = dataclasses.replace(case, draft=submission.begun)
            if submission.intent in ("drop", "draft"):
                return RedirectResponse(f"/review/{name}?token={TOKEN}", 303)
        if submission.faults:
            return _page(_again(case, submission, submission.faults), 422)
        if submission.intent == "answer":
            try:
                data = clean_answer(case, submission.action, submission.data)
            except InvalidReview as error:
                return _page(_again(case, submission, error.faults), 422)
            result = {"action": submission.action, "data": data}
            self.cases[name] = dataclasses.replace(case, status="completed", result=result, ended_at=NOW)
            return _page(_render(self.cases[name]))
        if submission.intent == "next" and case.form is not None:
            try:
                clean_form_data(case.form, submission.data, through_step=submission.step)
            except InvalidFormData as error:
                return _page(_again(case, submission, error.faults), 422)
        if submission.intent in ("next", "back", "draft"):
            self.cases[name] = case = dataclasses.replace(case, draft=submission.data)
        notice = {"draft": "saved", "more": "more"}.get(submission.intent)
        return _page(_render(case, values=submission.data, step=submission.goto, notice=notice))


def _again(case: Case, submission: Submission, faults: Any) -> str:
    return _render(case, values=submission.data, faults=faults, step=submission.step)


def _render(case: Case, **given: Any) -> str:
    return render_case(case, token=TOKEN, base_path="", now=NOW, **given)


def _page(html: str, status: int = 200) -> Response:
    return HTMLResponse(html, status, dict(PAGE_HEADERS))


@contextmanager
def served(desk: Desk) -> Iterator[Desk]:
    """Serve the desk on a real server within this context."""
    load_pages()
    server = uvicorn.Server(uvicorn.Config(desk.app(), port=0, log_level="error", lifespan="off"))
    config = server.config
    sock = config.bind_socket()
    desk.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    thread = Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield desk
    finally:
        server.should_exit = True
        thread.join()
        sock.close()
