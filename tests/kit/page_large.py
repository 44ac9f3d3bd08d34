"""Cases that are as large as the service, or an agent, can make them: a table, for the test of the pages' weight."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from askfirst.messages import call_digest
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    Option,
    Question,
)
from askfirst.service.case import Case
from askfirst.service.case_state import CaseState, Outcome, Previous, Step
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.page_size import EDITED, size_of
from askfirst.service.pages.row import View
from askfirst.service.pages.sight import Second
from kit import page_cases as cases
from kit.page_cases import NOW
from kit.page_scenes import Scene

MANY = 1_000
FILLS: dict[str, str] = {
    "markup": '<&"\'> &<"',
    "Han": "漢字仮名交じり",
    "lines": "a\n",
    "hidden": "a\u200bb\u202ec",
}
"""What long texts are made of: markup grows when it is escaped, Han has three bytes, hidden characters get a mark."""


def long(fill: str, size: int) -> str:
    """A text of so many characters."""
    return (FILLS[fill] * (size // len(FILLS[fill]) + 1))[:size]


def call(fill: str, words: dict[str, Any] | None = None, **facts: Any) -> Case:
    """A call with something large in it: ``name``, ``args``, ``details``; the rest is small."""
    args: dict[str, Any] = facts.pop("args", {"amount": 1})
    name, details = facts.pop("name", "pay"), facts.pop("details", {})
    payload = ApproveRequest(
        tool_name=name,
        tool_call_id="call_1",
        args=args,
        details=details,
        digest=call_digest(name, args),
        display=words,
    )
    return cases.agent_case(payload, **facts)


def deep(levels: int, leaf: Any) -> Any:
    """Objects within one another."""
    for _ in range(levels):
        leaf = {"inside": leaf}
    return leaf


def arguments(fill: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments of a call, or facts of a service, that are large."""
    yield "one text", {"text": long(fill, 300_000)}
    yield "many texts", {f"a{place}": long(fill, 3_000) for place in range(500)}
    yield "many names", {f"{place} {long(fill, 300)}": place for place in range(3_000)}
    yield "deep", {"a": deep(30, [long(fill, 4_000)] * 100)}
    yield "wide", {"a": {f"k{place}": long(fill, 300) for place in range(5_000)}}
    yield "list", {"a": [long(fill, 500) for _ in range(2_000)]}
    yield "table", {"t": [{f"c{n}": long(fill, 100) for n in range(20)} for _ in range(300)]}
    yield "few and long", {f"a{place}": long(fill, 12_000) for place in range(12)}


def wordy(fill: str) -> dict[str, Any]:
    """Trusted words that are as long as nobody would write them."""
    text = long(fill, 20_000)
    return {
        "title": text,
        "description": text,
        "undo": text,
        "labels": {f"a{place}": text for place in range(100)},
        "important": [f"a{place}" for place in range(2_000)],
        "consequences": ["money", "custom:" + "x" * 60] * 20,
        "links": [{"title": text, "url": "https://example.com/" + "x" * 4_000}] * 20,
        "help_url": "https://example.com/" + "x" * 4_000,
        "risk": "high",
    }


def detailed(fill: str) -> dict[str, Any]:
    """What an agent's side may tell of a call."""
    text = long(fill, 20_000)
    return {
        "reason": text,
        "matched_rule_id": text,
        "reasons": [{"reason": f"{place} {text}", "matched_rule_id": text} for place in range(50)],
        "agent_path": [text] * 100,
        "principal": text,
        "more": text,
        **{f"d{place}": text for place in range(100)},
    }


def calls(fill: str) -> Iterator[tuple[str, Scene]]:
    """Calls to be approved, in every state."""
    for name, args in arguments(fill):
        yield f"call, {name}", Scene(call(fill, args=args))
        yield f"call, {name}, high", Scene(call(fill, {"risk": "high"}, args=args))
        yield f"call, {name}, raw", Scene(call(fill, args=args), sight={"view": View(row=0, of="raw")})
        yield f"call, {name}, part", Scene(call(fill, args=args), sight={"view": View(row=0)})
        yield f"call, {name}, edit", Scene(call(fill, args=args), given={"stage": "edit"})
        edited = {key: _changed(value) for key, value in args.items()}
        given = {"values": {"edits": edited}, "step": 2}
        yield f"call, {name}, check", Scene(call(fill, args=args), given=given)
        yield f"call, {name}, faults", Scene(call(fill, args=args), given=faulty(edited))
        decided = {"action": "edit", "data": {"edits": edited}}
        yield f"call, {name}, edited", Scene(call(fill, args=args, status="completed", result=decided))
        again = Previous("case_0", edited, "edit", long(fill, 100_000), "Ada", NOW)
        yield f"call, {name}, round", Scene(call(fill, args=args), sight={"previous": again})
    text = long(fill, 100_000)
    plain = call(fill)
    yield "call, tool name", Scene(call(fill, name=text))
    yield "call, words", Scene(call(fill, wordy(fill), args={f"a{n}": n for n in range(300)}))
    yield "call, details", Scene(call(fill, details=detailed(fill)))
    yield "call, details, ended", Scene(call(fill, details=detailed(fill), status="expired"))
    yield "call, before", Scene(plain, sight={"before": (Step("agent", text, text),) * 20})
    yield "call, thread", Scene(dataclasses.replace(plain, thread_id=text, case_id="c" * 128))
    rejected = call(fill, status="completed", result={"action": "reject", "data": {"feedback": text}})
    yield "call, feedback", Scene(rejected)
    yield "call, cancelled", Scene(call(fill, status="cancelled", reason=text))
    standing = CaseState("done", 1, action="approve", outcome=Outcome("done", NOW, text))
    approved = call(fill, {"undo": text}, status="completed", result={"action": "approve", "data": {}})
    yield "call, result", Scene(approved, standing)
    faults = {"data.feedback": long(fill, 1_000)} | {f"data.{place}": text for place in range(20)}
    yield "call, a long note again", Scene(plain, given={"values": {"feedback": text}, "faults": faults})
    note, sent = long(fill, 5_000), edits(fill)
    yield "call, second", Scene(plain, sight={"second": second(plain, note, sent)})
    carried = (("action", "edit"), ("feedback", note), ("changed", sent))
    yield "call, code", Scene(with_mail(plain), given={"stage": "code", "carried": carried})


