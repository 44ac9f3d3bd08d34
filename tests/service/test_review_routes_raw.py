"""All of a case as JSON, with its digest: whoever doubts the page can compute the digest of what it shows."""

from __future__ import annotations

import hashlib
import html
import re
from typing import Any

import pytest
from kit.running_service import BROWSER, Served, serving, until
from kit.stores import asked

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.display import Display
from askfirst.errors import CaseNotFound
from askfirst.messages import call_digest, canonical_json
from askfirst.protocol import shown_digest
from askfirst.requests import ApproveRequest, HitlRequest
from askfirst.service.adoption import case_id_of
from askfirst.service.embedding import review_link

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
LARGE = {"text": "x" * 1_000_000, "lines": "line\n" * 1_000, "n": 2**60, "half": 0.5}


async def page_of(served: Served, store: SqlCheckpointer, args: dict[str, Any], **words: Any) -> str:
    payload = ApproveRequest(
        tool_name="send",
        tool_call_id="call-1",
        args=args,
        digest=call_digest("send", args),
        display=Display(**words).shown(args),
    )
    now = served.service.cases.now() / 1000
    await asked(store, "t", HitlRequest(question_id="call-1", payload=payload, created_at=now))

    async def link() -> str | None:
        try:
            return await review_link(served.app, case_id_of("t", "call-1", 1))
        except CaseNotFound:
            return None

    return await until(link)


async def text_of(served: Served, page: str) -> str:
    return (await served.http.get(page, headers=BROWSER)).text


@pytest.mark.parametrize(
    "args", [{}, {"b": "é\n<b>", "a": [1, 2.5, None]}, LARGE], ids=["none", "some", "large"]
)
async def test_the_file_behind_raw_has_the_digest_of_the_call(
    checkpointer: SqlCheckpointer, args: dict[str, Any]
) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, args)
        assert "&amp;raw=1" in await text_of(served, page)
        raw = await text_of(served, f"{page}&raw=1")
        digest = call_digest("send", args)
        assert digest in raw
        assert len(raw.encode()) <= 200_000
        assert '"name":"send"' in html.unescape(raw) or args is LARGE
        download = re.search(r'href="(/[^"]*/text[^"]*)"', raw)
        assert download is not None
        file = await served.http.get(html.unescape(download[1]), headers=BROWSER)
        assert file.headers["content-disposition"].startswith("attachment")
        assert file.content == canonical_json({"args": args, "name": "send"})
        assert hashlib.sha256(file.content).hexdigest() == digest


async def test_a_service_s_case_has_the_digest_that_a_signed_result_has(
    checkpointer: SqlCheckpointer,
) -> None:
    async with serving(checkpointer) as served:
        context = {"cents": 4900, "who": "Ada"}
        case = await (await served.agent()).open(context=context)
        page = str(case.hitl["review_url"])
        assert "&amp;raw=1" in await text_of(served, page)
        asked_of = {"type": "approval", "prompt": "Please decide.", "context": context}
        assert shown_digest(**asked_of) in await text_of(served, f"{page}&raw=1")


async def test_a_hidden_value_is_hidden_here_too(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        args = {"token": "hunter2-hunter2", "n": 1}
        page = await page_of(served, checkpointer, args, formats={"token": "secret"})
        raw = await text_of(served, f"{page}&raw=1")
        assert "[hidden]" in raw
        assert "Hidden values are left out" in raw
        assert call_digest("send", args) not in raw
        file = await served.http.get(f"{page.replace('?', '/text?')}&of=raw&row=0", headers=BROWSER)
        assert file.status_code == 200
        assert "hunter2" not in raw + file.text
