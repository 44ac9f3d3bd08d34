"""Whatever is sent to the API, it answers with what its description says, and never with a failure of its own.

Each request has a budget: of the CPU time of the service's threads, and of memory.
"""

from __future__ import annotations

import asyncio
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from kit.hostile_corpus import ANSWERS, BODIES, JSON, OPENINGS
from kit.patience import PATIENCE
from kit.running_service import Opened, serving
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from askfirst.protocol import actions_of
from askfirst.service.app import create_app

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TYPES = ("approval", "selection", "input", "confirmation", "escalation", "x-own")
DESCRIBED = schemathesis.openapi.from_dict(create_app("sqlite://", base_url="https://a.example").openapi())
OPERATIONS = {each.ok().label: each.ok() for each in DESCRIBED.get_all_operations()}


SECONDS = 5.0
"""Of CPU time for one request, all threads of the service together. What was found took up to an hour."""
MEMORY = 200_000
"""Kilobytes by which the most that the process ever had may grow in one request. What was found took gigabytes."""


class Target:
    """A service in a thread of its own, with cases to aim at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.key = ""
        self.cases: list[Opened] = []
        self._ready, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        async with serving(f"sqlite:///{self.folder}/cases.db", quick=False, inline=True) as served:
            agent = await served.agent()
            self.url, self.key = served.url, agent.headers["Authorization"]
            context: dict[str, Any] = {"items": [{"id": "a"}]}
            for each in TYPES * 10:
                self.cases.append(await agent.open(each, context=context, timeout="P300D"))
            self._ready.set()
            await asyncio.to_thread(self._done.wait)

    def __enter__(self) -> Target:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @contextmanager
    def budget(self, name: str) -> Iterator[None]:
        """Fail if what is done meanwhile costs the service more than a request may."""
        before, most = self._spent(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield
        spent = self._spent() - before
        assert spent < SECONDS, f"{name} took {spent:.1f} s"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most
        assert grown < MEMORY, f"{name} took {grown / 1000:.0f} MB"

    def _spent(self) -> float:
        """The CPU time of all threads but this one, which only asks."""
        return time.process_time() - time.thread_time()

    def aim(self, case: schemathesis.Case, luck: random.Random) -> dict[str, str]:
        """Let most requests reach a case that is there, with the right to it; the headers for that."""
        at = luck.choice(self.cases)
        parameters: Any = case.path_parameters
        if parameters and "case_id" in parameters and luck.random() < 0.8:
            parameters["case_id"] = at.case_id
        if parameters and case.path.endswith(("/events", "/live")):  # a stream of an open case does not end
            parameters["case_id"] = "review_unknown"
        if isinstance(case.body, dict) and "action" in case.body and luck.random() < 0.5:
            case.body["action"], case.body["data"] = luck.choice(actions_of(at.hitl["type"])), {}
        if case.path.startswith("/review/") and luck.random() < 0.8:
            query: Any = dict(case.query or {})
            case.query = {**query, "token": at.token}
        token = f"Bearer {at.hitl['submit_token']}" if case.path.endswith("s/{case_id}/respond") else self.key
        return {"Authorization": token} if luck.random() < 0.9 else {}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("fuzz")) as running:
        yield running


def test_the_whole_of_the_api_is_described() -> None:
    assert {label.partition(" ")[2] for label in OPERATIONS} == {
        "/v1/reviews",
        "/v1/reviews/{case_id}/status",
        "/v1/reviews/{case_id}/events",
        "/v1/reviews/{case_id}/respond",
        "/v1/reviews/{case_id}/cancel",
        "/v1/reviews/{case_id}/continuation",
        "/v1/threads/{thread_id}/events",
        "/review/{case_id}",
        "/review/{case_id}/respond",
        "/review/{case_id}/live",
        "/review/{case_id}/undo",
        "/.well-known/hitl.json",
        "/.well-known/jwks.json",
        "/healthz",
        "/readyz",
    }


WAYS = [
    (label, mode)
    for label, operation in OPERATIONS.items()
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or "{" in label or operation.body  # else nothing in it could be wrong
]


@pytest.mark.parametrize(("label", "mode"), WAYS)
def test_no_request_is_answered_with_what_is_not_described(
    label: str, mode: GenerationMode, target: Target
) -> None:
    operation = OPERATIONS[label]
    statuses: Counter[int] = Counter()

    @given(operation.as_strategy(mode))
    @settings(
        max_examples=30,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def answers(case: schemathesis.Case) -> None:
        headers = target.aim(case, random.Random(repr(case.body) + repr(case.query)))
        with target.budget(label):
            response = case.call(base_url=target.url, headers=headers, timeout=10 * PATIENCE)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    answers()
    assert statuses, "nothing was sent"


@pytest.mark.attack("H1 H5 M5", "requests over their budget of time and memory")
def test_no_hostile_request_is_over_its_budget(target: Target, attacks_tried: Callable[[int], None]) -> None:
    links: dict[str, str] = {}
    count = 0
    with httpx2.Client(base_url=target.url, timeout=PATIENCE) as http:

        def sent(name: str, url: str, kind: str, body: bytes, **headers: str) -> httpx2.Response:
            nonlocal count
            count += 1
            with target.budget(name):
                answer = http.post(url, content=body, headers={"Content-Type": kind, **headers})
            assert answer.status_code < 500, name
            return answer

        for name, (kind, make) in BODIES.items():
            for at in target.cases[:3]:
                api, body = f"/v1/reviews/{at.case_id}", make()
                sent(name, f"{api}/respond", kind, body)
                sent(name, f"{api}/cancel", kind, body, Authorization=target.key)
                sent(name, f"/review/{at.case_id}/respond?token={at.token}", kind, body)
        for name, make in OPENINGS.items():
            opened = sent(name, "/v1/reviews", JSON, make(), Authorization=target.key)
            if opened.status_code == 202:
                links[name] = opened.json()["hitl"]["review_url"]
                with target.budget(f"the page of {name}"):
                    assert http.get(links[name]).status_code == 200
        for name, (kind, which, make) in ANSWERS.items():
            link, _, token = links[which].partition("?")
            sent(name, f"{link}/respond?{token}", kind, make())
    attacks_tried(count)
