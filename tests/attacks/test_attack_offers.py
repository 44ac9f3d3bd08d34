"""Answers that are made to harm the client that reads them."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from kit.scripted_server import Said, scripted

from askfirst.client import HitlClient
from askfirst.client.offer import read_offer
from askfirst.client.polling import read_facts
from askfirst.delivery.base import Notice
from askfirst.errors import InvalidOffer

pytestmark = pytest.mark.anyio


async def nobody(notice: Notice) -> None:
    """Who reads nothing."""


def bomb() -> bytes:
    """300 MB of blanks, packed."""
    return gzip.compress(b" " * 100_000_000, 1) * 3


@pytest.mark.attack("L9", "endless and packed answers to a client")
async def test_a_packed_bomb_is_not_unpacked() -> None:
    packed = bomb()
    async with scripted() as service, HitlClient(deliver=nobody) as client:
        service.script["/work"] = [Said(202, packed, {"Content-Encoding": "gzip"})]
        tracemalloc.start()
        try:
            with pytest.raises(InvalidOffer, match="more than 8000000 bytes"):
                await client.request("POST", f"{service.url}/work", json={})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 60_000_000


@pytest.mark.attack("L9", "endless and packed answers to a client")
async def test_a_packed_bomb_that_is_handed_over_is_not_unpacked() -> None:
    packed = bomb()
    async with scripted() as service, HitlClient(deliver=nobody) as client, httpx2.AsyncClient() as http:
        service.script["/work"] = [Said(202, packed, {"Content-Encoding": "gzip"})]
        tracemalloc.start()
        try:
            async with http.stream("POST", f"{service.url}/work") as response:
                with pytest.raises(InvalidOffer, match="more than 8000000 bytes"):
                    await client.handle(response)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 60_000_000


@pytest.mark.attack("L9", "endless and packed answers to a client")
async def test_an_endless_202_is_left() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    async with scripted() as service, HitlClient(deliver=nobody) as client:
        service.script["/work"] = [Said(202, pieces=endless())]
        with pytest.raises(InvalidOffer, match="more than 8000000 bytes"):
            await client.request("POST", f"{service.url}/work", json={})


@pytest.mark.attack("L9", "endless and packed answers to a client")
async def test_a_202_nested_without_end_is_no_offer() -> None:
    async with scripted() as service, HitlClient(deliver=nobody) as client:
        service.script["/work"] = [Said(202, b"[" * 1_000_000)]
        answer: Any = await client.request("POST", f"{service.url}/work", json={})
        assert answer.status_code == 202


_NAMED = {
    "case_id": "review_1",
    "review_url": "https://api.example/r?token=t",
    "poll_url": "https://api.example/s",
    "type": "input",
    "prompt": "p",
}
_MANY: list[dict[str, Any]] = [
    {"reminder_at": [7] * 200_000},
    {"inline_actions": [{}] * 200_000},
    {"context": {"form": {"fields": [{}] * 200_000}}},
    {"context": {"form": {"steps": [{"title": "t", "fields": [{}] * 999}] * 999}}},
    {"verification_policy": {"requirements": {"any_of": [{"all_of": [{}] * 999}] * 999}}},
    {f"x_{number}": {} for number in range(200_000)},
]


@pytest.mark.attack("L9", "odd fields in great number, to a client")
@pytest.mark.parametrize("many", _MANY, ids=lambda many: next(iter(many)))
def test_many_odd_fields_cost_little_and_harm_nothing(many: dict[str, Any]) -> None:
    tracemalloc.start()
    try:
        offer = read_offer(202, "https://api.example/work", {"hitl": {**_NAMED, **many}})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert offer is not None
    assert len(json.dumps(offer.more)) <= 64_000
    assert peak < 60_000_000


@pytest.mark.attack("L9", "odd fields in great number, to a client")
def test_many_odd_fields_of_a_poll_answer_cost_little() -> None:
    odd = {"verified_evidence": [{}] * 200_000, "missing_requirements": [7] * 200_000, "satisfied": True}
    said = {
        "status": "completed",
        "result": {"action": "approve"},
        "submission_context": {"mode": "browser_submit", "verification_result": odd},
    }
    tracemalloc.start()
    try:
        answer = read_facts(said, "review_1")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.result is not None
    assert peak < 60_000_000
