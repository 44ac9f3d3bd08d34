"""Several deliveries at once: each on its own, none in the way of another."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest

from askfirst.delivery import Ended, Notice, Press, PressAnswer, PressDelivery, Sent, Several
from askfirst.errors import DeliveryError

pytestmark = pytest.mark.anyio

LINK = "https://a.example/review/r1?token=very-secret"
NOTICE = Notice("review", "r1", "Please decide.", LINK)
ENDED = Ended("r1", "completed", "Approved by Ada.", "approve", "Ada")


class TurnedClock:
    """A clock on which whoever sleeps, sleeps until the test turns it."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, woken))
        await woken

    async def turn(self, seconds: float) -> None:
        await settle()
        self.time += seconds
        for at, woken in self._sleepers:
            if at <= self.time and not woken.done():
                woken.set_result(None)
        await settle()


class Impatient(TurnedClock):
    """A clock on which every wait is over at once; it keeps them."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Platform:
    """A way of sending that does what the test says: takes a notice, fails first, or keeps one waiting."""

    shows_buttons = False

    def __init__(self, name: str, *errors: Exception, place: Mapping[str, str | int] | None = None) -> None:
        self.name = name
        self.errors = list(errors)
        self.place = place or {}
        self.taken: list[Notice] = []
        self.updated: list[tuple[Sent, Ended]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, notice: Notice) -> Sent:
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.taken.append(notice)
        return Sent(self.name, notice.case_id, self.place)

    async def update(self, sent: Sent, ended: Ended) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.updated.append((sent, ended))


class Buttons(Platform):
    """One with buttons; ``press`` is a person pressing one."""

    shows_buttons = True
    on_press: object = None

    @asynccontextmanager
    async def listening(self, on_press: object) -> AsyncGenerator[None]:
        if self.errors:
            raise self.errors.pop(0)
        self.on_press = on_press
        yield
        self.on_press = None

    async def press(self, action: str) -> PressAnswer:
        assert callable(self.on_press)
        return await self.on_press(Press("r1", action, "x-test", "x-test", "7"))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def fails(name: str = "slow", **options: object) -> DeliveryError:
    return DeliveryError(name, "it did not work", **options)  # type: ignore[arg-type]


async def test_all_get_the_notice_and_all_hear_of_the_end() -> None:
    one, two = Platform("telegram", place={"chat_id": 7, "message": "12"}), Platform("terminal")
    several = Several([one, two])
    sent = await several.send(NOTICE)
    assert one.taken == two.taken == [NOTICE]
    again = Sent(
        **json.loads(json.dumps({"delivery": sent.delivery, "case_id": "r1", "place": dict(sent.place)}))
    )
    assert again == sent
    await several.update(again, ENDED)
    assert one.updated == [(Sent("telegram", "r1", {"chat_id": 7, "message": "12"}), ENDED)]
    assert two.updated == [(Sent("terminal", "r1"), ENDED)]


async def test_the_same_kind_twice_is_kept_apart() -> None:
    one, two = Platform("telegram", place={"chat_id": 1}), Platform("telegram", place={"chat_id": 2})
    several = Several([one, two])
    await several.update(await several.send(NOTICE), ENDED)
    assert [sent.place for sent, _ in one.updated + two.updated] == [{"chat_id": 1}, {"chat_id": 2}]


async def test_another_process_with_other_deliveries_updates_what_it_has() -> None:
    sent = await Several([Platform("telegram"), Platform("email")]).send(NOTICE)
    mail = Platform("email")
    await Several([mail]).update(sent, ENDED)  # in another place now, so it is not sure to be the same
    assert mail.updated == []
    await Several([Platform("qr"), mail]).update(sent, ENDED)
    assert len(mail.updated) == 1


async def test_one_that_fails_is_tried_again_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    clock = Impatient()
    flaky = Platform("telegram", fails(), fails(), fails())
    await Several([flaky], clock=clock).send(NOTICE)
    assert flaky.taken == [NOTICE]
    assert len(clock.slept) == 3
    for number, pause in enumerate(clock.slept, 1):
        assert 2**number / 2 <= pause <= 2**number
    assert caplog.messages == []


async def test_pauses_that_the_platform_asks_for_are_kept() -> None:
    clock = Impatient()
    await Several([Platform("telegram", fails(retry_after=42.0))], clock=clock).send(NOTICE)
    assert clock.slept == [42.0]


async def test_it_is_given_up_in_the_end_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = Platform("terminal"), Platform("telegram", *(fails("telegram") for _ in range(9)))
    with caplog.at_level(logging.WARNING, "askfirst.delivery"):
        sent = await Several([good, bad], tries=4, clock=Impatient()).send(NOTICE)
        await settle()
    assert dict(sent.place) == {"0": "terminal"}
    assert len(bad.errors) == 5
    assert caplog.messages == [
        "the review notice of case r1 was not delivered: telegram: it did not work (attempts: 4)"
    ]


async def test_what_cannot_work_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = Impatient()
    bad = Platform("telegram", fails(permanent=True), fails())
    with pytest.raises(DeliveryError) as failed:
        await Several([bad], clock=clock).send(NOTICE)
    assert (failed.value.permanent, clock.slept, len(caplog.messages)) == (True, [], 1)


async def test_if_none_takes_it_that_is_an_error_which_names_them() -> None:
    errors = [fails("a", retry_after=9.0)], [fails("b", retry_after=4.0)]
    with pytest.raises(DeliveryError, match="several: a: it did not work; b: it did not work") as failed:
        await Several([Platform("a", *errors[0]), Platform("b", *errors[1])], tries=1).send(NOTICE)
    assert (failed.value.retry_after, failed.value.permanent) == (4.0, False)


async def test_a_strangers_error_is_told_by_its_kind_alone(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = Platform("terminal"), Platform("telegram", RuntimeError(f"POST {LINK} failed"))
    await Several([good, bad], tries=1).send(NOTICE)
    assert caplog.messages == [
        "the review notice of case r1 was not delivered: telegram: RuntimeError (attempts: 1)"
    ]
    assert "secret" not in caplog.text


async def test_a_stuck_one_holds_up_nobody_and_its_late_message_is_updated_too() -> None:
    clock = TurnedClock()
    good, stuck = Platform("terminal"), Platform("telegram", place={"chat_id": 7})
    stuck.open.clear()
    several = Several([good, stuck], clock=clock)
    sending = asyncio.create_task(several.send(NOTICE))
    await clock.turn(9.9)
    assert good.taken == [NOTICE]
    assert not sending.done()
    await clock.turn(0.1)
    sent = await sending
    assert dict(sent.place) == {"0": "terminal"}
    stuck.open.set()
    await settle()
    assert stuck.taken == [NOTICE]
    await several.update(sent, ENDED)
    assert stuck.updated == [(Sent("telegram", "r1", {"chat_id": 7}), ENDED)]
    assert len(good.updated) == 1


async def test_after_the_end_nothing_is_sent_any_more(caplog: pytest.LogCaptureFixture) -> None:
    clock = TurnedClock()
    good, slow = Platform("terminal"), Platform("telegram", fails(retry_after=3600.0))
    several = Several([good, slow], clock=clock)
    sending = asyncio.create_task(several.send(NOTICE))
    await clock.turn(10)
    await several.update(await sending, ENDED)
    await clock.turn(7200)
    assert (slow.taken, slow.updated, caplog.messages) == ([], [], [])


async def test_a_message_that_is_being_sent_as_the_case_ends_is_updated() -> None:
    clock = TurnedClock()
    good, stuck = Platform("terminal"), Platform("telegram")
    stuck.open.clear()
    several = Several([good, stuck], clock=clock)
    sending = asyncio.create_task(several.send(NOTICE))
    await clock.turn(10)
    updating = asyncio.create_task(several.update(await sending, ENDED))
    await settle()
    stuck.open.set()
    await updating
    assert (len(stuck.taken), len(stuck.updated)) == (1, 1)


async def test_updates_are_tried_again_and_given_up_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = Platform("terminal"), Platform("telegram")
    several = Several([good, bad], tries=3, clock=Impatient())
    sent = await several.send(NOTICE)
    bad.errors = [fails("telegram"), fails("telegram")]
    await several.update(sent, ENDED)
    assert len(bad.updated) == 1
    bad.errors = [fails("telegram") for _ in range(3)]
    await several.update(sent, ENDED)
    assert caplog.messages == [
        "the end of case r1 was not delivered: telegram: it did not work (attempts: 3)"
    ]
    assert len(good.updated) == 2


async def test_a_cancelled_send_leaves_nothing_behind() -> None:
    stuck = Platform("telegram")
    stuck.open.clear()
    sending = asyncio.create_task(Several([stuck]).send(NOTICE))
    await settle()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await settle()
    stuck.open.set()
    await settle()
    assert stuck.taken == []


async def test_presses_of_all_come_to_one_place_and_the_first_wins(caplog: pytest.LogCaptureFixture) -> None:
    pressed: list[str] = []

    async def on_press(press: Press) -> PressAnswer:
        pressed.append(press.action)
        return PressAnswer("done", "Thank you.") if len(pressed) == 1 else PressAnswer("closed", "Too late.")

    one, two, plain = Buttons("telegram"), Buttons("other"), Platform("terminal")
    deaf = Buttons("deaf", fails("deaf"))
    several = Several([plain, one, deaf, two])
    assert isinstance(several, PressDelivery)
    assert several.shows_buttons
    async with several.listening(on_press):
        sent = await several.send(NOTICE)
        assert (await two.press("approve")).kind == "done"
        assert (await one.press("reject")).kind == "closed"
    await several.update(sent, ENDED)
    assert pressed == ["approve", "reject"]
    assert [len(each.updated) for each in (one, two, plain)] == [1, 1, 1]
    assert one.on_press is None
    assert caplog.messages == ["cannot listen for the buttons of deaf: deaf: it did not work"]


def test_without_buttons_anywhere_there_are_none() -> None:
    assert not Several([Platform("terminal")]).shows_buttons
