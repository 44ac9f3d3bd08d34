"""What the end of a case, and of the call that it let run, means for the messages about it; parts of transactions."""

from __future__ import annotations

from sqlalchemy import Integer, literal, literal_column, update

from askfirst.store.case_tables import deliveries
from askfirst.store.statement import Statement, Transaction, param

_D = deliveries.c
_OF_CASE = _D.case_id == param("case_id")
_TO_UPDATE = {
    "state": literal("updating"),
    "due_at": param("now"),
    "attempts": literal_column("0", Integer),
    "write_id": param("write_id"),
}
UPDATE_SENT = Statement(update(deliveries).where(_OF_CASE, _D.state == literal("sent")).values(_TO_UPDATE))
UPDATE_AGAIN = Statement(
    update(deliveries)
    .where(_OF_CASE, _D.state == literal("done"))
    .values({**_TO_UPDATE, "state": literal("again")})
)
UPDATE_ANEW = Statement(
    update(deliveries).where(_OF_CASE, _D.state == literal("updating")).values(_TO_UPDATE)
)
DROP_DUE = Statement(
    update(deliveries)
    .where(_OF_CASE, _D.state == literal("due"))
    .values(state=literal("dropped"), due_at=param("never"), write_id=param("write_id"))
)


def case_ended(case_id: str, now: int, write_id: int) -> Transaction[None]:
    """Make the updates of sent messages due, and drop the messages that were not sent yet.

    A message that is being sent at the moment is updated as soon as its sending is recorded.
    """
    yield UPDATE_SENT, {"case_id": case_id, "now": now, "write_id": write_id}
    yield DROP_DUE, {"case_id": case_id, "never": None, "write_id": write_id}


def call_ended(case_id: str, now: int, write_id: int) -> Transaction[None]:
    """Make another update of each message due, with the result of the call; an update under way is repeated."""
    yield UPDATE_ANEW, {"case_id": case_id, "now": now, "write_id": write_id}
    yield UPDATE_AGAIN, {"case_id": case_id, "now": now, "write_id": write_id}
