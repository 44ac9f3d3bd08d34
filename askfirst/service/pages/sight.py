"""Sight: a case as one reader sees it now; everything that its page needs."""

from __future__ import annotations

from dataclasses import dataclass

from askfirst.service.case_state import CaseState, Previous, Step, Trail
from askfirst.service.pages.decision import Decision
from askfirst.service.pages.row import ALL, View
from askfirst.service.risk_patterns import NO_PATTERNS, RiskPatterns


@dataclass(frozen=True, slots=True)
class Second:
    """The second step: what a person has to send again so that a risky decision counts.

    ``value`` is what the form posts as ``confirmed``; it is bound to the case, the action and the data. ``fields``
    are the fields of the first form, which the second posts again. ``decision`` has the arguments that will run.
    """

    action: str
    value: str
    decision: Decision
    note_field: str
    note: str
    needs_reason: bool
    needs_tick: bool
    needs_code: bool
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """A case as one reader sees it.

    ``nonce`` is a hidden field of every form and works as an idempotency key: the same form posted twice is one
    decision. ``confirm_value`` is the value of ``confirmed`` for the acting decision without edits. A script needs it
    to show the second step as a dialog. ``second`` is set if the server shows the second step as a page now.
    """

    decision: Decision
    standing: CaseState
    organisation: str
    reader: str | None
    """The verified name or e-mail address of the person who decides; None for anybody with the link."""
    nonce: str
    hold_seconds: float
    path: str
    """``{base_path}/review/{id}``, to which ``/respond``, ``/undo``, ``/live`` and ``/next`` are appended."""
    previous: Previous | None = None
    before: tuple[Step, ...] = ()
    trail: Trail | None = None
    """What the audit trail says of a case that is held or has ended."""
    confirm_value: str | None = None
    second: Second | None = None
    view: View = ALL
    quick_reasons: tuple[str, ...] = ()
    """The operator's reasons to reject; empty for the page's own."""
    patterns: RiskPatterns = NO_PATTERNS
    """The service's risk patterns, for arguments that the reader has changed."""
    step_up_lack: str | None = None
    """Why this reader cannot approve at all: ``mail`` or ``address`` (`friction.step_up_lack`); None if they can."""
    edits_from: int = 0
    """The first of many arguments that a page has fields for, if it is the page to edit them."""
