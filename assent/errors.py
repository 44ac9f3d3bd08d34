"""Every exception Assent raises, in one tree.

    AssentError                     whatever goes wrong; catch this to catch all of it
    ├── InvalidMessage              data that is no message (or no other value) of a transcript
    ├── InvalidTool                 a function or definition that cannot become a tool
    ├── InvalidAgent                an agent whose parts do not fit together
    ├── MissingExtra                an optional dependency is not installed (also an ImportError)
    ├── ModelError                  the model could not answer
    │   └── ScriptExhausted         a scripted model was asked once more than it has turns
    ├── StoreError                  the store does not know, or does not allow, what was asked of it
    │   ├── ThreadNotFound          there is no such thread
    │   ├── LeaseHeld               another worker is advancing the thread just now
    │   └── LeaseLost               another worker has taken the thread over; nothing was written
    └── HitlError                   asking a person went wrong
        ├── HitlConcurrencyError    the channel has a pending request already
        ├── HitlStaleAnswer         the request is not, or no longer, the one that waits for an answer
        ├── HitlNoPendingRequest    there is no such request
        ├── HitlInvalidAnswer       the answer does not fit what was asked
        ├── HitlRequestPending      a prompt came while a request is open
        └── HitlDurabilityNotGuaranteed   a custom tool's body asked through a durable channel

    HitlControlException            control flow, not an error: passes every ``except Exception``
    ├── HitlCancelled               the host cancelled the request
    ├── HitlTimedOut                nobody answered in time
    ├── HitlDetached                the agent was detached while it waited
    └── HitlAborted                 the agent's pending request was aborted, or its signal set

Each carries the facts that caused it as attributes.
"""

from __future__ import annotations

from collections.abc import Sequence


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


class StoreError(AssentError):
    """The store does not know, or does not allow, what was asked of it."""


class ThreadNotFound(StoreError, LookupError):
    """There is no such thread."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"there is no thread {thread_id!r}")
        self.thread_id = thread_id


class LeaseHeld(StoreError):
    """Another worker is advancing the thread just now; ``until`` is when its lease lapses (epoch ms)."""

    def __init__(self, thread_id: str, owner: str, until: int) -> None:
        super().__init__(f"thread {thread_id!r} is being advanced by {owner}; try again when it is done")
        self.thread_id = thread_id
        self.owner = owner
        self.until = until


class LeaseLost(StoreError):
    """Another worker has taken the thread over since it was loaded; nothing was written."""

    def __init__(self, thread_id: str, fence: int) -> None:
        super().__init__(f"thread {thread_id!r} was taken over by another worker; this one's write is void")
        self.thread_id = thread_id
        self.fence = fence


class HitlError(AssentError):
    """Asking a person went wrong."""


class HitlConcurrencyError(HitlError):
    """A channel was asked while it has a pending request already."""

    def __init__(self, question_id: str) -> None:
        super().__init__(f"request {question_id!r} is still pending; a channel asks one thing at a time")
        self.question_id = question_id


class HitlStaleAnswer(HitlError):
    """An answer or a cancel for a request that is not, or no longer, pending; it changed nothing.

    ``status`` says how the request was settled, where that is known.
    """

    def __init__(self, question_id: str, status: str | None = None) -> None:
        how = f"was already settled ({status})" if status else "is not the one that is pending"
        super().__init__(f"request {question_id!r} {how}; this answer changes nothing")
        self.question_id = question_id
        self.status = status


class HitlNoPendingRequest(HitlError):
    """There is no request to answer."""

    def __init__(self, thread_id: str | None, question_id: str | None = None) -> None:
        what = f"request {question_id!r}" if question_id else "pending request"
        super().__init__(f"there is no {what} on thread {thread_id!r}")
        self.thread_id = thread_id
        self.question_id = question_id


class HitlInvalidAnswer(HitlError, ValueError):
    """An answer that does not fit what was asked; the request stays pending. ``faults`` lists why."""

    def __init__(self, question_id: str, faults: Sequence[str]) -> None:
        super().__init__(f"this answer does not fit request {question_id!r}: {'; '.join(faults)}")
        self.question_id = question_id
        self.faults = tuple(faults)


class HitlRequestPending(HitlError):
    """A prompt came while a request is open on the thread."""

    def __init__(self, thread_id: str, question_id: str) -> None:
        super().__init__(
            f"request {question_id!r} is open on thread {thread_id!r}: answer it, abort it, "
            'or prompt with on_pending="supersede"'
        )
        self.thread_id = thread_id
        self.question_id = question_id


class HitlDurabilityNotGuaranteed(HitlError):
    """A custom tool's body asked through a durable channel, where a restart would lose the body's place."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"tool {tool_name!r} asks a person inside its body; after a restart the body would begin anew. "
            "Ask before the tool (middleware) or with ask_user, or pass allow_inside_custom_tool=True"
        )
        self.tool_name = tool_name


class HitlControlException(BaseException):
    """A signal that a person's action sends through the agent, such as detaching it.

    It derives from ``BaseException``, like ``asyncio.CancelledError``, so that no ``except Exception``
    in a tool, a middleware or a listener can swallow it.
    """


class HitlCancelled(HitlControlException):
    """The host cancelled the request."""

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(reason)
        self.reason = reason


class HitlTimedOut(HitlControlException):
    """Nobody answered within ``seconds``."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(
            "nobody answered in time" if seconds is None else f"nobody answered within {seconds:g} s"
        )
        self.seconds = seconds


class HitlDetached(HitlControlException):
    """The agent was detached while it waited; the request stays open."""


class HitlAborted(HitlControlException):
    """The agent's pending request was aborted, or the signal given with it was set."""

    def __init__(self, reason: str = "aborted") -> None:
        super().__init__(reason)
        self.reason = reason
