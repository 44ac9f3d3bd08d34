"""The stand-in for a program that warm_zygote.py runs: it passes on its streams, arguments and environment, and exits
with the program's exit code."""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main(address: str, arguments: list[str]) -> None:
    with socket.socket(socket.AF_UNIX) as zygote:
        zygote.connect(address)
        order = marshal.dumps((arguments, os.getcwd(), dict(os.environ)))  # noqa: PTH109  (pathlib is slow to load)
        socket.send_fds(zygote, [len(order).to_bytes(4, "big")], [0, 1, 2])
        zygote.sendall(order)
        pid = int.from_bytes(zygote.recv(4), "big")
        for number in FORWARDED:
            signal.signal(number, lambda received, _: os.kill(pid, received))
        for descriptor in (0, 1, 2):  # so that a pipe ends when the program ends it
            os.close(descriptor)
        code = int.from_bytes(zygote.recv(4), "big", signed=True)
    if code < 0:
        if -code in FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