def _changed(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("a", "z").replace("漢", "文").replace("&", "<")
    return 7 if isinstance(value, int) else ["changed"]


def faulty(edited: dict[str, Any]) -> dict[str, Any]:
    """An edit that does not fit, shown again."""
    return {
        "values": {"edits": edited},
        "faults": {f"data.edits.{name}": "must be a number" for name in edited},
    }


def edits(fill: str) -> str:
    """As much as the fields of an edit may send."""
    text = long(fill, EDITED)
    while size_of(text) > EDITED:
        text = text[: len(text) * 9 // 10]
    return text


def second(case: Case, note: str, sent: str) -> Second:
    """The second step, with as much to be sent again as there may be."""
    fields = (("action", "edit"), ("changed", sent))
    return Second("edit", "v" * 64, decision_of(case), "feedback", note, True, True, False, fields)


def with_mail(case: Case) -> Case:
    """With as many addresses for a code as there may be."""
    return dataclasses.replace(
        case, verify_email=tuple(f"{place}{'x' * 60}@example.com" for place in range(20))
    )


def services(fill: str) -> Iterator[tuple[str, Scene]]:
    """What other services ask."""
    text = long(fill, 20_000)
    said: dict[str, Any] = {"prompt": long(fill, 500), "message": long(fill, 2_000)}
    for name, facts in arguments(fill):
        yield f"service, {name}", Scene(cases.service_case("approval", facts, **said))
        answered = {"action": "approve", "data": facts | {"feedback": long(fill, 100_000)}}
        done = cases.service_case("approval", facts, status="completed", result=answered)
        yield f"service, {name}, ended", Scene(done)
        yield f"escalation, {name}", Scene(cases.service_case("escalation", {"params": facts, "error": text}))
        shown = {
            "labels": {key[:200]: long(fill, 200) for key in facts},
            "risk": "high",
            "links": wordy(fill)["links"],
        }
        yield f"service, {name}, labels", Scene(cases.service_case("approval", facts, shown=shown, **said))
    yield (
        "escalation, params typed",
        Scene(
            cases.service_case("escalation", {"error": "x"}),
            given={
                "values": {"modified_params": {"a": text * 10}, "reason": text * 5},
                "faults": {"data": "no"},
            },
        ),
    )


def item(fill: str, place: int, size: int) -> dict[str, Any]:
    """Something to choose."""
    text = long(fill, size)
    return {"id": f"i{place}", "title": f"{place} {text}", "description": text, "fact": place, "more": text}


def lists(fill: str) -> Iterator[tuple[str, Scene]]:
    """Things to choose from, and to confirm."""
    sizes = {"short": (MANY, 20), "long": (MANY, 600), "huge": (5, 100_000), "some": (29, 20_000)}
    for name, (count, size) in sizes.items():
        items = [item(fill, place, size) for place in range(count)]
        ids = [it["id"] for it in items]
        one = {"items": items, "multiple": False}
        yield f"selection, {name}", Scene(cases.service_case("selection", {"items": items}))
        yield f"selection of one, {name}", Scene(cases.service_case("selection", one))
        every = {"values": {"selected": ids}}
        yield f"selection, {name}, all", Scene(cases.service_case("selection", {"items": items}), given=every)
        chosen = {"action": "select", "data": {"selected": ids, "note": long(fill, 100_000)}}
        done = cases.service_case("selection", {"items": items}, status="completed", result=chosen)
        yield f"selection, {name}, ended", Scene(done)
        yield (
            f"selection, {name}, expired",
            Scene(cases.service_case("selection", {"items": items}, status="expired")),
        )
        listed = {"items_to_confirm": items, **{f"f{n}": long(fill, 2_000) for n in range(100)}}
        yield (
            f"confirmation, {name}",
            Scene(cases.service_case("confirmation", listed, shown={"risk": "high"})),
        )
        options = [Option(label=it["title"], value=it["id"], description=it["description"]) for it in items]
        asked = Question(key="k", prompt=long(fill, 50_000), options=options, multi_select=True)
        yield f"agent's choice, {name}", Scene(cases.agent_case(AskRequest(questions=[asked])))
    ids = [f"{place} {long(fill, 200)}" for place in range(MANY)]
    yield (
        "selection, long ids",
        Scene(cases.service_case("selection", {"items": ids}), given={"values": {"selected": ids}}),
    )
    typed = {"values": {"selected": ids}, "faults": {"data.selected": "needs a choice"}}
    yield "selection, typed ids", Scene(cases.service_case("selection", {}), given=typed)
    yield (
        "confirm, prompt",
        Scene(cases.agent_case(ConfirmRequest(prompt=long(fill, 300_000), details=detailed(fill)))),
    )


def forms(fill: str) -> Iterator[tuple[str, Scene]]:
    """Forms with much of everything."""
    hint, label = long(fill, 9_000), long(fill, 200)
    field = cases.field
    options = [{"value": f"o{n}", "label": f"{n} {long(fill, 60)}"} for n in range(MANY)]
    wide = [{"value": f"{n} {long(fill, 300)}", "label": f"{n} {long(fill, 350)}"} for n in range(MANY)]
    shapes: dict[str, list[dict[str, Any]]] = {
        "fields": [field(f"k{n}", "text", label, hint=hint, placeholder=hint) for n in range(200)],
        "areas": [field(f"k{n}", "textarea", label, hint="h") for n in range(200)],
        "options": [
            field(f"k{n}", kind, options=options) for n, kind in enumerate(("select", "multiselect") * 2)
        ],
        "long options": [field("one", "select", options=wide), field("some", "multiselect", options=wide)],
        "few options": [field(f"k{n}", "multiselect", options=options[:25]) for n in range(200)],
    }
    for name, fields in shapes.items():
        context = {"form": {"fields": fields}}
        every = {it["key"]: ["o1"] if it["type"] == "multiselect" else long(fill, 2_000) for it in fields}
        states: tuple[tuple[str, dict[str, Any]], ...] = (
            ("", {}),
            (", draft", {"draft": every}),
            (", sent", {"status": "completed", "result": {"action": "submit", "data": every}}),
            (", expired", {"status": "expired"}),
        )
        for stage, facts in states:
            yield f"form, {name}{stage}", Scene(cases.service_case("input", context, **facts))
        steps = [
            {"title": hint, "description": hint, "fields": fields[:-1]},
            {"title": "Last", "fields": fields[-1:]},
        ]
        summary = {"title": "Sum", "fields": list[Any]()}
        wizard = {"form": {"steps": [*steps, summary], "session_id": "s"}}
        for step in (1, 2, 3):
            given = {"step": step, "values": every}
            yield f"wizard, {name}, step {step}", Scene(cases.service_case("input", wizard), given=given)
        faults = {f"data.{it['key']}": "is required" for it in fields}
        yield (
            f"form, {name}, faults",
            Scene(cases.service_case("input", context), given={"values": {}, "faults": faults}),
        )
    essay = {"form": {"fields": [field("essay", "textarea"), field("other", "textarea")]}}
    typed = {"essay": long(fill, 300_000), "other": long(fill, 300_000)}
    yield "form, essays", Scene(cases.service_case("input", essay, draft=typed))
    again = {"values": {"response": long(fill, 300_000)}, "faults": {"": "no"}}
    yield "question, answer again", Scene(cases.service_case("input", prompt="Why?"), given=again)
    asked = [Question(key=f"k{n}", prompt=long(fill, 5_000)) for n in range(100)]
    yield "agent's questions", Scene(cases.agent_case(AskRequest(questions=asked)))
    yield "agent's questions, expired", Scene(cases.agent_case(AskRequest(questions=asked), status="expired"))


def doubts(fill: str) -> Iterator[tuple[str, Scene]]:
    """Calls in doubt, and agents that do not know what to do."""
    for name, args in arguments(fill):
        details: dict[str, Any] = {"tool_name": "pay", "tool_call_id": "c1", "args": args, "attempt": 1}
        payload: HitlPayload = EscalateRequest(
            prompt="?", choices=["retry", "skip", "abort"], details=details
        )
        yield f"doubt, {name}", Scene(cases.agent_case(payload))
        yield f"doubt, {name}, edit", Scene(cases.agent_case(payload), given={"stage": "edit"})
    choices = [f"{place} {long(fill, 300)}" for place in range(1_000)]
    many = EscalateRequest(prompt=long(fill, 100_000), choices=choices, details=detailed(fill))
    yield "escalation, choices", Scene(cases.agent_case(many))


GROUPS: dict[str, Callable[[str], Iterator[tuple[str, Scene]]]] = {
    "calls": calls,
    "services": services,
    "lists": lists,
    "forms": forms,
    "doubts": doubts,
}
