"""Heads of the trail: pushed to where they are kept, signed, and compared with."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from kit.callback_receivers import OK, receiving
from kit.running_service import serving, until
from kit.stores import asked

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import InvalidSignature, ServiceError
from askfirst.protocol import SigningKey, jwks_document
from askfirst.service.audit import HeadPusher, check_push_url, verify, verify_head
from askfirst.store.audit_chain import Head

pytestmark = pytest.mark.anyio
REFUSED = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.attack("M2", "the record against SQL")
async def test_a_pushed_and_signed_head_shows_that_the_trail_was_cut(tmp_path: Path) -> None:
    key = SigningKey.generate()
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer, receiving() as receiver:
        for thread in ("t", "u", "v"):
            await asked(checkpointer, thread)
        pusher = HeadPusher(checkpointer.engine, f"http://127.0.0.1:{receiver.port}/heads", key)
        pushed = await pusher.push()
        assert pushed is not None
        assert await pusher.push() is None  # it has not moved
        [(line, headers, body)] = receiver.requests
        assert (line.split()[:2], headers["content-type"]) == (["POST", "/heads"], "application/json")
        said = json.loads(body)
        kept = verify_head(said, jwks_document([key]))
        assert kept == pushed == Head(3, (await verify(checkpointer.engine)).head)
        assert (await verify(checkpointer.engine, kept=kept)).is_whole
        connection = sqlite3.connect(tmp_path / "x.db")
        connection.execute("DELETE FROM askfirst_audit WHERE seq = 3")
        connection.execute(
            "UPDATE askfirst_audit_head SET seq = 2, hash = (SELECT hash FROM askfirst_audit WHERE seq = 2)"
        )
        connection.execute("DELETE FROM askfirst_requests WHERE thread_id = 'v'")
        connection.commit()
        connection.close()
        assert (await verify(checkpointer.engine)).is_whole  # by itself it cannot tell
        [fault] = (await verify(checkpointer.engine, kept=kept)).faults
        assert fault.problem == "row 3 is missing: the head that was kept had them"


async def test_a_head_that_was_altered_or_signed_by_another_is_refused(tmp_path: Path) -> None:
    key = SigningKey.generate()
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer, receiving() as receiver:
        await asked(checkpointer)
        await HeadPusher(checkpointer.engine, f"http://127.0.0.1:{receiver.port}/", key).push()
        said = json.loads(receiver.last[2])
    for broken in ({**said, "rows": 2}, {**said, "head": "0" * 64}, {**said, "signature": "x"}):
        with pytest.raises(InvalidSignature):
            verify_head(broken, jwks_document([key]))
    with pytest.raises(InvalidSignature):
        verify_head(said, jwks_document([SigningKey.generate()]))


async def test_a_receiver_that_takes_nothing_is_told_again(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "x.db") as checkpointer, receiving(answer=REFUSED) as receiver:
        pusher = HeadPusher(checkpointer.engine, f"http://127.0.0.1:{receiver.port}/")
        assert await pusher.push() is None  # there is no row
        await asked(checkpointer)
        with pytest.raises(ServiceError, match="answered with 503"):
            await pusher.push()
        receiver.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        assert await pusher.push() is not None


async def test_a_service_pushes_its_heads_and_goes_on_where_nobody_takes_them(tmp_path: Path) -> None:
    key = SigningKey.generate()
    async with receiving(answer=REFUSED) as receiver:
        heads = f"http://127.0.0.1:{receiver.port}/heads"
        with mock.patch("askfirst.service.background.PUSH_INTERVAL_SECONDS", 0.02):
            async with serving(f"sqlite:///{tmp_path}/x.db", push_heads=heads, signing_key=key) as served:
                await (await served.agent()).open()

                async def pushed(most: int = 2) -> bool:
                    return len(receiver.requests) >= most

                await until(pushed)  # and refused, each time
                receiver.answer = OK
                refused = len(receiver.requests)
                await until(partial(pushed, refused + 1))
                kept = verify_head(json.loads(receiver.last[2]), jwks_document([key]))
                assert (await verify(served.service.cases.engine, kept=kept)).is_whole


@pytest.mark.parametrize("url", ["http://example.com/heads", "ftp://x", "heads"])
def test_heads_go_over_https_only(url: str) -> None:
    with pytest.raises(ServiceError, match="https"):
        check_push_url(url)
