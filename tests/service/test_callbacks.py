"""Callbacks: signed, to checked addresses only, with an outcome that says whether to try again."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.callback_receivers import certified, receiving
from kit.patience import PATIENCE

from askfirst.errors import InvalidSecret
from askfirst.hitl.testing import FakeClock
from askfirst.protocol import verify_callback, verify_webhook
from askfirst.service import callbacks, egress
from askfirst.service.callbacks import CallbackSender, Outcome, callback_secret

pytestmark = pytest.mark.anyio

SERVER_SECRET = "s" * 32
SECRET = callback_secret(SERVER_SECRET, "key_1")
BODY = b'{"event":"review.completed","case_id":"review_1"}'
NAME = "hooks.example.com"
NOW = 1_700_000_000.5


class Names:
    """A resolver that gives one answer after the other, and counts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0)


def response(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "Content-Length: 0", "", ""]).encode()


async def send(sender: CallbackSender, url: str, body: bytes = BODY) -> Outcome:
    async with sender:
        return await sender.send(url, body, SECRET, message_id="callback_1")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver on a busy machine takes its time to take a connection."""
    monkeypatch.setattr(egress, "CONNECT_SECONDS", PATIENCE)


@pytest.fixture
def loopback_counts_as_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is on the internet; all else is as it would be there."""
    monkeypatch.setattr(egress, "is_public", lambda address: str(address) == "127.0.0.1")


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return certified(NAME, tmp_path)


Tls = tuple[ssl.SSLContext, ssl.SSLContext]
on_loopback = pytest.mark.usefixtures("loopback_counts_as_public")


# What is sent.


async def test_the_body_goes_out_raw_and_signed_twice() -> None:
    async with receiving() as receiver:
        sender = CallbackSender(development=True, clock=FakeClock(NOW))
        url = f"http://127.0.0.1:{receiver.port}/hook?to=%5Ba%5D[b]"
        assert await send(sender, url) == Outcome("sent", "answered with 200")
    line, headers, body = receiver.last
    assert line == "POST /hook?to=%5Ba%5D[b] HTTP/1.1"
    assert body == BODY
    assert headers["content-type"] == "application/json"
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert {"cookie", "authorization", "accept-encoding"}.isdisjoint(headers)
    verify_callback(body, headers["x-hitl-signature"], SECRET)
    assert verify_webhook(body, headers, SECRET, now=NOW) == "callback_1"


@on_loopback
async def test_the_name_is_in_sni_host_and_certificate_and_the_address_is_the_checked_one(tls: Tls) -> None:
    server, client = tls
    async with receiving(server) as receiver:
        names = Names(["127.0.0.1"], ["10.0.0.1"])  # whoever asks a second time is led elsewhere
        sender = CallbackSender(tls=client, resolve=names)
        assert (await send(sender, f"https://{NAME}:{receiver.port}/x")).kind == "sent"
    assert names.asked == [(NAME, receiver.port)]
    assert receiver.names == [NAME]
    assert receiver.last[1]["host"] == f"{NAME}:{receiver.port}"


@on_loopback
async def test_only_the_checked_address_is_ever_connected_to(
    tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[Any] = []
    real = socket.getaddrinfo

    def noted(host: Any, *rest: Any, **options: Any) -> Any:
        looked_up.append(host)
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    async with receiving(tls[0]) as receiver:
        sender = CallbackSender(tls=tls[1], resolve=Names(["127.0.0.1"]))
        assert (await send(sender, f"https://{NAME}:{receiver.port}/x")).kind == "sent"
    assert NAME not in looked_up


@on_loopback
async def test_a_certificate_for_another_name_is_not_believed(tls: Tls) -> None:
    async with receiving(tls[0]) as receiver:
        sender = CallbackSender(tls=tls[1], resolve=Names(["127.0.0.1"]))
        outcome = await send(sender, f"https://other.example.com:{receiver.port}/x")
    assert outcome == Outcome("retry", "other.example.com could not be reached", unreachable=True)
    assert receiver.requests == []


@on_loopback
async def test_a_certificate_that_nobody_vouches_for_is_not_believed(tls: Tls) -> None:
    async with receiving(tls[0]) as receiver:
        sender = CallbackSender(resolve=Names(["127.0.0.1"]))
        assert (await send(sender, f"https://{NAME}:{receiver.port}/x")).kind == "retry"
    assert receiver.requests == []


@on_loopback
async def test_each_callback_has_a_connection_of_its_own(tls: Tls) -> None:
    async with receiving(tls[0]) as receiver:
        sender = CallbackSender(tls=tls[1], resolve=Names(*[["127.0.0.1"]] * 3))
        for _ in range(3):
            assert (await send(sender, f"https://{NAME}:{receiver.port}/x")).kind == "sent"
    assert receiver.connections == 3


# Where it may go.


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["8.8.8.8", "192.168.0.1"],
        ["::1"],
        ["::ffff:7f00:1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::1"],
        ["fe80::1%eth0"],
        ["224.0.0.1"],
        ["0.0.0.0"],
    ],
)
@pytest.mark.parametrize("development", [False, True])
async def test_a_name_that_leads_inside_is_refused_and_nobody_is_connected_to(
    addresses: list[str], development: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "_exchanged", None)
    sender = CallbackSender(development=development, resolve=Names(addresses))
    outcome = await send(sender, f"https://{NAME}/hook?token=secret")
    assert outcome.kind == "refused"
    assert outcome.detail == f"{NAME} resolves to {addresses[-1]}, which is not a public address"


