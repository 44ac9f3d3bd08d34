"""A state machine in which service, network and clocks misbehave: the client ends with the true outcome or a clear
error.

The service is `OtherService`, the network is simulated in this process, and time passes only when a rule says so. The
model knows what the person has decided. No outcome may differ from that decision or come before it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kit.other_service import KEY, Asked, OtherCase, OtherService, Reply
from kit.other_service_network import URL, WEATHERS, Network

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.client import HitlClient, ReviewOutcome
from askfirst.delivery.base import Notice
from askfirst.errors import RequestInDoubt, ReviewContradiction, ReviewError, ReviewRefused, ReviewUnreachable
from askfirst.hitl.testing import FakeClock

LIFETIME = 3600.0
PATIENCE = 2 * LIFETIME
KEPT = "order-7"
SEEN: Counter[str] = Counter()
"""How waits ended, over all runs."""
weathers = st.sampled_from(("fine", *WEATHERS))


class Unsteady(OtherService):
    """A service whose clock may be wrong, which may refuse requests, and which may take back what it said."""

    lifetime = LIFETIME

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(lambda: clock.now() + self.skew)
        self.skew = 0.0
        self.refuses: int | None = None
        self.hints_only = False
        """Whether its events say that a case has ended, and not how."""
        self.denies = False
        """Whether it says only that a case has ended, and from then on that it is pending."""
        self.denied = 0

    def expire_if_due(self) -> None:
        """Expire the cases whose deadline has passed by the service's clock."""
        for case in self.cases.values():
            if self.now() >= case.expires:
                self.expire(case)

    async def poll(self, case: OtherCase, asked: Asked) -> Reply:
        if self.refuses is not None:
            return Reply.of({"error": "no", "message": "no"}, self.refuses)
        if self.denies:
            self.denied += 1
            status = case.status if self.denied == 1 else "pending"  # the true status once, then pending
            return Reply.of({"status": status, "case_id": case.case_id})
        return await super().poll(case, asked)

    def event(self, number: int, name: str, data: Any) -> bytes:
        return super().event(number, name, {"case_id": data["case_id"]} if self.hints_only else data)


