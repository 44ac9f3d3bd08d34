"""Channels: every verb, every way a request ends, over every kind of channel."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from kit.channel_rigs import Keeper, Rig, asked, open_rig

from askfirst.agent.context import Asking, safe_point
from askfirst.errors import (
    HitlAborted,
    HitlCancelled,
    HitlConcurrencyError,
    HitlDetached,
    HitlDurabilityNotGuaranteed,
    HitlError,
    HitlInvalidAnswer,
    HitlStaleAnswer,
    HitlTimedOut,
    InvalidAgent,
)
from askfirst.hitl import (
    ApproveAnswer,
    CheckpointedChannel,
    EscalateAnswer,
    HitlChannel,
    HitlRequest,
    InMemoryChannel,
    Option,
    Question,
)
from askfirst.messages import call_digest

pytestmark = pytest.mark.anyio

COLOUR = Question(
    key="colour", prompt="Which?", options=[Option(label="R", value="red"), Option(label="B", value="blue")]
)
VERBS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "confirm": lambda channel, **how: channel.confirm("Deploy?", details={"env": "prod"}, **how),
    "approve": lambda channel, **how: channel.approve("bash", "tc1", {"cmd": "ls"}, **how),
    "ask": lambda channel, **how: channel.ask([COLOUR], **how),
    "escalate": lambda channel, **how: channel.escalate("It broke.", details={"n": 1}, **how),
}
ANSWERS: dict[str, list[tuple[Any, Any]]] = {  # as given, and as it reaches the asker
    "confirm": [(True, True), (False, False)],
    "approve": [
        (ApproveAnswer(decision="approve"), ApproveAnswer(decision="approve")),
        ({"decision": "approve"}, ApproveAnswer(decision="approve")),
        ({"decision": "deny", "reason": "no"}, ApproveAnswer(decision="deny", reason="no")),
        (
            {"decision": "edit", "edited_args": {"cmd": "pwd"}},
            ApproveAnswer(decision="edit", edited_args={"cmd": "pwd"}),
        ),
    ],
    "ask": [({"colour": "red"}, {"colour": "red"})],
    "escalate": [
        ("skip", EscalateAnswer(action="skip")),
        (EscalateAnswer(action="abort", reason="enough"), EscalateAnswer(action="abort", reason="enough")),
        (
            {"action": "retry", "modified_params": {"n": 2}},
            EscalateAnswer(action="retry", modified_params={"n": 2}),
        ),
    ],
}
BAD: dict[str, Any] = {
    "confirm": "yes",
    "approve": {"decision": "edit"},
    "ask": {"colour": "green"},
    "escalate": "explode",
}
verbs = pytest.mark.parametrize("verb", VERBS)


async def begin(rig: Rig, channel: HitlChannel, verb: str, **how: Any) -> tuple[Any, HitlRequest]:
    """Ask, and return the task that waits and the request."""
    task = rig.start(VERBS[verb](channel, **how))
    return task, await asked(channel)


# The verbs and their answers.


@pytest.mark.parametrize(
    ("verb", "given", "reaches"), [(verb, *pair) for verb, pairs in ANSWERS.items() for pair in pairs]
)
async def test_an_answer_reaches_the_asker_as_its_model(
    rig: Rig, verb: str, given: Any, reaches: Any
) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, verb)
    assert channel.pending == request
    await channel.answer(request.question_id, given)
    assert await task == reaches
    assert channel.pending is None
    assert await channel.open_request() is None


async def test_what_the_envelope_says(rig: Rig) -> None:
    channel = rig.channel(default_timeout=30.0)
    requests: dict[str, HitlRequest] = {}
    for verb in VERBS:
        task, requests[verb] = await begin(rig, channel, verb)
        await channel.answer(requests[verb].question_id, ANSWERS[verb][0][0])
        await task
    assert requests["confirm"].payload.model_dump() == {
        "kind": "confirm",
        "prompt": "Deploy?",
        "details": {"env": "prod"},
    }
    assert requests["approve"].payload.model_dump() == {
        "kind": "approve",
        "tool_name": "bash",
        "tool_call_id": "tc1",
        "args": {"cmd": "ls"},
        "details": None,
        "digest": call_digest("bash", {"cmd": "ls"}),
    }
    assert requests["approve"].question_id == "tc1"
    assert requests["ask"].payload.model_dump()["questions"] == [COLOUR.model_dump()]
    assert requests["escalate"].payload.model_dump() == {
        "kind": "escalate",
        "prompt": "It broke.",
        "choices": ["retry", "skip", "abort"],
        "details": {"n": 1},
    }
    assert len({request.question_id for request in requests.values()}) == len(VERBS)
    for request in requests.values():
        assert request.created_at == rig.clock.now()
        assert request.timeout_seconds == 30.0
        assert request.thread_id == (None if rig.kind == "in_memory" else "t")


async def test_an_answer_says_who_gave_it_and_where(rig: Rig) -> None:
    channel = rig.channel()
    for verb, answer in (("approve", {"decision": "approve"}), ("escalate", {"action": "skip"})):
        task, request = await begin(rig, channel, verb)
        lie = {**answer, "answered_by": "the queen", "via": "the palace"}
        await channel.answer(request.question_id, lie, by="ada", via="cli")
        said = await task
        assert (said.answered_by, said.via) == ("ada", "cli")


async def test_what_an_answer_claims_of_its_giver_is_not_believed(rig: Rig) -> None:
    channel = rig.channel()
    for verb, answer in (("approve", {"decision": "approve"}), ("escalate", {"action": "skip"})):
        task, request = await begin(rig, channel, verb)
        await channel.answer(request.question_id, {**answer, "answered_by": "the queen", "via": "palace"})
        said = await task
        assert (said.answered_by, said.via) == (None, None)


@verbs
async def test_a_bad_answer_is_refused_and_the_request_stays_answerable(rig: Rig, verb: str) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, verb)
    with pytest.raises(HitlInvalidAnswer) as refused:
        await channel.answer(request.question_id, BAD[verb])
    assert refused.value.question_id == request.question_id
    assert refused.value.faults
    assert not task.done()
    assert channel.pending == request
    assert await channel.open_request() == request
    given, reaches = ANSWERS[verb][0]
    await channel.answer(request.question_id, given)
    assert await task == reaches


# Time-outs.


@pytest.mark.parametrize(
    ("default", "how", "seconds"),
    [
        (None, {}, None),
        (180.0, {}, 180.0),
        (180.0, {"timeout": 10.0}, 10.0),
        (None, {"timeout": 10.0}, 10.0),
        (180.0, {"timeout": None}, None),
    ],
)
@verbs
async def test_whose_time_out_holds(
    rig: Rig, verb: str, default: float | None, how: dict[str, Any], seconds: float | None
) -> None:
    channel = rig.channel(default_timeout=default)
    task, request = await begin(rig, channel, verb, **how)
    assert request.timeout_seconds == seconds
    if seconds is None:
        await rig.clock.advance(10_000_000)
        assert not task.done()
        await channel.answer(request.question_id, ANSWERS[verb][0][0])
        await task
        return
    assert request.expires_at == rig.clock.now() + seconds
    await rig.clock.advance(seconds - 1)
    assert not task.done()
    await rig.clock.advance(1)
    with pytest.raises(HitlTimedOut) as late:
        await task
    assert late.value.seconds == seconds
    assert channel.pending is None
    assert await channel.open_request() is None


async def test_an_answer_after_the_deadline_is_refused(rig: Rig) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, "confirm", timeout=5.0)
    task.cancel()
    await asyncio.wait([task])
    await rig.clock.advance(5)
    with pytest.raises(HitlStaleAnswer) as refused:
        await channel.answer(request.question_id, True)
    assert refused.value.status == "timed_out"
    with pytest.raises(HitlStaleAnswer):
        await channel.cancel(request.question_id)


async def test_an_answer_in_time_wins_over_the_deadline(rig: Rig) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, "confirm", timeout=5.0)
    await rig.clock.advance(4.999)
    await channel.answer(request.question_id, False)
    await rig.clock.advance(1)
    assert await task is False


# Cancels, signals, interruptions.


@verbs
async def test_a_cancel_reaches_the_asker_with_its_reason(rig: Rig, verb: str) -> None:
    channel = rig.channel()
    for reason, said in (("not today", "not today"), (None, "cancelled")):
        task, request = await begin(rig, channel, verb)
        if reason is None:
            await channel.cancel(request.question_id)
        else:
            await channel.cancel(request.question_id, reason)
        with pytest.raises(HitlCancelled) as cancelled:
            await task
        assert cancelled.value.reason == said
        assert channel.pending is None
        assert await channel.open_request() is None
        with pytest.raises(HitlStaleAnswer):
            await channel.answer(request.question_id, ANSWERS[verb][0][0])
        if verb == "approve":
            return  # the same call is settled for good


@verbs
async def test_a_signal_aborts_the_wait(rig: Rig, verb: str) -> None:
    channel, signal = rig.channel(), asyncio.Event()
    task, request = await begin(rig, channel, verb, signal=signal)
    signal.set()
    with pytest.raises(HitlAborted):
        await task
    assert channel.pending is None
    assert await channel.open_request() is None
    with pytest.raises(HitlStaleAnswer):
        await channel.answer(request.question_id, ANSWERS[verb][0][0])


async def test_a_signal_that_is_set_already_aborts_at_once(rig: Rig) -> None:
    signal = asyncio.Event()
    signal.set()
    with pytest.raises(HitlAborted):
        await rig.channel().confirm("?", signal=signal)


async def test_a_signal_that_comes_after_the_answer_changes_nothing(stored_rig: Rig) -> None:
    """The answer is in the store, and the waiting channel has not heard of it yet."""
    channel, signal = stored_rig.channel(), asyncio.Event()
    task, request = await begin(stored_rig, channel, "confirm", signal=signal)
    await stored_rig.checkpointer.settle("t", request.question_id, True)
    signal.set()
    assert await task is True


async def test_an_interruption_ends_the_wait_and_not_the_request(rig: Rig) -> None:
    channel = rig.channel()
    assert channel.interrupt(HitlDetached()) is None
    task, request = await begin(rig, channel, "approve")
    assert channel.interrupt(HitlDetached()) == request
    assert channel.interrupt(HitlDetached()) is None
    with pytest.raises(HitlDetached):
        await task
    assert channel.pending is None
    assert await channel.open_request() == request


async def test_an_interruption_while_the_request_is_being_written(rig: Rig) -> None:
    """Whoever aborts in that moment must not wait for the person after all."""
    channel = rig.channel()
    task = rig.start(VERBS["approve"](channel))
    await asyncio.sleep(0)
    interrupted = channel.interrupt(HitlAborted("now"))
    assert interrupted is not None
    assert interrupted.question_id == "tc1"
    with pytest.raises(HitlAborted):
        await task
    assert channel.pending is None


@verbs
async def test_cancelling_the_task_that_waits_leaves_the_request_answerable(rig: Rig, verb: str) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, verb)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert channel.pending is None
    assert await channel.open_request() == request
    await channel.answer(request.question_id, ANSWERS[verb][0][0])
    assert await channel.open_request() is None
    with pytest.raises(HitlStaleAnswer):
        await channel.answer(request.question_id, ANSWERS[verb][0][0])


async def test_who_asks_the_same_again_finds_the_answer(rig: Rig) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, "approve")
    task.cancel()
    await asyncio.wait([task])
    await channel.answer(request.question_id, {"decision": "approve"}, by="ada")
    answer = await VERBS["approve"](channel)
    assert answer == ApproveAnswer(decision="approve", answered_by="ada")
    assert await channel.open_request() is None, "asking again must not open it again"


async def test_who_asks_the_same_again_waits_for_the_same_request(rig: Rig) -> None:
    channel = rig.channel()
    task, first = await begin(rig, channel, "approve", timeout=60.0)
    task.cancel()
    await asyncio.wait([task])
    await rig.clock.advance(50)
    task, second = await begin(rig, channel, "approve", timeout=60.0)
    assert second == first, "with the deadline it had"
    await rig.clock.advance(10)
    with pytest.raises(HitlTimedOut):
        await task


async def test_an_answer_counts_for_the_arguments_it_was_given_for(rig: Rig) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, "approve")
    task.cancel()
    await asyncio.wait([task])
    await channel.answer(request.question_id, {"decision": "approve"})
    task = rig.start(channel.approve("bash", "tc1", {"cmd": "rm -rf /"}))
    again = await asked(channel)
    assert again.question_id == "tc1"
    assert not task.done()
    with pytest.raises(HitlStaleAnswer) as refused:  # it may be for what was asked first
        await channel.answer("tc1", {"decision": "approve"})
    assert refused.value.is_unnamed
    with pytest.raises(HitlStaleAnswer):
        await channel.answer("tc1", {"decision": "approve"}, digest=request.digest)
    await channel.answer("tc1", {"decision": "deny"}, digest=again.digest)
    assert (await task).decision == "deny"


# One at a time, and settled once.


@verbs
async def test_a_channel_asks_one_thing_at_a_time(rig: Rig, verb: str) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, "confirm")
    with pytest.raises(HitlConcurrencyError) as refused:
        await VERBS[verb](channel)
    assert refused.value.question_id == request.question_id
    assert not task.done()
    await channel.answer(request.question_id, True)
    assert await task is True
    task, request = await begin(rig, channel, verb)
    await channel.answer(request.question_id, ANSWERS[verb][0][0])
    await task


async def test_answers_to_another_request_are_stale(rig: Rig) -> None:
    channel = rig.channel()
    for settle in (channel.answer("nobody", True), channel.cancel("nobody")):
        with pytest.raises(HitlStaleAnswer) as refused:
            await settle
        assert refused.value.question_id == "nobody"
    task, request = await begin(rig, channel, "confirm")
    for settle in (channel.answer("another", True), channel.cancel("another")):
        with pytest.raises(HitlStaleAnswer):
            await settle
    assert channel.pending == request
    await channel.answer(request.question_id, True)
    await task


async def test_the_first_valid_answer_wins(rig: Rig) -> None:
    channel = rig.channel()
    task, request = await begin(rig, channel, "confirm")
    given = [
        channel.answer(request.question_id, "maybe"),
        channel.answer(request.question_id, True),
        channel.answer(request.question_id, False),
        channel.cancel(request.question_id),
        channel.answer(request.question_id, False),
    ]
    told = await asyncio.gather(*given, return_exceptions=True)
    assert [type(each) for each in told] == [
        HitlInvalidAnswer,
        type(None),
        HitlStaleAnswer,
        HitlStaleAnswer,
        HitlStaleAnswer,
    ]
    assert await task is True
    with pytest.raises(HitlStaleAnswer):
        await channel.answer(request.question_id, False)


# Subscribers.


async def test_a_subscriber_hears_of_the_current_request_first_and_then_of_each(rig: Rig) -> None:
    channel = rig.channel()
    early = channel.subscribe()
    task, first = await begin(rig, channel, "confirm")
    late = channel.subscribe()
    await channel.answer(first.question_id, True)
    await task
    after = channel.subscribe()
    task, second = await begin(rig, channel, "ask")
    await channel.answer(second.question_id, {"colour": "red"})
    await task
    assert [await anext(early), await anext(early)] == [first, second]
    assert [await anext(late), await anext(late)] == [first, second]
    assert await anext(after) == second


async def test_a_subscription_is_an_async_iterator_that_can_be_dropped(rig: Rig) -> None:
    channel = rig.channel()
    seen: list[str] = []

    async def host() -> None:
        async for request in channel.subscribe():
            seen.append(request.question_id)
            await channel.answer(request.question_id, True)

    hosting = rig.start(host())
    assert await channel.confirm("one")
    hosting.cancel()
    await asyncio.wait([hosting])
    del hosting
    gc.collect()
    task, request = await begin(rig, channel, "confirm")
    assert len(seen) == 1
    assert request.question_id not in seen
    await channel.answer(request.question_id, True)
    await task


# From elsewhere.


async def test_an_answer_from_a_second_channel_wakes_the_first(stored_rig: Rig) -> None:
    channel, elsewhere = stored_rig.channel(), stored_rig.channel()
    task, request = await begin(stored_rig, channel, "confirm")
    assert elsewhere.pending is None
    assert await elsewhere.open_request() == request
    await elsewhere.answer(request.question_id, False)
    assert await task is False
    for each in (channel, elsewhere):
        with pytest.raises(HitlStaleAnswer) as refused:
            await each.answer(request.question_id, True)
        assert refused.value.status == "answered"


async def test_a_cancel_from_a_second_channel_wakes_the_first(stored_rig: Rig) -> None:
    channel = stored_rig.channel()
    task, request = await begin(stored_rig, channel, "ask")
    await stored_rig.channel().cancel(request.question_id, "later")
    with pytest.raises(HitlCancelled, match="later"):
        await task


async def test_settling_in_the_store_wakes_the_channel(stored_rig: Rig) -> None:
    channel, checkpointer = stored_rig.channel(), stored_rig.checkpointer
    task, request = await begin(stored_rig, channel, "approve")
    with pytest.raises(HitlInvalidAnswer):
        await checkpointer.settle("t", request.question_id, {"decision": "edit"})
    await checkpointer.settle("t", request.question_id, {"decision": "approve"}, by="ada", via="web")
    assert await task == ApproveAnswer(decision="approve", answered_by="ada", via="web")


async def test_expiring_in_the_store_wakes_the_channel(stored_rig: Rig) -> None:
    task, request = await begin(stored_rig, stored_rig.channel(), "confirm", timeout=5.0)
    task.cancel()
    await asyncio.wait([task])
    await stored_rig.clock.advance(6)
    assert [each.question_id for each in await stored_rig.checkpointer.expire_due()] == [request.question_id]
    stored = await stored_rig.checkpointer.request("t", request.question_id)
    assert stored.status == "timed_out"


async def test_another_process_goes_on_with_an_approve(stored_rig: Rig) -> None:
    task, request = await begin(stored_rig, stored_rig.channel(), "approve")
    task.cancel()
    await asyncio.wait([task])
    second = stored_rig.channel()
    waiting, same = await begin(stored_rig, second, "approve")
    assert same == request
    await second.answer("tc1", {"decision": "approve"})
    assert (await waiting).decision == "approve"


# A checkpointer of one's own.


@pytest.fixture
async def own_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig("own", tmp_path) as rig:
        yield rig


async def test_ones_own_checkpointer_keeps_what_is_pending_and_nothing_else(own_rig: Rig) -> None:
    channel, keeper = own_rig.channel(), own_rig.checkpointer
    for end in (
        lambda: channel.answer("tc1", {"decision": "approve"}),
        lambda: channel.cancel("tc1"),
        lambda: own_rig.clock.advance(60),
    ):
        task, request = await begin(own_rig, channel, "approve", timeout=60.0)
        assert await keeper.load_pending_request("t") == request
        await end()
        await asyncio.wait([task])
        assert not isinstance(task.exception(), Exception)
        assert keeper.kept == {}


async def test_another_process_answers_through_ones_own_checkpointer(own_rig: Rig) -> None:
    task, request = await begin(own_rig, own_rig.channel(), "approve")
    task.cancel()
    await asyncio.wait([task])
    second = own_rig.channel()
    assert await second.open_request() == request
    await second.answer("tc1", {"decision": "approve"}, by="ada")
    assert own_rig.checkpointer.kept == {}
    assert (await VERBS["approve"](second)).answered_by == "ada"
    assert own_rig.checkpointer.kept == {}, "an answered request must not come back"


async def test_what_ones_own_checkpointer_keeps_does_not_give_way_to_another_question(own_rig: Rig) -> None:
    task, request = await begin(own_rig, own_rig.channel(), "approve", timeout=60.0)
    task.cancel()
    await asyncio.wait([task])
    second = own_rig.channel()
    with pytest.raises(HitlConcurrencyError) as busy:
        await second.confirm("Sure?")
    assert busy.value.question_id == "tc1"
    assert await own_rig.checkpointer.load_pending_request("t") == request
    await own_rig.clock.advance(60)
    _, later = await begin(own_rig, second, "confirm")
    assert await own_rig.checkpointer.load_pending_request("t") == later


async def test_an_answer_that_could_not_be_written_may_be_given_again(own_rig: Rig) -> None:
    channel, keeper = own_rig.channel(), own_rig.checkpointer
    task, request = await begin(own_rig, channel, "confirm")
    keeper.broken = True
    with pytest.raises(OSError, match="disk"):
        await channel.answer(request.question_id, True)
    assert not task.done()
    keeper.broken = False
    await channel.answer(request.question_id, False)
    assert await task is False


async def test_what_another_process_settled_is_stale_here(own_rig: Rig) -> None:
    channel = own_rig.channel()
    _, request = await begin(own_rig, channel, "confirm")
    await own_rig.channel().answer(request.question_id, True)
    with pytest.raises(HitlStaleAnswer):
        await channel.answer(request.question_id, False)


# Made wrongly, or used where nothing can be promised.


@pytest.mark.parametrize("missing", ["save_pending_request", "load_pending_request"])
def test_a_checkpointer_that_cannot_keep_requests_is_refused(missing: str) -> None:
    class Half:
        async def save_pending_request(self, thread_id: str, request: Any) -> None: ...
        async def load_pending_request(self, thread_id: str) -> None: ...

    delattr(Half, missing)
    with pytest.raises(HitlError, match=missing):
        CheckpointedChannel(checkpointer=Half(), thread_id="t")
    with pytest.raises(HitlError):
        CheckpointedChannel(checkpointer=None, thread_id="t")


def test_what_a_channel_belongs_to() -> None:
    keeper = Keeper()
    channel = CheckpointedChannel(checkpointer=keeper, thread_id="t")
    assert channel.thread_id == "t"
    assert channel.checkpointer is None, "it settles nothing itself"
    assert InMemoryChannel().thread_id is None

    class Host:
        thread_id = "another"

    with pytest.raises(InvalidAgent, match="another"):
        channel.bind(Host())


@verbs
async def test_a_tools_body_may_not_ask_durably_without_the_flag(rig: Rig, verb: str) -> None:
    channel = rig.channel()
    if rig.kind == "in_memory":
        with Asking("tool", "c1", "mine"):
            task, request = await begin(rig, channel, verb)
        await channel.answer(request.question_id, ANSWERS[verb][0][0])
        await task
        return
    with Asking("tool", "c1", "mine"), pytest.raises(HitlDurabilityNotGuaranteed) as refused:
        await VERBS[verb](channel)
    assert refused.value.tool_name == "mine"
    assert channel.pending is None
    assert await channel.open_request() is None


@verbs
async def test_with_the_flag_or_at_a_safe_point_it_may(rig: Rig, verb: str) -> None:
    allowed, strict = rig.channel(allow_inside_custom_tool=True), rig.channel()
    with Asking("tool", "c1", "mine"):
        task, request = await begin(rig, allowed, verb)
        await allowed.answer(request.question_id, ANSWERS[verb][0][0])
        await task
    with Asking("tool", "c2", "mine"), safe_point():
        task = rig.start(channel_verb(strict, verb, "c2"))
        request = await asked(strict)
        await strict.answer(request.question_id, ANSWERS[verb][0][0])
        await task
    with Asking("gate", "c3", "mine"):
        task = rig.start(channel_verb(strict, verb, "c3"))
        request = await asked(strict)
        await strict.answer(request.question_id, ANSWERS[verb][0][0])
        await task


def channel_verb(channel: HitlChannel, verb: str, call_id: str) -> Coroutine[Any, Any, Any]:
    """A verb about another call than ``tc1``."""
    if verb == "approve":
        return channel.approve("bash", call_id, {"cmd": "ls"})
    return VERBS[verb](channel)


async def test_a_question_gets_the_same_id_when_its_call_begins_anew(rig: Rig) -> None:
    channel, ids = rig.channel(allow_inside_custom_tool=True), []
    for place in ("gate", "gate", "tool", "tool"):
        with Asking(place, "c1", "mine"):
            for _ in range(2):
                task, request = await begin(rig, channel, "confirm")
                ids.append(request.question_id)
                task.cancel()
                await asyncio.wait([task])
    assert ids[0:2] == ids[2:4]
    assert ids[4:6] == ids[6:8]
    assert len(set(ids)) == 4, "the gate and the body do not share questions"
    assert all(each.startswith("c1:") for each in ids)
