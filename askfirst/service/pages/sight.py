"""Sight: all that a page needs to know to show one case to whoever looks at it now."""

from __future__ import annotations

from dataclasses import dataclass

from askfirst.service.pages.decision import Decision
from askfirst.service.pages.rows import ALL, View
from askfirst.service.standing import Previous, Standing, Step


@dataclass(frozen=True, slots=True)
class Second:
    """The second step: what has to be sent with the decision to make it count.

    ``value`` is what the form sends as ``confirmed``; it is bound to the case, the action and the data. ``fields``
    are the form's other fields, to be sent again as they were. ``decision`` has the arguments that will run.
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

    ``nonce`` goes into every form (a hidden field ``nonce``): the same form sent twice is one decision.
    ``confirm_value`` is what the field ``confirmed`` has for the acting decision without changes, so that a script
    can show the second step as a dialog; ``second`` is that step where the server asks for it now.
    """

    decision: Decision
    standing: Standing
    organisation: str
    reader: str | None
    """As whom they decide: a name or an address that was verified; None for whoever has the link."""
    nonce: str
    hold_seconds: float
    path: str
    """``{base_path}/review/{id}``, to which ``/respond``, ``/undo``, ``/live`` and ``/next`` are appended."""
    previous: Previous | None = None
    before: tuple[Step, ...] = ()
    confirm_value: str | None = None
    second: Second | None = None
    view: View = ALL
