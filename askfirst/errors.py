"""Every exception Askfirst raises, in one tree.

    AskfirstError                     whatever goes wrong; catch this to catch all of it
    ├── InvalidMessage              data that is not a valid message, or other value, of a transcript
    ├── InvalidTool                 a function or definition that cannot become a tool
    ├── InvalidAgent                an agent whose parts do not fit together
    ├── WaitsForItself              a run that would wait for its own end
    ├── InvalidPolicy               a rule, decision or policy file that cannot be used
    ├── InvalidCheckpoint           a checkpoint, or a response to it, that cannot be used
    ├── MissingExtra                an optional dependency is not installed (also an ImportError)
    ├── ModelError                  the model could not answer
    │   └── ScriptExhausted         a scripted model was asked once more than it has turns
    ├── StoreError                  the store does not have, or does not allow, what was asked for
    │   ├── ThreadNotFound          there is no such thread
    │   ├── LeaseHeld               another worker is advancing the thread just now
    │   ├── LeaseLost               another worker has taken the thread over; nothing was written
    │   ├── InvalidStep             a step that cannot be stored; nothing was written
    │   ├── CheckpointNotFound      the agent has no such checkpoint
    │   └── CheckpointNotPendingError   a checkpoint is claimed by another worker, or resolved, or not claimed at all
    ├── ProtocolError               something does not conform to HITL Protocol
    │   ├── InvalidProtocolObject   data that is not a valid object of the protocol
    │   ├── InvalidFormData         answers that do not fit a form
    │   ├── InvalidTransition       an event that cannot happen to a case in its state
    │   ├── InvalidDuration         a text that is not a duration
    │   ├── InvalidSecret           a secret or a key that cannot be used
    │   ├── InvalidSignature        a signature that is missing, wrong or too old
    │   └── InvalidSkill            a SKILL.md that cannot be used
    ├── ServiceError                the service refuses
    │   ├── InvalidConfiguration    askfirst.toml, or the environment, has faults
    │   ├── CaseNotFound            there is no such case, or the caller may not see it
    │   ├── CaseClosed              the case is answered or cancelled
    │   ├── CaseExpired             the case's deadline has passed
    │   ├── CaseHeld                another decision on the case takes effect in a moment, unless it is undone
    │   ├── IdempotencyConflict     an Idempotency-Key was used before with another body
    │   ├── InvalidReview           a case, or an answer to one, that does not fit
    │   ├── InvalidCallbackUrl      a URL to which the service sends no callbacks
    │   ├── InlineRefused           an answer that can only be given on the page
    │   ├── EmailCodeRefused        an answer without the code that was sent by e-mail
    │   ├── NotIdentified           an answer by a person whom the host cannot identify
    │   ├── OverBudget              a key, a link or an address has used up its budget
    │   ├── NotAuthorized           an answer by a person who may not give it
    │   └── LinkExpired             the link has expired
    ├── ReviewError                 waiting for another service's review went wrong
    │   ├── InvalidOffer            a 202 whose hitl object cannot be used; nothing was sent to anybody
    │   ├── ReviewRefused           the service does not let the agent ask: 401, 403, 404 or 410
    │   ├── ReviewUnreachable       the service did not say how the review ended, long after its deadline
    │   ├── ReviewUnreadable        the service's answers about the case cannot be read
    │   ├── ReviewContradiction     the service contradicts itself, such as a case that leaves a final state
    │   ├── InvalidOutcome          a result that lacks what the form requires
    │   ├── ResponseTooLarge        an HTTP response larger than the caller's limit
    │   ├── RequestInDoubt          whether a request reached the service is unknown; it is not sent again
    │   └── DiscoveryFailed         a service's discovery document cannot be had or read
    ├── DeliveryError               a notice did not reach the person
    ├── ChatError                   a chat server was configured without an agent or without a chat
    ├── ResumeLater                 a thread cannot be resumed yet, which is not a failure
    ├── ResumeFailed                a thread was resumed, and its run failed
    └── HitlError                   asking a person went wrong
        ├── HitlInvalidRequest      the arguments make no valid request; nobody was asked
        ├── HitlConcurrencyError    the channel, or its thread, has a pending request already
        ├── HitlStaleAnswer         the request is not, or no longer, pending
        ├── HitlNoPendingRequest    there is no such request
        ├── HitlInvalidAnswer       the answer does not fit what was asked
        ├── HitlRequestPending      a prompt came while a request is open
        ├── WrongAgent              the thread belongs to a run of another agent
        ├── HitlDurabilityNotGuaranteed   a custom tool's body asked through a durable channel
        ├── Denied                  a call at the gate does not run: a person, the policy or the time-out said no
        ├── NotApproved             nobody has approved the call at the gate, so its body does not begin
        ├── KeyConflict             the key of a call at the gate was used for another call before
        ├── FailedBefore            a call at the gate ran before, and raised
        ├── ResultNotKept           a call at the gate ran before, and its result could not be kept
        ├── StillRunning            another process runs the call just now
        └── GrantLost               a body at the gate ended after its grant was lost

    HitlControlException            control flow, not an error: passes every ``except Exception``
    ├── HitlCancelled               the host cancelled the request
    ├── HitlTimedOut                nobody answered in time
    ├── HitlDetached                the agent was detached while it waited, or superseded by a newer prompt
    ├── HitlPaused                  the run stops here, with its open calls pending; caught by the agent
    ├── Pending                     a person has not decided yet on a call at the gate
    └── HitlAborted                 the agent's pending request was aborted, or its signal set

Each carries the facts that caused it as attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, cast

from askfirst.limits import FAULTS


class _Portable(BaseException):
    """The base of exceptions that can be copied and pickled, with their type, message and attributes.

    Python's own pickling would call the constructor with the finished message, but the constructors here take facts.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        _, args, *state = cast("tuple[Any, ...]", super().__reduce__())
        return (_rebuilt, (type(self), args), *state)


