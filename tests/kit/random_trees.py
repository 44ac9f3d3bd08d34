"""Random trees of agents and people's decisions on their calls, for Hypothesis; and the expected results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from askfirst import AgentSpec, ApprovalResponse, Tool, subagent_tool
from askfirst.messages import ToolCall
from kit.deeds import Deeds, delegate, script

Say = Literal["approve", "deny", "edit", "never"]
"""A person's decision on a call; ``never`` if nobody decides."""


@dataclass(frozen=True)
class Free:
    """A call that needs no approval."""


@dataclass(frozen=True)
class Asks:
    """A call that a person decides on."""

    say: Say


@dataclass(frozen=True)
class Child:
    """A call of a subagent; the call itself may need an approval, too."""

    turns: tuple[tuple[Item, ...], ...]
    say: Say | None = None


Item = Free | Asks | Child

_says = st.sampled_from(["approve"] * 5 + ["deny", "deny", "edit", "edit", "never"])
_gates = st.sampled_from([None] * 5 + ["approve", "deny", "never"])
_leaves = st.one_of(st.builds(Free), st.builds(Asks, _says), st.builds(Asks, _says))


def _nodes(depth: int, gates: st.SearchStrategy[Any]) -> st.SearchStrategy[Child]:
    """Agents with at most ``depth`` levels below them; wider at the top, so that siblings wait together."""
    child = _nodes(depth - 1, _gates) if depth else None
    item = _leaves if child is None else st.one_of(_leaves, child, child)
    turn = st.lists(item, min_size=1, max_size=3 if depth == 3 else 2).map(tuple)
    return st.builds(Child, st.lists(turn, min_size=1, max_size=2).map(tuple), gates)


roots: st.SearchStrategy[Child] = _nodes(3, st.none())


class Tree:
    """A random tree with names for everything: agents, calls, deeds."""

    def __init__(self, root: Child, gate: str = "batch") -> None:
        self.root = root
        self.gate = gate
        self.says: dict[str, Say] = {}
        """The decision on each pending approval, by its id."""
        self.labels: dict[str, str] = {}
        for path, item in _walk(root, ()):
            asked = "/".join(path)
            self.labels[asked] = asked.replace("/", ".")
            if isinstance(item, Asks) or (isinstance(item, Child) and item.say is not None):
                assert item.say is not None
                self.says[asked] = item.say

    def spec(self, deeds: Deeds) -> AgentSpec:
        """The tree as new agents, as after a restart."""
        return self._spec(self.root, (), (deeds.tool("free"), deeds.asks("asks")))

    def _spec(self, node: Child, path: tuple[str, ...], leaves: tuple[Tool, Tool]) -> AgentSpec:
        turns: list[Any] = []
        tools = list(leaves)
        for number, items in enumerate(node.turns):
            calls: list[ToolCall] = []
            for place, item in enumerate(items):
                call_id = f"c{number}{place}"
                here = (*path, call_id)
                if isinstance(item, Child):
                    spec = self._spec(item, here, leaves)
                    tools.append(subagent_tool(spec, requires_approval=item.say is not None))
                    calls.append(delegate(call_id, spec.id))
                else:
                    name = "free" if isinstance(item, Free) else "asks"
                    calls.append(ToolCall(call_id, name, {"what": self.labels["/".join(here)]}))
            turns.append(calls)
        name = "-".join(("agent", *path))
        return AgentSpec(name, script(*turns, f"{name} is done"), tools=tools, tool_gate=self.gate)  # type: ignore[arg-type]

    def response(self, id: str) -> ApprovalResponse:
        """The person's response."""
        say = self.says[id]
        assert say != "never"
        edited = {"what": f"{self.labels[id]}!"} if say == "edit" else None
        return ApprovalResponse(id=id, decision=say, edited_args=edited)

    def expected(self) -> tuple[list[str], bool]:
        """The expected deeds after all decisions, and whether the run then completes."""
        done: list[str] = []
        completes = self._expect(self.root, (), done)
        return sorted(done), completes

    def _expect(self, node: Child, path: tuple[str, ...], done: list[str]) -> bool:
        for number, items in enumerate(node.turns):
            placed = [((*path, f"c{number}{place}"), item) for place, item in enumerate(items)]
            stuck = [item for _, item in placed if _say(item) == "never"]
            if stuck and self.gate == "batch":
                return False
            finished = not stuck
            for here, item in placed:
                label = self.labels["/".join(here)]
                if isinstance(item, Free):
                    done.append(f"free {label}")
                elif isinstance(item, Child):
                    if _say(item) in (None, "approve"):
                        finished = self._expect(item, here, done) and finished
                elif item.say in ("approve", "edit"):
                    done.append(f"asks {label}" + ("!" if item.say == "edit" else ""))
            if not finished:
                return False
        return True


def _say(item: Item) -> Say | None:
    return None if isinstance(item, Free) else item.say


def _walk(node: Child, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Item]]:
    for number, items in enumerate(node.turns):
        for place, item in enumerate(items):
            here = (*path, f"c{number}{place}")
            yield here, item
            if isinstance(item, Child):
                yield from _walk(item, here)
