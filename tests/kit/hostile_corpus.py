"""Requests that are meant to overload the service, as data: for tests, for fuzzing, and for ``scripts/bench``.

Each is a function, because the request that it makes has up to 4 MB, the limit of a request. Requests beyond the
limits are refused; those just within the limits are accepted, and cost the most that a request can cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

BIGGEST = 4_000_000
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
Make = Callable[[], bytes]


def filled(begin: bytes, piece: bytes, end: bytes, size: int = BIGGEST) -> bytes:
    """As many pieces as fit into ``size``, separated by commas."""
    count = (size - len(begin) - len(end)) // (len(piece) + 1)
    return begin + b",".join([piece] * count) + end


def named(count: int, value: Any = 0) -> dict[str, Any]:
    return {f"n{number}": value for number in range(count)}


def opening(context: Mapping[str, Any], type: str = "input", **more: Any) -> Make:
    body = {"type": type, "prompt": "Please decide.", "context": context, **more}
    return lambda: json.dumps(body, ensure_ascii=False).encode()


def field(number: int, **more: Any) -> dict[str, Any]:
    return {"key": f"f{number}", "label": f"Field {number}", "type": "text", **more}


def form(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"form": {"fields": fields}}


def patterned(patterns: list[str]) -> dict[str, Any]:
    return form([field(number, validation={"pattern": each}) for number, each in enumerate(patterns)])


def options(count: int) -> list[dict[str, str]]:
    return [{"value": f"v{number}", "label": f"Option {number}"} for number in range(count)]


BODIES: Mapping[str, tuple[str, Make]] = {
    "proofs without end": (JSON, lambda: filled(b'{"verification_evidence":[', b"{}", b"]}")),
    "lists without end": (JSON, lambda: filled(b'{"data":[', b"[]", b"]}")),
    "names without end": (JSON, lambda: json.dumps(named(250_000)).encode()),
    "brackets": (JSON, lambda: b"[" * BIGGEST),
    "no JSON": (JSON, lambda: b"x" * BIGGEST),
    "one long text": (JSON, lambda: b'{"action":"' + b"a" * (BIGGEST - 20) + b'"}'),
    "a form": (FORM, lambda: b"&".join([b"a=b"] * (BIGGEST // 4))),
    "a form's long field": (FORM, lambda: b"feedback=" + b"%41" * (BIGGEST // 3 - 10)),
    "something else": ("text/plain", lambda: b"\0" * BIGGEST),
}
"""Bodies of the greatest size, for any route."""

OPENINGS: Mapping[str, Make] = {
    **{f"{name}, as a review": make for name, (kind, make) in BODIES.items() if kind == JSON},
    "proofs in 100 KB": lambda: filled(b'{"verification_evidence":[', b"{}", b"]}", 100_000),
    "empty fields": lambda: filled(
        b'{"type":"input","prompt":"p","context":{"form":{"fields":[', b"{}", b"]}}}", 1_000_000
    ),
    "100,000 facts": opening(named(100_000)),
    "640,000 hidden characters": opening({"a": "\u200b\u200c" * 320_000}),
    "15,000 fields": opening(form([field(number) for number in range(15_000)])),
    "60,000 options": opening(form([field(1, type="multiselect", options=options(60_000))])),
    "30,000 items": opening({"items": [{"id": f"{number}"} for number in range(30_000)]}, "selection"),
    "a callback URL of 3.9 MB": opening({}, hitl_callback_url="https://a.example/" + "a" * 3_900_000),
    "100 patterns": opening(patterned([r"\w{1,4000}"] * 100)),
    "40 patterns": opening(patterned([rf"\w{{1,{60 + number}}}" for number in range(40)])),
    "a pattern of patterns": opening(patterned([r"((\w{10}){10}){10}"])),
    "a long pattern": opening(patterned(["a" * 100_000])),
    "values without end": lambda: filled(b'{"type":"input","prompt":"p","context":{"a":[', b"[]", b"]}}"),
    "a deep context": lambda: (
        b'{"type":"input","prompt":"p","context":{"a":' + b"[" * 150 + b"]" * 150 + b"}}"
    ),
    "a policy without end": opening(
        {}, verification_policy={"requirements": {"any_of": [{"all_of": [{}] * 10}] * 5_000}}
    ),
    "a condition without end": opening(
        form([field(1), field(2, conditional={"field": "f1", "operator": "in", "value": ["a"] * 15_000})])
    ),
    "2 MB of text": opening({"a": "word " * 390_000}),
    "500 facts": opening(named(500, "a fact " * 500)),
    "10,000 hidden characters": opening({"a": "\u200b\u200c" * 5_000}),
    "200 fields": opening(form([field(number, hint="hint " * 100) for number in range(200)])),
    "5,000 options": opening(
        form([field(number, type="multiselect", options=options(1_000)) for number in range(5)])
    ),
    "1,000 items": opening(
        {"items": [{"id": f"{number}", "title": "t", **named(15)} for number in range(1_000)]}, "selection"
    ),
    "20 patterns": opening(patterned([rf"\w{{1,14}}[a-z]{{{number}}}" for number in range(1, 11)] * 2)),
    "20,000 values": opening({"a": [[0] for _ in range(9_900)]}),
    "escapes": lambda: b'{"type":"input","prompt":"p","context":{"a":"' + b"\\u0041" * 600_000 + b'"}}',
}
"""Reviews that a caller with a key opens: beyond every limit, and just within the limits."""

ANSWERS: Mapping[str, tuple[str, str, Make]] = {
    "proofs": (JSON, "2 MB of text", BODIES["proofs without end"][1]),
    "lists": (JSON, "2 MB of text", BODIES["lists without end"][1]),
    "names": (JSON, "2 MB of text", BODIES["names without end"][1]),
    "data without end": (
        JSON,
        "2 MB of text",
        lambda: json.dumps({"action": "submit", "data": named(15_000)}).encode(),
    ),
    "every option": (
        JSON,
        "5,000 options",
        lambda: json.dumps(
            {"action": "submit", "data": {"f0": [each["value"] for each in options(1_000)]}}
        ).encode(),
    ),
    "every item": (
        JSON,
        "1,000 items",
        lambda: json.dumps({"action": "select", "data": {"selected": ["x"] * 4_000}}).encode(),
    ),
    "long texts for patterns": (
        JSON,
        "20 patterns",
        lambda: json.dumps(
            {"action": "submit", "data": {f"f{number}": "é" * 10_000 for number in range(20)}}
        ).encode(),
    ),
    "a form": (FORM, "200 fields", BODIES["a form"][1]),
    "a form's long field": (FORM, "2 MB of text", BODIES["a form's long field"][1]),
    "fields that are not there": (FORM, "200 fields", lambda: b"&".join(b"f.%d=x" % n for n in range(9_000))),
}
"""Answers by anybody who has the link: their content type, the opening that they answer, and their body."""