def _rebuilt(cls: type[_Portable], args: tuple[Any, ...]) -> _Portable:
    error = cls.__new__(cls, *args)
    super(_Portable, error).__init__(*args)  # the constructor of the built-in class, such as ImportError
    return error


class AskfirstError(_Portable, Exception):
    """The base of all errors raised by Askfirst."""


class InvalidMessage(AskfirstError, ValueError):
    """Data that does not fit the transcript's types.

    ``path`` leads to the offending value (``"content[0].text"``), ``problem`` says what is wrong there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class InvalidTool(AskfirstError, TypeError):
    """A function or a definition that cannot become a tool."""

    def __init__(self, tool_name: str, problem: str) -> None:
        super().__init__(f"tool {tool_name!r}: {problem}")
        self.tool_name = tool_name
        self.problem = problem


class InvalidAgent(AskfirstError, ValueError):
    """An agent whose parts do not fit together, for example two tools of one name."""


class WaitsForItself(AskfirstError, RuntimeError):
    """A tool's body or a listener awaits another run of its own agent, which would be a deadlock."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(
            f"thread {thread_id!r}: a run is going on, and this would make the run wait for itself (a deadlock); "
            "await this outside of the run's tools and listeners, or in a separate task"
        )
        self.thread_id = thread_id


class InvalidPolicy(AskfirstError, ValueError):
    """A rule, a decision or a policy file that cannot be used; its text has one line for each fault.

    ``problems`` are those lines. ``file`` is the policy file where there is one, and ``lines`` are then the
    numbers of the lines in it, one for each problem.
    """

    def __init__(self, problems: Sequence[str], file: str | None = None, lines: Sequence[int] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.file = file
        self.lines = tuple(lines)


class InvalidCheckpoint(AskfirstError, ValueError):
    """A checkpoint that cannot be resumed as asked, or responses that do not fit it; nothing was run or changed.

    ``problems`` says what is wrong, one sentence each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class MissingExtra(AskfirstError, ImportError):
    """An optional dependency (an extra) is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the {extra!r} extra: pip install 'askfirst[{extra}]'")
        self.extra = extra


class ModelError(AskfirstError):
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


class StoreError(AskfirstError):
    """The store does not have, or does not allow, what was asked for."""


class ThreadNotFound(StoreError, LookupError):
    """There is no such thread."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"there is no thread {thread_id!r}")
        self.thread_id = thread_id


class LeaseHeld(StoreError):
    """Another worker is advancing the thread just now; ``until`` is when its lease lapses, in seconds since 1970."""

    def __init__(self, thread_id: str, owner: str, until: float) -> None:
        super().__init__(f"thread {thread_id!r} is being advanced by {owner}; try again when it is done")
        self.thread_id = thread_id
        self.owner = owner
        self.until = until


class LeaseLost(StoreError):
    """Another worker has written to the thread since it was loaded, so this worker's fence is void; nothing was
    written."""

    def __init__(self, thread_id: str, fence: int) -> None:
        super().__init__(f"thread {thread_id!r} was taken over by another worker; nothing was written")
        self.thread_id = thread_id
        self.fence = fence


class InvalidStep(StoreError, ValueError):
    """A step that cannot be stored; nothing was written, and the lease is unchanged."""

    def __init__(self, thread_id: str, problem: str) -> None:
        super().__init__(f"nothing was written: {problem}")
        self.thread_id = thread_id
        self.problem = problem


class CheckpointNotFound(StoreError, LookupError):
    """The agent has no such checkpoint, or not on that thread."""

    def __init__(self, checkpoint_id: str, agent_id: str, thread_id: str | None = None) -> None:
        where = "" if thread_id is None else f" on thread {thread_id!r}"
        super().__init__(f"agent {agent_id!r} has no checkpoint {checkpoint_id!r}{where}")
        self.checkpoint_id = checkpoint_id
        self.agent_id = agent_id
        self.thread_id = thread_id


class CheckpointNotPendingError(StoreError):
    """A checkpoint is not pending, or claimed by another worker; nothing was changed.

    ``state`` is the checkpoint's state. ``claimed_by`` is the worker that holds the claim until ``claimed_until``
    (in seconds since 1970), or that has resolved the checkpoint.
    """

    def __init__(
        self,
        checkpoint_id: str,
        state: str,
        claimed_by: str | None = None,
        claimed_until: float | None = None,
    ) -> None:
        if state == "resolved":
            how = "is resolved" if claimed_by is None else f"was resolved by {claimed_by!r}"
            how += " and cannot be used again"
        elif state == "resolving":
            until = "" if claimed_until is None else f" until {_iso(claimed_until)}"
            how = f"is held by {claimed_by!r}{until}; it can be claimed after that, or once it is released"
        else:
            how = "is held by nobody; claim it first"
        super().__init__(f"checkpoint {checkpoint_id!r} {how}")
        self.checkpoint_id = checkpoint_id
        self.state = state
        self.claimed_by = claimed_by
        self.claimed_until = claimed_until


def _iso(seconds: float) -> str:
    """A time as a person reads it, in UTC."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ServiceError(AskfirstError):
    """The service refuses a request."""


class InvalidConfiguration(ServiceError, ValueError):
    """A configuration with faults. ``mistakes`` has a sentence for each, with its line; they quote no secret."""

    def __init__(self, file: str, mistakes: Iterable[str]) -> None:
        self.file = file
        self.mistakes = list(mistakes)
        super().__init__("; ".join(f"{file}: {mistake}" for mistake in self.mistakes))


class CaseNotFound(ServiceError, LookupError):
    """There is no such case, or the caller may not see it. The error does not tell which, so ids cannot be probed."""

    def __init__(self, case_id: str) -> None:
        super().__init__(f"there is no case {case_id[:64]!r} for you")
        self.case_id = case_id


class CaseClosed(ServiceError):
    """The case is answered, or cancelled: the first answer counts."""

    def __init__(self, case_id: str, status: str) -> None:
        super().__init__(f"case {case_id!r} is {status} already; the first answer counts")
        self.case_id = case_id
        self.status = status


class CaseExpired(ServiceError):
    """The case's deadline has passed."""

    def __init__(self, case_id: str) -> None:
        super().__init__(f"the deadline of case {case_id!r} has passed")
        self.case_id = case_id


class CaseHeld(ServiceError):
    """Another decision was made on the case's page. It takes effect in a moment, unless its maker undoes it."""

    def __init__(self, case_id: str) -> None:
        super().__init__(
            f"somebody decided on case {case_id!r} a moment ago; that decision takes effect unless they undo it"
        )
        self.case_id = case_id


class IdempotencyConflict(ServiceError):
    """An Idempotency-Key was used before with another body; use a new key for a new case."""

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key has opened another case; use a new key for a new one")


class InvalidReview(ServiceError, ValueError):
    """A case, or an answer to one, that does not fit. ``faults`` has a sentence for each path at fault, up to 20.

    ``omitted`` says how many more there are.
    """

    def __init__(self, faults: Mapping[str, str], *, omitted: int = 0) -> None:
        self.faults = _first(faults)
        self.omitted = omitted + len(faults) - len(self.faults)
        said = "; ".join(f"{path}: {fault}" for path, fault in self.faults.items())
        super().__init__(said + _more(self.omitted))


class InvalidCallbackUrl(ServiceError, ValueError):
    """A URL to which the service sends no callbacks; ``problem`` says why. The URL may hold a secret and is not
    quoted."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"this callback URL cannot be used: {problem}")
        self.problem = problem


class InlineRefused(ServiceError):
    """An answer that can only be given on the page; ``code`` is the protocol's error code."""

    def __init__(self, case_id: str, code: str, why: str) -> None:
        super().__init__(why)
        self.case_id = case_id
        self.code = code


class EmailCodeRefused(ServiceError):
    """An answer without the code that was sent by e-mail; ``code`` is the protocol's error code."""

    def __init__(self, case_id: str, code: str, why: str) -> None:
        super().__init__(why)
        self.case_id = case_id
        self.code = code


class NotIdentified(ServiceError):
    """The host could not identify the person who answers, so the answer was not accepted."""

    def __init__(self, case_id: str) -> None:
        super().__init__("It could not be found out who you are. Sign in again, or try it later.")
        self.case_id = case_id


class OverBudget(ServiceError):
    """A key, a link or an address has used up a budget: ``budget`` names which of the service's ``Budgets``.

    ``retry_after`` is the number of seconds to wait before another try; None if waiting does not help.
    """

    def __init__(self, budget: str, wait: int | None) -> None:
        self.budget = budget
        self.retry_after = None if wait is None else max(1, -(-wait // 1000))
        said = _OVER_BUDGET.get(budget, "This was done too often.")
        super().__init__(said if wait is None else f"{said} Try again in {self.retry_after} s.")


_OVER_BUDGET = {
    "open_cases": "This key has too many open cases. Cancel some, or wait until people have answered.",
    "stored_bytes": "Too much is stored for this key. Send less, or have whoever runs the service purge old cases.",
    "cases_per_hour": "This key has opened too many cases within an hour.",
    "streams_per_key": "This key follows too many cases at once. End some streams, or poll.",
    "streams_per_address": "Too many streams are open from this address. End some, or poll.",
    "posts_per_minute": "This link was used too often within a minute. Nothing was decided or kept.",
    "proofs_per_hour": "Too many proofs were tried for this case within an hour. Nothing was decided.",
    "code_tries_per_recipient": "Too many codes were tried for this address within an hour. Nothing was decided.",
    "code_tries_per_key": "Too many codes were tried within an hour. Nothing was decided.",
    "tries_per_address": "Too many proofs or codes were tried from where you are. Nothing was decided.",
}


class NotAuthorized(ServiceError):
    """The host's ``authorize`` does not let this person answer. The answer was not accepted; the case stays open."""

    def __init__(self, case_id: str, reason: str = "") -> None:
        super().__init__(reason or "You may not decide this. Nothing was changed; ask somebody who may.")
        self.case_id = case_id
        self.reason = reason


class LinkExpired(ServiceError):
    """A valid link has expired."""

    def __init__(self, case_id: str) -> None:
        super().__init__("The time of this link is over. Ask whoever sent it for a new one.")
        self.case_id = case_id


class ProtocolError(AskfirstError):
    """Something does not conform to HITL Protocol."""


class InvalidProtocolObject(ProtocolError, ValueError):
    """Data that is not a valid object of the protocol. The text quotes no value, because values may be secret.

    ``kind`` names the object. ``faults`` has a sentence for each path at fault (``"hitl.review_url"``), up to 20;
    the path is empty for the object as a whole. ``omitted`` says how many more there are, at least.
    """

    def __init__(self, kind: str, faults: Mapping[str, str]) -> None:
        self.faults = _first(faults)
        self.omitted = len(faults) - len(self.faults)
        super().__init__(f"this is not a valid {kind}: {_by_path(self.faults)}{_more(self.omitted)}")
        self.kind = kind


class InvalidFormData(ProtocolError, ValueError):
    """Answers that do not fit a form. ``faults`` has a sentence for each key, up to 20; it quotes no answer."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = _first(faults)
        self.omitted = len(faults) - len(self.faults)
        super().__init__(f"these answers do not fit the form: {_by_path(self.faults)}{_more(self.omitted)}")


def _first(faults: Mapping[str, str]) -> dict[str, str]:
    """The first faults. A list of thousands helps nobody, and is expensive to write."""
    return dict(islice(faults.items(), FAULTS))


def _more(omitted: int) -> str:
    return f"; and {omitted} more" if omitted else ""


def _by_path(faults: Mapping[str, str]) -> str:
    return "; ".join(f"{path} {fault}" if path else fault for path, fault in faults.items())


class InvalidTransition(ProtocolError):
    """An event that cannot happen to a case in its state."""

    def __init__(self, state: str, event: str) -> None:
        super().__init__(f"{event} cannot happen to a case that is {state}")
        self.state = state
        self.event = event


class InvalidDuration(ProtocolError, ValueError):
    """A text that is not a duration; ``problem`` says why."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"{text[:40]!r} cannot be used as a duration: {problem}")
        self.text = text
        self.problem = problem


class InvalidSecret(ProtocolError, ValueError):
    """A secret or a key that cannot be used; the message does not show it."""


class InvalidSignature(ProtocolError):
    """A signature that is missing, wrong or too old; the signed content must not be trusted."""


class InvalidSkill(ProtocolError, ValueError):
    """A SKILL.md that cannot be used. ``faults`` has a sentence for each thing that is wrong, with its line."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(f"this SKILL.md cannot be used: {'; '.join(faults)}")
        self.faults = tuple(faults)


class ReviewError(AskfirstError):
    """Waiting for the review of another service went wrong."""


class InvalidOffer(ReviewError, ValueError):
    """A service answered 202, and its hitl object cannot be used; nobody was notified.

    ``faults`` has a sentence for each path, such as ``hitl.poll_url``; no value is quoted.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        told = "; ".join(f"{path} {fault}" for path, fault in faults.items())
        super().__init__(f"the service's hitl object cannot be used: {told}")
        self.faults = dict(faults)


_REFUSALS = {
    401: "does not accept the agent's credentials: check them",
    403: "does not allow this agent to ask about the case",
    404: "has no such case, or it belongs to another agent",
    410: "no longer has the case: its deadline has passed",
}


class ReviewRefused(ReviewError):
    """The service refuses to tell this agent the state of the case; ``http_status`` is its HTTP status."""

    def __init__(self, case_id: str, http_status: int) -> None:
        why = _REFUSALS.get(http_status, "refuses")
        super().__init__(f"case {case_id!r}: the service {why} (HTTP {http_status})")
        self.case_id = case_id
        self.http_status = http_status


class ReviewUnreachable(ReviewError):
    """The case's deadline has passed, and the service has not said how it ended; ``problem`` is the last failure."""

    def __init__(self, case_id: str, problem: str) -> None:
        super().__init__(
            f"case {case_id!r} is past its deadline, and the service does not say how it ended: {problem}"
        )
        self.case_id = case_id
        self.problem = problem


class ReviewUnreadable(ReviewError):
    """The service's answers about the case cannot be read; ``problem`` says what is wrong with the last one."""

    def __init__(self, case_id: str, problem: str) -> None:
        super().__init__(
            f"case {case_id!r}: several answers of the service in a row could not be read: {problem}"
        )
        self.case_id = case_id
        self.problem = problem


class ReviewContradiction(ReviewError):
    """A service contradicts what it said about a case before."""

    def __init__(self, case_id: str, problem: str) -> None:
        super().__init__(f"case {case_id!r}: {problem}")
        self.case_id = case_id
        self.problem = problem


class InvalidOutcome(ReviewError):
    """The case is completed, and its result does not fit what was asked. ``faults`` quotes no value."""

    def __init__(self, case_id: str, faults: Mapping[str, str]) -> None:
        told = "; ".join(f"{path} {fault}" for path, fault in faults.items())
        super().__init__(f"the result of case {case_id!r} does not fit what was asked: {told}")
        self.case_id = case_id
        self.faults = dict(faults)


class ResponseTooLarge(ReviewError):
    """An HTTP response is larger than the caller's limit. The request was sent, and may have taken effect."""

    def __init__(self, host: str, http_status: int, limit: int) -> None:
        super().__init__(
            f"{host} answered with HTTP {http_status} and more than {limit} bytes, which is not read"
        )
        self.host = host
        self.http_status = http_status
        self.limit = limit


class RequestInDoubt(ReviewError):
    """A request was sent before a crash, and whether it took effect is unknown; it is not sent again."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"request {key!r} was sent before, and whether it took effect is unknown: look at the service, then "
            "forget the request, or name an idempotency_key that the service honours"
        )
        self.key = key


class DiscoveryFailed(ReviewError):
    """A service's discovery document cannot be had or read; ``problem`` says why."""

    def __init__(self, host: str, problem: str) -> None:
        super().__init__(f"{host}: {problem}")
        self.host = host
        self.problem = problem


class DeliveryError(AskfirstError):
    """A notice did not reach the person. ``problem`` holds no token and no address."""

    def __init__(
        self, delivery: str, problem: str, *, retry_after: float | None = None, permanent: bool = False
    ) -> None:
        super().__init__(f"{delivery}: {problem}")
        self.delivery = delivery
        self.problem = problem
        self.retry_after = retry_after
        """Seconds that the platform asked to wait, where it did."""
        self.permanent = permanent
        """Whether a retry of the same notice would fail again, because something has to be corrected first."""


class ChatError(AskfirstError):
    """A chat server was configured without an agent or without a chat."""


class ResumeLater(AskfirstError):
    """A thread cannot be resumed yet, which is not a failure. The resumer that raises this is called again after
    ``seconds``."""

    def __init__(self, why: str, seconds: float = 1.0) -> None:
        super().__init__(why)
        self.seconds = seconds


class ResumeFailed(AskfirstError):
    """A thread was resumed, and its run failed."""


class HitlError(AskfirstError):
    """Asking a person went wrong."""


class HitlInvalidRequest(HitlError, ValueError):
    """The arguments make no valid request; nobody was asked, and nothing was stored."""


class HitlConcurrencyError(HitlError):
    """A channel was asked while it, or its thread, has a pending request already."""

    def __init__(self, question_id: str) -> None:
        super().__init__(f"request {question_id!r} is still pending; one thing is asked at a time")
        self.question_id = question_id


class HitlStaleAnswer(HitlError):
    """An answer or a cancel for a request that is not, or no longer, pending; it changed nothing.

    ``status`` says how the request was settled, where that is known. ``is_unnamed`` means that there were several
    requests under this id, and the answer does not say which of them was shown: give the request's ``digest``.
    """

    def __init__(self, question_id: str, status: str | None = None, *, is_unnamed: bool = False) -> None:
        how = f"was already settled ({status})" if status else "is not the one that is pending"
        if is_unnamed:
            how = (
                "was asked anew under the same id, and this answer does not say which request it is for: "
                "name the digest of the one that was shown (digest=request.digest)"
            )
        super().__init__(f"request {question_id!r} {how}; this answer changes nothing")
        self.question_id = question_id
        self.status = status
        self.is_unnamed = is_unnamed


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


class WrongAgent(HitlError):
    """An agent cannot resume or end a run of another agent: the agents' ids differ, or this agent lacks the tool of a
    pending call.

    Nothing was run, written or settled. ``run_by`` is the id of the agent whose run it is, or ``tool_name`` the tool
    of the call that waits for a person.
    """

    def __init__(
        self, thread_id: str, agent_id: str, *, run_by: str | None = None, tool_name: str | None = None
    ) -> None:
        why = f"is in a run of the agent {run_by!r}, and this one is {agent_id!r}"
        use = f"use an agent with id={run_by!r}"
        if tool_name is not None:
            why = f"waits for a person about {tool_name!r}, a tool that the agent {agent_id!r} does not have"
            use = "use one that has it"
        super().__init__(
            f'thread {thread_id!r} {why}; {use}, or end the run with prompt(..., on_pending="supersede"). '
            "Nothing was changed"
        )
        self.thread_id = thread_id
        self.agent_id = agent_id
        self.run_by = run_by
        self.tool_name = tool_name


class HitlDurabilityNotGuaranteed(HitlError):
    """A custom tool's body asked through a durable channel. After a restart, the body would run from its start
    again."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"tool {tool_name!r} asks a person inside its body; after a restart the body would begin anew. "
            "Ask before the tool (middleware) or with ask_user, or pass allow_inside_custom_tool=True"
        )
        self.tool_name = tool_name


class Denied(HitlError):
    """The call does not run: a person, the policy or the time-out said no.

    `Gate.call` returns it; a guarded function raises it. ``by`` is who said no, where a person did.
    """

    def __init__(self, key: str, reason: str, by: str | None = None) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason
        self.by = by


class ResultNotKept(HitlError):
    """The call ran, and its result could not be stored: not JSON, or larger than 1 MB. It does not run again."""

    def __init__(self, key: str, digest: str, problem: str) -> None:
        super().__init__(
            f"the call {key!r} ran before, and its result was not kept ({problem}; SHA-256 {digest}); it does not "
            "run again under this key"
        )
        self.key = key
        self.digest = digest


class FailedBefore(HitlError):
    """The call ran before and raised. It does not run again under its key, because it may have had effects."""

    def __init__(self, key: str, error: str) -> None:
        super().__init__(
            f"the call {key!r} ran before and failed: {error}; use another key to have it decided anew"
        )
        self.key = key
        self.error = error


class GrantLost(HitlError):
    """A body ended after its process had lost the grant, for example because the process had been suspended.

    The result was not recorded. Another process may have run the call since, or a person is asked what to do.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the grant of {key!r} was lost while its body ran, so its end was not recorded; the call is in doubt"
        )
        self.key = key


class StillRunning(HitlError):
    """Another process runs the call, and the call did not end within the caller's ``wait``."""

    def __init__(self, key: str) -> None:
        super().__init__(f"another process runs the call {key!r} just now; call again to get its result")
        self.key = key


class KeyConflict(HitlError):
    """A key was used before for another call: with other arguments, or of another function."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the key {key!r} was used for another call before; a key stands for one call with its arguments, so "
            "choose one that no other call has"
        )
        self.key = key


class NotApproved(HitlError):
    """Nobody has approved the call with these arguments, so its body did not begin."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the call {key!r} is not approved with these arguments, so it does not begin")
        self.key = key


class HitlControlException(_Portable):
    """A signal that stops or interrupts a run, such as detaching the agent.

    It derives from ``BaseException``, like ``asyncio.CancelledError``, so that no ``except Exception``
    in a tool, a middleware or a listener can swallow it.
    """


class HitlCancelled(HitlControlException):
    """The host cancelled the request; ``answered_by`` and ``via`` say who did, and where, if that is known."""

    def __init__(
        self, reason: str = "cancelled", *, answered_by: str | None = None, via: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answered_by = answered_by
        self.via = via


class HitlTimedOut(HitlControlException):
    """Nobody answered within ``seconds``."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(
            "nobody answered in time" if seconds is None else f"nobody answered within {seconds:g} s"
        )
        self.seconds = seconds


class HitlDetached(HitlControlException):
    """The agent was detached while it waited, and the request stays open; or another process resumed the thread.

    The message says which of the two, and becomes the ``reason`` of the run's end.
    """

    def __init__(self, reason: str = "it waits for a person") -> None:
        super().__init__(reason)


class HitlPaused(HitlControlException):
    """The run stops here: its calls wait for people, and no code of this process waits for the answers."""


class HitlAborted(HitlControlException):
    """The agent's pending request was aborted, or the signal given with it was set."""

    def __init__(self, reason: str = "aborted") -> None:
        super().__init__(reason)
        self.reason = reason


class Pending(HitlControlException):
    """A person has not decided yet. A later call with the same key acts on the decision.

    `Gate.call` returns it; a guarded function raises it. ``case`` is the id of the request's page, ``link`` the
    page's address, or None if the gate was given no service's address. The link has no token, so nobody can answer
    with the link alone.
    """

    def __init__(self, key: str, request: Any, case: str, link: str | None = None) -> None:
        super().__init__(f"a person has to decide on {key!r} first (case {case})")
        self.key = key
        self.request = request
        self.case = case
        self.link = link
