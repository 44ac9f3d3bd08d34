"""A Python command that forks programs from a process that has loaded the project, so that they start quickly.

``[*warm_python(), "-m", "askfirst.cli", "pending"]`` is a command like the one with `sys.executable`: a process
with its own arguments, streams, folder and environment, and with a program's exit code. It does not show what a
program loads; tests of that, and one test of every program, start a new interpreter.

The process that is started is a stand-in, warm_stand_in.py; the program is forked from warm_zygote.py, which is
started when it is first needed and ends with the tests.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from kit.paths import with_kit

HERE = Path(__file__).parent

# Runs its arguments with the given terminal as the controlling terminal, from which Ctrl-C comes. A background
# process, as these tests may be, ignores Ctrl-C, and so do the processes that it starts.
TAKE_TERMINAL = (
    "import fcntl, os, signal, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "signal.signal(signal.SIGINT, signal.SIG_DFL);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def warm_python(*, terminal: bool = False, like: Path | None = None) -> list[str]:
    """The command to use in place of `sys.executable`. With ``terminal``, Ctrl-C comes from the program's input.

    ``like`` is a script: then what it imports is loaded, in place of the whole project.
    """
    if not hasattr(os, "pidfd_open"):  # it is how the zygote learns of an end; only Linux has it
        return [sys.executable, *(("-c", TAKE_TERMINAL) if terminal else ())]
    options = ["--terminal"] if terminal else []
    return [sys.executable, "-IS", str(HERE / "warm_stand_in.py"), _zygote(like), *options]


@cache
def _zygote(like: Path | None) -> str:
    """The address at which the zygote listens; it may still be loading."""
    folder = tempfile.TemporaryDirectory(prefix="askfirst-warm-")
    address = f"{folder.name}/zygote"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        process = subprocess.Popen(  # noqa: S603
            [
                sys.executable,
                str(HERE / "warm_zygote.py"),
                str(listener.fileno()),
                *([] if like is None else [str(like)]),
            ],
            stdin=subprocess.PIPE,
            env=with_kit(),
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    assert process.stdin is not None
    atexit.register(folder.cleanup)
    atexit.register(process.communicate)  # the end of its input is the end of it
    return address
