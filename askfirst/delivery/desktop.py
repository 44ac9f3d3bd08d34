"""The desktop delivery: opens the review page in the browser of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from threading import Thread

from askfirst.delivery.base import Ended, Notice, Sent, is_web_link
from askfirst.errors import DeliveryError

_SECONDS = 5.0
"""A command that still runs after this time is the browser itself, so the page was opened."""


def has_display(environ: Mapping[str, str]) -> bool:
    """Whether a browser could show a window here."""
    return sys.platform in ("darwin", "win32") or any(
        environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


class DesktopDelivery:
    """Opens the link in the default browser: with ``open``, ``xdg-open`` or Windows' own function, without a shell.

    Only web addresses are opened. A notice without a link does nothing.
    """

    name = "desktop"
    shows_buttons = False

    async def send(self, notice: Notice) -> Sent:
        """Open the page; a reminder opens it once more."""
        if notice.review_url is not None:
            if not is_web_link(notice.review_url):
                raise DeliveryError(self.name, "the link is not a web address", permanent=True)
            await asyncio.to_thread(self._open, notice.review_url)
        return Sent(self.name, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Do nothing: the open page shows the end itself."""

    def _open(self, url: str) -> None:
        if sys.platform == "win32":
            try:
                os.startfile(url)  # noqa: S606  (a web address, checked)
            except OSError as error:
                raise DeliveryError(self.name, "Windows did not open the browser") from error
            return
        if not has_display(os.environ):
            raise DeliveryError(
                self.name,
                "there is no display here: neither DISPLAY nor WAYLAND_DISPLAY is set",
                permanent=True,
            )
        opener = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
        if opener is None:
            raise DeliveryError(self.name, "there is no xdg-open here to open a browser with", permanent=True)
        self._run([opener, url])

    def _run(self, command: list[str]) -> None:
        nowhere = subprocess.DEVNULL
        try:
            process = subprocess.Popen(  # noqa: S603  (no shell, a checked address)
                command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
            )
        except OSError as error:
            raise DeliveryError(self.name, "the browser could not be started") from error
        try:
            code = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            Thread(
                target=process.wait, daemon=True
            ).start()  # waits for the process, so that it leaves no zombie
            return
        if code:
            raise DeliveryError(self.name, f"the browser was not opened (exit code {code})")
