"""Microsoft Teams: cards through a webhook, against a server that checks what the platform checks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from kit.running_service import listening

from askfirst.delivery.base import Button, Ended, Notice, Sent
from askfirst.delivery.teams import TeamsDelivery
from askfirst.errors import DeliveryError

pytestmark = pytest.mark.anyio
PATH = "/workflows/4711/triggers/manual/paths/invoke?sig=s3cret"
LINK = "https://reviews.example.com/review/review_1?token=abc"
ASKED = Notice(
    "review",
    "review_1",
    "Publish **it**?\n\n[here](https://evil.example) <at>all</at>",
    LINK,
    (Button("approve", "Approve"),),
    facts={"service": "Desk"},
    whole=True,
)


@dataclass
class Channel:
    """A channel of Teams: what was posted, and what to answer next instead of taking it."""

    url: str = ""
    posts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answers: list[Response] = field(default_factory=list[Response])

    async def take(self, request: Request) -> Response:
        body = await request.body()
        assert request.query_params["sig"] == "s3cret"
        if self.answers:
            return self.answers.pop(0)
        if len(body) > 28_000:
            return Response(status_code=413)
        post = json.loads(body)
        assert post["type"] == "message"
        [attachment] = post["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        assert attachment["content"]["type"] == "AdaptiveCard"
        self.posts.append(attachment["content"])
        return Response(status_code=202)

    @property
    def texts(self) -> list[str]:
        return [
            "\n".join(run["text"] for block in post["body"] for run in block["inlines"])
            for post in self.posts
        ]


@asynccontextmanager
async def teams() -> AsyncGenerator[Channel]:
    channel = Channel()
    app = FastAPI()
    app.add_api_route("/workflows/{rest:path}", channel.take, methods=["POST"])
    async with listening(lambda _: app) as (url, _):
        channel.url = url + PATH
        yield channel


async def test_a_card_has_the_link_and_no_other_button() -> None:
    async with teams() as channel:
        sent = await TeamsDelivery(channel.url).send(ASKED)
        await TeamsDelivery(channel.url).update(sent, Ended("review_1", "completed", "Approved by Ada."))
        await TeamsDelivery(channel.url).update(
            sent,
            Ended("review_1", "completed", "Approved by Ada.", outcome="The call has run.", is_again=True),
        )
        first, second = channel.posts
        assert first["actions"] == [{"type": "Action.OpenUrl", "title": "Open the page", "url": LINK}]
        assert "actions" not in second
        assert "msteams" not in first  # without it, <at> mentions nobody
        asked, ended = channel.texts
        assert asked.startswith("Desk asks for a decision\nPublish **it**?")
        assert ended == "Desk asks for a decision\nApproved by Ada."
    assert sent == Sent("teams", "review_1", {"heading": "Desk asks for a decision"})


@pytest.mark.parametrize(
    ("answer", "problem", "retry_after", "permanent"),
    [
        (Response(status_code=429, headers={"Retry-After": "7"}), "Teams answered 429", 7.0, False),
        (Response(status_code=503), "Teams answered 503", None, False),
        (Response(status_code=404), "Teams answered 404", None, True),
        (Response(status_code=302, headers={"Location": "/else"}), "Teams answered 302", None, True),
    ],
)
async def test_what_teams_refuses(
    answer: Response, problem: str, retry_after: float | None, permanent: bool
) -> None:
    async with teams() as channel:
        channel.answers.append(answer)
        with pytest.raises(DeliveryError) as caught:
            await TeamsDelivery(channel.url).send(ASKED)
    error = caught.value
    assert (error.problem, error.retry_after, error.permanent) == (problem, retry_after, permanent)
    assert "s3cret" not in str(error)


async def test_a_channel_that_is_away_is_worth_another_try() -> None:
    with pytest.raises(DeliveryError, match="Teams could not be reached") as caught:
        await TeamsDelivery("http://127.0.0.1:9/hook?sig=s3cret").send(ASKED)
    assert not caught.value.permanent
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "http://a.example/hook", "ftp://a.example", "https://"])
def test_only_an_encrypted_address_is_taken(url: str) -> None:
    with pytest.raises(DeliveryError, match="url must be the https address"):
        TeamsDelivery(url)
