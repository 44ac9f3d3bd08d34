"""Results of other frameworks' tools: kept as JSON, and the same again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from askfirst.adapters.results import result_codec


class Picture(BaseModel):
    """A kind that is kept."""

    url: str


@dataclass
class Reply:
    """Another, with something within."""

    value: Any
    note: str | None = None


class Unknown:
    """Neither JSON nor of a kind."""

    def __str__(self) -> str:
        return "unknown"


CODEC = result_codec(Picture, Reply)


@pytest.mark.parametrize(
    "result",
    [
        "paid",
        3,
        None,
        {"cents": 5},
        ["a", 1],
        Picture(url="u"),
        Reply({"a": 1}, "b"),
        [Picture(url="u"), "and text"],
    ],
)
def test_a_result_comes_back_as_it_was(result: Any) -> None:
    assert CODEC.decode(from_json(to_json(CODEC.encode(result)))) == result


def test_what_is_no_json_comes_back_as_text() -> None:
    assert CODEC.decode(from_json(to_json(CODEC.encode({"it": Unknown()})))) == {"it": "unknown"}
    assert CODEC.decode(from_json(to_json(CODEC.encode(b"\xff")))) == "_w=="
