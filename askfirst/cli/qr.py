"""A link as a QR code in a terminal, for the phone in one's other hand."""

from __future__ import annotations

from askfirst.delivery.qr import print_qr

__all__ = ["print_qr"]
