"""The limit on open files, for thousands of connections in one process."""

from __future__ import annotations

import resource


def allow_many() -> None:
    """Raise the limit on open files as far as the system allows, up to 20,000."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
