"""Values that are fetched into a form: with the review token, from a checked address, and kept nowhere."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kit.callback_receivers import receiving
from kit.page_text import Page
from kit.running_service import Opened, Served, listening, serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from askfirst.service import egress

pytestmark = pytest.mark.anyio
SECRET = "DE89-prefilled-0815"  # noqa: S105


@dataclass
class Vault:
    """The asking service's own server: it answers what it was told to, and notes who asked."""

    url: str = ""
    answers: dict[str, Response] = field(default_factory=dict)
    seen: list[tuple[str, str | None]] = field(default_factory=list)

    async def serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.seen.append((name, request.headers.get("authorization")))
        return self.answers[name]


@asynccontextmanager
async def vault() -> AsyncGenerator[Vault]:
    it = Vault()
    app = Starlette(routes=[Route("/{name}", it.serve)])
    async with listening(lambda _: app) as (it.url, _):
        yield it


@dataclass
class Rig:
    served: Served
    vault: Vault
    folder: Path

    async def open(self, *fields: dict[str, Any], steps: Any = None) -> Opened:
        form = {"fields": list(fields)} if steps is None else {"steps": steps}
        return await (await self.served.agent()).open("input", context={"form": form})

    def field(self, name: str, kind: str = "text", **facts: Any) -> dict[str, Any]:
        return {
            "key": name,
            "label": name.capitalize(),
            "type": kind,
            "default_ref": f"{self.vault.url}/{name}",
            **facts,
        }


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with vault() as it, serving(f"sqlite:///{tmp_path}/cases.db") as served:
        yield Rig(served, it, tmp_path)


def as_json(value: Any) -> Response:
    return Response(json.dumps(value), media_type="application/json")


def values(html: str) -> dict[str, Any]:
    """What stands in the fields of a page, by name."""
    fields = {
        each.attrs["name"].removeprefix("f."): each.attrs.get("value")
        for each in Page(html).all("input")
        if str(each.attrs.get("name")).startswith("f.")
        and each.attrs.get("type") not in ("radio", "checkbox")
    }
    chosen = [each for each in Page(html).all("input") if "checked" in each.attrs]
    for each in chosen:
        fields.setdefault(each.attrs["name"].removeprefix("f."), []).append(each.attrs["value"])
    return fields


HINT = "A value was to stand here and could not be fetched."


async def test_a_value_is_fetched_with_the_token_and_stands_masked_in_its_field(rig: Rig) -> None:
    rig.vault.answers["iban"] = as_json({"value": SECRET})
    case = await rig.open(rig.field("iban", sensitive=True, required=True))
    page = await case.visit()
    assert rig.vault.seen == [("iban", f"Bearer {case.token}")]
    assert values(page.text) == {"iban": SECRET}
    assert page.text.count(SECRET) == 1
    (secret,) = [each for each in Page(page.text).all("input") if each.attrs.get("value") == SECRET]
    assert secret.attrs["type"] == "password"
    assert page.headers["cache-control"] == "no-store"
    assert HINT not in page.text
    done = await case.form(step="1", intent="answer", shown="iban", **{"f.iban": SECRET})
    assert done.status_code == 303
    assert (await case.poll())["result"]["data"] == {"iban": SECRET}


async def test_it_is_kept_and_logged_nowhere(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    rig.vault.answers["iban"] = as_json(SECRET)
    rig.vault.answers["age"] = as_json(SECRET)  # no number: refused, and not told of either
    case = await rig.open(rig.field("iban", sensitive=True), rig.field("age", "number"))
    assert SECRET in (await case.visit()).text
    kept = b"".join(path.read_bytes() for path in rig.folder.iterdir())
    assert SECRET.encode() not in kept
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name != "httpx2")
    assert "the value of age of case" in ours
    for unsaid in (SECRET, case.token, rig.vault.url):
        assert unsaid not in ours
    assert SECRET not in str(await case.poll())


async def test_values_of_every_kind(rig: Rig) -> None:
    options = [{"value": "red", "label": "Red"}, {"value": "green", "label": "Green"}]
    answers = {
        "name": Response("Ada", media_type="text/plain; charset=utf-8"),
        "age": as_json(36),
        "count": as_json("7"),
        "day": as_json({"value": "2026-05-01"}),
        "remote": as_json(True),
        "colour": as_json("red"),
        "colours": as_json(["green", "red"]),
    }
    rig.vault.answers |= answers
    case = await rig.open(
        rig.field("name"),
        rig.field("age", "number"),
        rig.field("count", "number"),
        rig.field("day", "date"),
        rig.field("remote", "boolean"),
        rig.field("colour", "select", options=options),
        rig.field("colours", "multiselect", options=options),
    )
    page = await case.visit()
    assert values(page.text) == {
        "name": "Ada",
        "age": "36",
        "count": "7",
        "day": "2026-05-01",
        "remote": ["true"],
        "colour": ["red"],
        "colours": ["red", "green"],
    }
    assert HINT not in page.text


FAILING: dict[str, Response] = {
    "not found": Response(status_code=404),
    "broken": Response("oops", status_code=500),
    "empty": Response("", media_type="text/plain"),
    "null": as_json(None),
    "no such option": as_json("blue"),
    "an object without it": as_json({"colour": "red"}),
    "no JSON": Response("{", media_type="application/json"),
    "no text": Response(b"\xff\xfe", media_type="text/plain"),
    "too long": Response(" " * 30_000 + "red", media_type="text/plain"),
    "moved": RedirectResponse("/other"),
}