class ClientMachine(RuleBasedStateMachine):
    """A wait through every fault that it can meet, and a model that knows the truth."""

    trouble = "none"
    """What may happen after which nothing good can come."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self.clock = FakeClock()
        self.told: list[Notice] = []
        self.told_at_end: int | None = None
        self.may_raise: set[type[ReviewError]] = set()
        self.waiting: asyncio.Task[Any] | None = None
        self.key: str | None = None
        self._runner.run(self._open())

    async def _open(self) -> None:
        self.service = Unsteady(self.clock)
        self.network = Network(self.service, self.clock)
        self.store = await MemoryCheckpointer(clock=self.clock).__aenter__()
        await self._start_client()

    async def _start_client(self) -> None:
        http = httpx2.AsyncClient(transport=self.network, headers={"Authorization": f"Bearer {KEY}"})
        self.http = http
        self.client = await HitlClient(
            http, deliver=self._tell, store=self.store, clock=self.clock
        ).__aenter__()

    async def _tell(self, notice: Notice) -> None:
        self.told.append(notice)

    @initialize(
        kept=st.booleans(),
        follows=st.booleans(),
        skew=st.sampled_from([0.0, 0.0, -7200.0, 7200.0]),
        reminders=st.lists(st.sampled_from([-60, 100, 300, 300, 900]), max_size=4),
    )
    def ask(self, kept: bool, follows: bool, skew: float, reminders: list[int]) -> None:
        self.key = KEPT if kept else None
        self.service.follows = follows
        self.service.skew = skew
        self.begin = now = self.clock.now()
        self.reminders = {each for each in reminders if each > 0}
        if reminders:
            self.service.fields = {"reminder_at": [self.service.stamp(now + each) for each in reminders]}
        self._runner.run(self._ask())
        self.case = self.service.nth(0)

    async def _ask(self) -> None:
        self.waiting = asyncio.create_task(
            self.client.request("POST", f"{URL}/orders", json={"order": 7}, key=self.key)
        )
        await self.service.until(lambda: bool(self.service.cases))
        await self._settle()

    # People.

    @property
    def open(self) -> bool:
        return not self.case.is_over

    @precondition(lambda self: self.case.status == "pending")
    @rule()
    def open_the_page(self) -> None:
        self._do(lambda: self.service.open_page(self.case))

    @precondition(lambda self: self.open)
    @rule(fields=st.integers(0, 5))
    def work_on_it(self, fields: int) -> None:
        self._do(lambda: self.service.work_on(self.case, completed_fields=fields, total_fields=5))

    @precondition(lambda self: self.open and self.clock.now() > self.begin + 100 and self.trouble != "denial")
    @rule(action=st.sampled_from(["approve", "reject", "cancel"]), note=st.text("ab", max_size=3))
    def decide(self, action: str, note: str) -> None:
        if action == "cancel":
            self._do(lambda: self.service.cancel(self.case, "sold out"))
        else:
            self._do(lambda: self.service.decide(self.case, action, {"feedback": note}))

    @precondition(lambda self: self.open)
    @rule()
    def remind(self) -> None:
        self._do(lambda: self.service.remind(self.case))

    # Faults.

    @rule(polls=weathers, streams=weathers, seconds=st.sampled_from([0.0, 31.0, 200.0, 400.0]))
    def weather(self, polls: Any, streams: Any, seconds: float) -> None:
        """Set the network's faults for some minutes; requests that were lost stay lost."""
        self.network.polls, self.network.streams = polls, streams
        self.let_time_pass(seconds)

    @rule()
    def cut_the_streams(self) -> None:
        self._do(self.network.cut_streams)

    @rule(down=st.booleans())
    def restart_the_service(self, down: bool) -> None:
        self.network.down = down
        self._do(self.network.cut_streams)

    @rule(skew=st.sampled_from([-7200.0, -60.0, 0.0, 60.0, 7200.0]))
    def turn_its_clock(self, skew: float) -> None:
        self.service.skew = skew
        self._do(self.service.expire_if_due)

    @rule(on=st.booleans())
    def say_less_in_events(self, on: bool) -> None:
        self.service.hints_only = on

    @precondition(lambda self: self.trouble == "denial" and not self.open)
    @rule()
    def deny_everything(self) -> None:
        self.service.denies = True
        self.may_raise.add(ReviewContradiction)

    @precondition(lambda self: self.trouble == "denial" and self.open)
    @rule()
    def take_it_back(self) -> None:
        """The case is decided. The service says so without the result, and then says that the case is pending."""
        self.network.down = False
        self.weather("fine", "fine", 31.0)
        self.service.hints_only = True
        self.deny_everything()
        self.decide("approve", "")
        self.let_time_pass(400.0)

    @precondition(lambda self: self.trouble == "refusal")
    @rule(status=st.sampled_from([401, 403, 404, 410]))
    def refuse(self, status: int) -> None:
        self.service.refuses = status
        self.may_raise.add(ReviewRefused)

    @precondition(lambda self: self.trouble == "dark")
    @rule(cured=st.booleans())
    def go_dark(self, cured: bool) -> None:
        """Nothing gets through until long after the case's deadline."""
        self.network.down = True
        self.network.cut_streams()
        self.let_time_pass(LIFETIME + 1500)
        self.network.down = not cured

    @rule()
    def another_process_goes_on(self) -> None:
        if self.key is not None and not self.over:
            self._runner.run(self._move())

    async def _move(self) -> None:
        assert self.waiting is not None
        self.waiting.cancel()
        await asyncio.wait([self.waiting])
        self.may_raise.add(RequestInDoubt)  # if the wait ended before the case was stored
        await self._stop_client()
        await self._start_client()
        await self._ask()

    # Time.

    @rule(seconds=st.sampled_from([1.0, 31.0, 400.0, 400.0, LIFETIME]))
    def let_time_pass(self, seconds: float) -> None:
        self._runner.run(self._pass(seconds))

    # Invariants.

    @property
    def over(self) -> bool:
        return self.waiting is not None and self.waiting.done()

    @invariant()
    def it_ends_with_the_truth_or_a_clear_error(self) -> None:
        if self.over and self.told_at_end is None:
            self._do(lambda: None)
            self._check_end()
        if self.told_at_end is not None:
            assert len(self.told) == self.told_at_end, "the person was told something after the end"

    def _check_end(self) -> None:
        assert self.waiting is not None
        self.told_at_end = len(self.told)
        error = self.waiting.exception()
        SEEN[self.case.status if error is None else type(error).__name__] += 1
        if isinstance(error, ReviewUnreachable):
            assert self.clock.now() > self.case.expires - abs(self.service.skew), "it gave up too early"
        elif error is not None:
            assert type(error) in self.may_raise, error
        else:
            self._check_outcome(self.waiting.result())
        reminders = [notice for notice in self.told if notice.kind == "reminder"]
        own = sum(name == "review.reminder" for name, _ in self.case.events)
        assert len(reminders) <= len(self.reminders) + own, "a reminder was sent twice"
        SEEN["reminders"] += len(reminders)
        assert [notice.kind for notice in self.told].count("review") <= 1, "the link was sent twice"

    def _check_outcome(self, outcome: Any) -> None:
        assert isinstance(outcome, ReviewOutcome)
        assert self.case.is_over, f"nobody has decided, and the outcome is {outcome}"
        assert (outcome.status, outcome.case_id) == (self.case.status, self.case.case_id)
        if outcome.status == "completed":
            assert {"action": outcome.action, "data": outcome.data} == self.case.facts["result"]
        assert outcome.reason == self.case.facts.get("reason")
        assert sum(asked.path == "/orders" for asked in self.service.requests) == 1, "it ordered twice"

    # Helpers.

    def _do(self, what: Callable[[], object]) -> None:
        async def doing() -> None:
            what()
            await self._settle()

        self._runner.run(doing())

    async def _settle(self) -> None:
        for _ in range(5):
            await self.clock.advance(0)
            await asyncio.sleep(0.0005 if self.key else 0)  # a store works in a separate thread

    async def _pass(self, seconds: float) -> None:
        await self._settle()
        while seconds > 0:  # in steps, because an answer takes a moment to arrive
            step = min(seconds, 60.0)
            await self.clock.advance(step)
            self.service.expire_if_due()
            seconds -= step
        await self._settle()

    async def _stop_client(self) -> None:
        await self.client.__aexit__(None, None, None)
        await self.http.aclose()

    def teardown(self) -> None:
        try:
            if self.waiting is not None:
                self._runner.run(self._finish())
        finally:
            self._runner.close()

    async def _finish(self) -> None:
        """End all faults, let the person decide, and bring the wait to its end."""
        self.network.polls = self.network.streams = "fine"
        self.network.down = self.service.denies = False
        self.service.refuses = None
        if not self.over:
            await self._pass(400)
            if self.open:
                self.service.decide(self.case, "approve", {})
            for _ in range(100):
                await self._pass(60)
                if self.over:
                    break
            assert self.over, "the service says how it ended, and the client still waits"
        if self.told_at_end is None:
            await self._settle()
            self._check_end()
        await self._pass(PATIENCE)
        assert len(self.told) == self.told_at_end, "the person was told something after the end"
        await self._stop_client()
        await self.store.__aexit__(None, None, None)


RUNS = settings(
    max_examples=30,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # shrinking a failure takes longer than reading it
    suppress_health_check=list(HealthCheck),
)
ENDS = {
    "none": ["completed", "expired", "reminders"],
    "dark": [ReviewUnreachable.__name__],
    "denial": [ReviewContradiction.__name__],
    "refusal": [ReviewRefused.__name__],
}
"""The troubles, and what must have happened at least once."""


@pytest.mark.parametrize("trouble", ENDS)
def test_the_client_ends_with_the_truth_or_a_clear_error(trouble: str) -> None:
    SEEN.clear()
    run_state_machine_as_test(type("Machine", (ClientMachine,), {"trouble": trouble}), settings=RUNS)
    assert [end for end in ENDS[trouble] if not SEEN[end]] == [], SEEN
