"""The time-out of waits in tests: long enough for a busy machine.

It measures nothing. An event that has to come usually comes at once; if it has not come after three minutes, the test
fails.
"""

from __future__ import annotations

PATIENCE = 180.0

WITHIN_A_LEASE = 25.0
"""The time-out of a wait that must end before a lease of 30 seconds lapses."""