@pytest.mark.parametrize(
    "url", ["http://hooks.example.com/", "https://127.0.0.1/", "https://2130706433/", "no"]
)
async def test_a_url_that_may_not_be_called_is_refused_before_it_is_looked_up(url: str) -> None:
    names = Names()
    assert (await send(CallbackSender(resolve=names), url)).kind == "refused"
    assert names.asked == []


async def test_loopback_by_number_takes_the_real_resolver_no_further() -> None:
    async with receiving() as receiver:
        for host in ("127.0.0.1", "localhost"):
            url = f"http://{host}:{receiver.port}/"
            assert (await send(CallbackSender(), url)).kind == "refused"
    assert receiver.connections == 0


async def test_localhost_is_fine_for_development() -> None:
    async with receiving() as receiver:
        sender = CallbackSender(development=True, resolve=Names(["127.0.0.1"]))
        assert (await send(sender, f"http://localhost:{receiver.port}/")).kind == "sent"
    assert receiver.last[1]["host"] == f"localhost:{receiver.port}"


async def test_localhost_that_leads_elsewhere_is_refused_even_then() -> None:
    for addresses in (["8.8.8.8"], ["10.0.0.1"]):
        sender = CallbackSender(development=True, resolve=Names(addresses))
        assert (await send(sender, "http://localhost:1/")).kind == "refused"


async def test_proxies_in_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as receiver, receiving() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        sender = CallbackSender(development=True)
        assert (await send(sender, f"http://127.0.0.1:{receiver.port}/")).kind == "sent"
    assert (receiver.connections, proxy.connections) == (1, 0)


async def test_redirects_are_not_followed() -> None:
    async with receiving() as receiver, receiving() as elsewhere:
        receiver.answer = response("302 Found", f"Location: http://127.0.0.1:{elsewhere.port}/")
        outcome = await send(CallbackSender(development=True), f"http://127.0.0.1:{receiver.port}/")
    assert outcome == Outcome("refused", "answered with 302")
    assert (receiver.connections, elsewhere.connections) == (1, 0)


# How it went.


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("200 OK", "sent"),
        ("204 No Content", "sent"),
        ("301 Moved", "refused"),
        ("400 Bad Request", "refused"),
        ("404 Not Found", "refused"),
        ("408 Request Timeout", "retry"),
        ("410 Gone", "refused"),
        ("429 Too Many Requests", "retry"),
        ("500 Internal Server Error", "retry"),
        ("503 Unavailable", "retry"),
    ],
)
async def test_the_status_says_whether_to_try_again(status: str, kind: str) -> None:
    async with receiving(answer=response(status)) as receiver:
        outcome = await send(CallbackSender(development=True), f"http://127.0.0.1:{receiver.port}/")
    assert outcome == Outcome(kind, f"answered with {status[:3]}")  # type: ignore[arg-type]


async def test_nobody_listening_is_worth_another_try() -> None:
    async with receiving() as receiver:
        pass
    sender = CallbackSender(development=True)
    outcome = await send(sender, f"http://127.0.0.1:{receiver.port}/")
    assert outcome == Outcome("retry", "127.0.0.1 could not be reached", unreachable=True)


async def test_the_next_address_is_tried_if_one_takes_no_connection() -> None:
    async with receiving() as receiver:
        sender = CallbackSender(development=True, resolve=Names(["127.0.0.2", "127.0.0.1"]))
        assert (await send(sender, f"http://localhost:{receiver.port}/")).kind == "sent"


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000])
async def test_an_answer_that_is_none_is_worth_another_try(answer: bytes) -> None:
    async with receiving(answer=answer) as receiver:
        outcome = await send(CallbackSender(development=True), f"http://127.0.0.1:{receiver.port}/")
    assert outcome.kind == "retry"
    assert outcome.detail.startswith("the connection broke (")
    assert receiver.connections == 1  # it may have arrived: no second one in the same attempt


async def test_an_endless_answer_is_not_read() -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 0x400 + b"\r\n"
    async with receiving(answer=endless) as receiver:
        outcome = await send(CallbackSender(development=True), f"http://127.0.0.1:{receiver.port}/")
    assert outcome.kind == "sent"


async def test_silence_ends_after_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "SECONDS", 0.05)
    async with receiving(answer=None) as receiver:
        outcome = await send(CallbackSender(development=True), f"http://127.0.0.1:{receiver.port}/")
        assert outcome.kind == "retry"
        assert len(receiver.requests) <= 1

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    outcome = await send(CallbackSender(resolve=never), f"https://{NAME}/")
    assert outcome == Outcome("retry", "no answer within 0.05 seconds")


async def test_a_name_that_nobody_knows_is_worth_another_try() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    for resolve in (unknown, Names([])):
        outcome = await send(CallbackSender(resolve=resolve), f"https://{NAME}/?token=secret")
        assert outcome.kind == "retry"
        assert "could not be found" in outcome.detail


async def test_cancelling_is_not_swallowed() -> None:
    async with receiving(answer=None) as receiver:
        sender = CallbackSender(development=True)
        task = asyncio.create_task(send(sender, f"http://127.0.0.1:{receiver.port}/"))
        while not receiver.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# The secret.


def test_each_key_has_a_secret_of_its_own() -> None:
    assert callback_secret(SERVER_SECRET, "key_1") == SECRET
    others = {callback_secret(SERVER_SECRET, "key_2"), callback_secret("t" * 32, "key_1")}
    assert SECRET not in others
    assert len(others) == 2
    assert SERVER_SECRET not in SECRET


def test_a_short_server_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidSecret, match="at least 32 characters") as caught:
        callback_secret("hunter2", "key_1")
    assert "hunter2" not in str(caught.value)
