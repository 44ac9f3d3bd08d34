"""What a request kind needs is said in one place: other modules have one table by kind, or name no kind at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from askfirst.adapters import response_schemas
from askfirst.cli import answer_options
from askfirst.delivery import terminal_dialogue
from askfirst.requests import KINDS
from askfirst.service import adoption

PACKAGE = Path(adoption.__file__).parents[1]
CLASSES = {"ConfirmRequest", "ApproveRequest", "AskRequest", "EscalateRequest"}
NAME_THEM = {
    "requests.py": "defines them",
    "adapters/response_schemas.py": "has a table by kind",
    "adapters/schema_form.py": "asks for what a JSON Schema describes, as a form",
    "adapters/langgraph_interrupts.py": "asks what a graph's own interrupt asks",
    "hitl/types.py": "exports them",
    "hitl/__init__.py": "exports them",
    "hitl/channel.py": "has a verb for each",
    "hitl/inputs.py": "checks what a verb is given",
    "service/adoption.py": "has a table by kind",
    "delivery/terminal_dialogue.py": "has a table by kind",
    "cli/answer_options.py": "has a table by kind",
    "agent/asking.py": "the loop itself asks for approval, and escalates",
    "agent/tree.py": "reads a pending approval back as its request",
    "gate/ledger.py": "the gate itself asks for approval, and escalates",
    "gate/gate.py": "has verbs for questions",
    "gate/form.py": "asks for a model as a form",
    "store/rows.py": "writes a call to be approved in a short form",
}


def named_in(path: Path) -> set[str]:
    """The classes of payloads that a module names."""
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    imported = (
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    return CLASSES & {*names, *imported}


def test_few_modules_name_a_kind() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if named_in(path)}
    assert found == set(NAME_THEM), "ask the payload instead (askfirst.requests), or give the reason here"


@pytest.mark.parametrize(
    "table",
    [
        adoption._KINDS,  # pyright: ignore[reportPrivateUsage]
        terminal_dialogue._DIALOGUES,  # pyright: ignore[reportPrivateUsage]
        answer_options._REQUESTS,  # pyright: ignore[reportPrivateUsage]
        response_schemas._RESPONSES,  # pyright: ignore[reportPrivateUsage]
    ],
    ids=["cases", "terminal", "command line", "front ends"],
)
def test_a_table_has_every_kind(table: dict[str, object]) -> None:
    assert set(table) == set(KINDS)
