"""Debian's packages, installed for the tests if permissions allow it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kit.throwaway_servers import shorten


def install(package: str, is_there: Callable[[], object], say: Callable[[str], None]) -> str | None:
    """Install a package. ``is_there`` says whether the program is installed afterwards. Returns the reason if not.

    apt-get's exit status does not matter if the program is installed: the package may fail to start its own service.
    """
    if os.environ.get("ASKFIRST_TEST_INSTALL") == "no":
        return "ASKFIRST_TEST_INSTALL=no forbids to install it"
    if not shutil.which("apt-get"):
        return "there is no apt-get to install it with"
    sudo: list[str] = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and not (shutil.which("sudo") and _call(*sudo, "true").returncode == 0):
        return f"we are not root and may not sudo (apt-get install {package} would do)"
    say(f"Installing Debian's {package} for the tests (once) …")
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    with Path(sys.prefix, "askfirst-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _call(*apt, "-o", "Acquire::Retries=0", "update")
        done = _call(*apt, "install", "--yes", "--no-install-recommends", package)
    return None if is_there() else f"apt-get could not install {package}: {shorten(done.stdout)}"


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def in_ci() -> bool:
    """Whether this is a CI run, in which a test fails if its server or browser is missing."""
    return os.environ.get("CI", "").lower() in ("1", "true")
