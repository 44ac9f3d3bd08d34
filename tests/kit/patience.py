"""How long a test waits for what has to come: long enough for a machine on which much else is going on.

It is no measure of anything. What comes, comes at once; what does not come has failed after three minutes.
"""

from __future__ import annotations

PATIENCE = 180.0

WITHIN_A_LEASE = 25.0
"""Where what must not be waited for is that a lease of 30 seconds lapses."""
