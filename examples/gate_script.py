"""A plain script behind the gate: run it, let a person decide, run it again.

The first run asks and ends; no process waits meanwhile. A person decides on the page (``askfirst serve``, ``askfirst
link``) or by ``askfirst answer``. The next run acts on the decision, and every later run returns the same result:
nothing is paid twice. It needs the ``service`` extra.
"""

from __future__ import annotations

import os
import sys

from askfirst import Denied, Pending, SyncGate

gate = SyncGate(os.environ.get("ASKFIRST_DATABASE_URL", "sqlite:///askfirst.db"))


def key(order: str, cents: int) -> str:
    """The key of the call: one refund for each order."""
    return f"refund-{order}"


@gate.guarded(
    sentence="Pay back {cents:money:EUR} for order {order}",
    risk="high",
    key=key,
    wait=0,
)
def refund(order: str, cents: int) -> str:
    """Pay money back to a customer."""
    print(f"(refund runs: {cents / 100:.2f} EUR for {order})")
    return f"{cents / 100:.2f} EUR were sent"


def main(order: str = "A-1042") -> None:
    """Ask for approval, or act on the decision."""
    try:
        print(refund(order, 4900))
    except Pending as pending:
        print(f"a person has to decide first: {pending.key}")
    except Denied as denied:
        print(f"not paid: {denied.reason}")


if __name__ == "__main__":
    with gate:
        main(*sys.argv[1:])
