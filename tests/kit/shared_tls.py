"""The machine's certificates, read once for all HTTP clients of a process: reading them takes longer than most tests.

`begin` is called by conftest.py, and by the kit's programs from which others are forked.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from pathlib import Path
from typing import Any

import httpcore2

_real: Any = httpcore2.default_ssl_context


def begin() -> None:
    """From now on, clients without their own certificates share one TLS context, until the certificates change."""
    httpcore2.default_ssl_context = _shared
    _shared()


def _shared(*, _trust_env: bool = True) -> ssl.SSLContext:
    named = tuple(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")) if _trust_env else ()
    if any(named):
        return _read(_trust_env, named)
    # The real one looks at files here, so this one does: in the event loop it fails a test.
    files = [Path(path) for path in ssl.get_default_verify_paths()[3::2]]
    return _read(_trust_env, tuple(path.stat().st_mtime_ns for path in files if path.exists()))


@cache
def _read(trust_env: bool, _: object) -> ssl.SSLContext:
    return _real(_trust_env=trust_env)