async def test_what_cannot_be_had_leaves_the_field_empty_with_a_hint(rig: Rig) -> None:
    options = [{"value": "red", "label": "Red"}]
    for how, answer in FAILING.items():
        rig.vault.answers = {"colour": answer, "other": as_json("red")}
        rig.vault.seen.clear()
        case = await rig.open(rig.field("colour", "select", options=options))
        page = await case.visit()
        assert page.status_code == 200, how
        assert values(page.text) == {}, how
        assert HINT in page.text, how
        assert [name for name, _ in rig.vault.seen] == ["colour"], "redirects are not followed"
        done = await case.form(step="1", intent="answer", shown="colour", **{"f.colour": "red"})
        assert done.status_code == 303, how


async def test_a_server_that_never_answers_keeps_nobody_waiting_for_long(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "SECONDS", 0.05)
    async with receiving(answer=None) as silent:
        slow = {"default_ref": f"http://127.0.0.1:{silent.port}/slow"}
        case = await rig.open(*(rig.field(f"slow{n}", **slow) for n in range(3)))
        page = await case.visit()
    assert page.text.count(HINT) == 3


async def test_only_so_many_are_fetched_for_one_page(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "MOST_AT_ONCE", 2)
    for name in ("a", "b", "c"):
        rig.vault.answers[name] = as_json("x")
    case = await rig.open(*(rig.field(name) for name in ("a", "b", "c")))
    page = await case.visit()
    assert len(rig.vault.seen) == 2
    assert page.text.count(HINT) == 1


async def test_no_address_within_our_network_is_asked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_exchanged", None)  # nobody is connected to
    urls = ("http://a.example/x", "https://10.0.0.1/x", "https://169.254.169.254/latest", "ftp://a.example/x")
    case = await rig.open(*(rig.field(f"a{n}", default_ref=url) for n, url in enumerate(urls)))
    page = await case.visit()
    assert page.text.count(HINT) == len(urls)


async def test_this_machine_is_asked_for_development_only(tmp_path: Path) -> None:
    async with vault() as it, serving(f"sqlite:///{tmp_path}/c.db", development=False) as served:
        it.answers["a"] = as_json("x")
        rig = Rig(served, it, tmp_path)
        case = await rig.open(rig.field("a"))
        assert HINT in (await case.visit()).text
        assert it.seen == []


async def test_a_preview_a_program_and_a_stranger_fetch_nothing(rig: Rig) -> None:
    rig.vault.answers["a"] = as_json(SECRET)
    case = await rig.open(rig.field("a"))
    url = case.hitl["review_url"]
    preview = await case.visit(**{"User-Agent": "TelegramBot (like TwitterBot)"})
    assert preview.status_code == 200
    for answer in (preview, await case.http.get(url), await case.http.head(url)):
        assert SECRET not in answer.text
    assert (await case.http.get(url.replace("token=", "token=x"))).status_code == 404
    assert rig.vault.seen == []


async def test_what_a_person_filled_in_or_emptied_is_not_overwritten(rig: Rig) -> None:
    rig.vault.answers["a"] = as_json("fetched")
    case = await rig.open(rig.field("a"), {"key": "b", "label": "B", "type": "text", "required": True})
    assert values((await case.visit()).text)["a"] == "fetched"
    emptied = await case.form(step="1", intent="answer", shown=["a", "b"], **{"f.a": "", "f.b": ""})
    assert emptied.status_code == 422
    assert values(emptied.text)["a"] == ""
    await case.form(step="1", intent="draft", shown=["a", "b"], **{"f.a": "own", "f.b": ""})
    assert values((await case.visit()).text)["a"] == "own"
    assert len(rig.vault.seen) == 1


async def test_a_field_of_a_later_step_is_fetched_when_it_is_shown(rig: Rig) -> None:
    rig.vault.answers["iban"] = as_json(SECRET)
    first = {"title": "One", "fields": [{"key": "name", "label": "Name", "type": "text"}]}
    second = {"title": "Two", "fields": [rig.field("iban", sensitive=True)]}
    case = await rig.open(steps=[first, second])
    assert SECRET not in (await case.visit()).text
    assert rig.vault.seen == []
    page = await case.form(step="1", intent="next", shown="name", **{"f.name": "Ada"})
    assert values(page.text) == {"iban": SECRET}
    assert rig.vault.seen == [("iban", f"Bearer {case.token}")]


async def test_a_case_that_has_ended_fetches_nothing(rig: Rig) -> None:
    rig.vault.answers["a"] = as_json("x")
    case = await rig.open(rig.field("a"))
    await case.cancel()
    assert "cancelled" in (await case.visit()).text
    assert rig.vault.seen == []


async def test_a_sensitive_value_survives_a_page_that_is_refused(rig: Rig) -> None:
    """It is not sent to the browser again, so it has to be kept when the page says that it is."""
    secret = {"key": "pin", "label": "PIN", "type": "text", "sensitive": True}
    case = await rig.open(secret, {"key": "b", "label": "B", "type": "text", "required": True})
    refused = await case.form(step="1", intent="answer", shown=["pin", "b"], **{"f.pin": "1234", "f.b": ""})
    assert refused.status_code == 422
    assert "1234" not in refused.text
    assert re.search("You have filled this in", refused.text)
    done = await case.form(step="1", intent="answer", shown=["pin", "b"], **{"f.pin": "", "f.b": "x"})
    assert done.status_code == 303
    assert (await case.poll())["result"]["data"] == {"pin": "1234", "b": "x"}
