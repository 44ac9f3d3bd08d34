"""What the service counts: requests by route, open cases, time to answer; and nothing that anyone said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.running_service import HandClock, serving, until
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from askfirst.service import background

pytestmark = pytest.mark.anyio


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)
    monkeypatch.setattr(background, "COUNTING_SECONDS", 0.02)
    return reader


def points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, Any], Any]]:
    """A metric's points: their attributes, and themselves."""
    told = reader.get_metrics_data()
    assert told is not None
    found = [
        metric
        for resource in told.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
    ]
    return [(dict(point.attributes or {}), point) for metric in found for point in metric.data.data_points]


async def test_requests_are_counted_by_route_and_not_by_path(
    tmp_path: Path, reader: InMemoryMetricReader
) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as served:
        agent = await served.agent()
        for _ in range(2):
            await (await agent.open()).poll()
        await served.http.get("/nowhere/at/all")
        await served.http.request("BREW", "/healthz")
    counted = {
        (each["http.request.method"], each["http.route"], each["http.response.status_code"]): point.value
        for each, point in points(reader, "askfirst.service.requests")
    }
    assert counted == {
        ("POST", "/v1/reviews", 202): 2,
        ("GET", "/v1/reviews/{case_id}/status", 200): 2,
        ("GET", "unknown", 404): 1,
        ("_OTHER", "/healthz", 405): 1,
    }


async def test_time_to_answer_is_measured_once_for_each_case(
    tmp_path: Path, reader: InMemoryMetricReader
) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock) as served:
        agent = await served.agent()
        answered, expiring = await agent.open("x-secret-project"), await agent.open(timeout="10m")
        clock.turn(90)
        assert (await answered.say("submit", {"notes": "fine"})).status_code == 200
        assert (await answered.say("submit", {"notes": "fine"})).status_code == 409
        clock.turn(600)

        async def expired() -> bool:
            return (await expiring.poll())["status"] == "expired"

        await until(expired)
    told = {
        (each["hitl.type"], each["hitl.outcome"]): (point.count, point.sum)
        for each, point in points(reader, "askfirst.service.time_to_answer")
    }
    assert told == {("custom", "completed"): (1, 90.0), ("approval", "expired"): (1, 690.0)}


async def test_open_cases_are_those_of_the_database(tmp_path: Path, reader: InMemoryMetricReader) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        agent = await served.agent()
        cases = [await agent.open() for _ in range(3)]
        await cases[0].say("approve")

        async def counted() -> bool:
            return [point.value for _, point in points(reader, "askfirst.service.open_cases")] == [2]

        await until(counted)
