"""Every exception Assent raises, in one tree.

    AssentError                     whatever goes wrong; catch this to catch all of it
    ├── InvalidMessage              data that is no message (or no other value) of a transcript
    ├── InvalidTool                 a function or definition that cannot become a tool
    ├── InvalidAgent                an agent whose parts do not fit together
    ├── MissingExtra                an optional dependency is not installed (also an ImportError)
    └── ModelError                  the model could not answer
        └── ScriptExhausted         a scripted model was asked once more than it has turns

    HitlControlException            control flow, not an error: passes every ``except Exception``

Each carries the facts that caused it as attributes.
"""

from __future__ import annotations


class AssentError(Exception):
    """The base of all errors raised by Assent."""


class InvalidMessage(AssentError, ValueError):
    """Data that does not fit the transcript's types.

    ``path`` leads to the offending value (``"content[0].text"``), ``problem`` says what is wrong there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class InvalidTool(AssentError, TypeError):
    """A function or a definition that cannot become a tool."""

    def __init__(self, tool_name: str, problem: str) -> None:
        super().__init__(f"tool {tool_name!r}: {problem}")
        self.tool_name = tool_name
        self.problem = problem


class InvalidAgent(AssentError, ValueError):
    """An agent whose parts do not fit together, for example two tools of one name."""


class MissingExtra(AssentError, ImportError):
    """Something that needs an extra which is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the {extra!r} extra: pip install 'assent[{extra}]'")
        self.extra = extra


class ModelError(AssentError):
    """The model could not answer.

    ``retryable`` tells whether the same request may succeed later, ``retry_after`` how many seconds
    the provider asked to wait, and ``status`` the HTTP status where there was one.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status


class ScriptExhausted(ModelError):
    """A scripted model was asked once more than it has turns."""

    def __init__(self, turns: int) -> None:
        super().__init__(
            f"the scripted model has {turns} turn{'' if turns == 1 else 's'} and was asked for one more; "
            "add a turn to the script, or see .requests for what it was sent"
        )
        self.turns = turns


class HitlControlException(BaseException):
    """A signal that a person's action sends through the agent, such as detaching it.

    It derives from ``BaseException``, like ``asyncio.CancelledError``, so that no ``except Exception``
    in a tool, a middleware or a listener can swallow it.
    """
