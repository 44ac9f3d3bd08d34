"""Seals: they bind an answer to arguments that a person was not shown, and give nothing of them away.

A seal is a salted digest of the arguments with nothing masked or left out. It is stored with the request, as the
arguments themselves are stored with the call.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from pydantic import BaseModel

from assent.agent.asking import is_about
from assent.agent.masked import whole
from assent.agent.run import Thread
from assent.agent.tools import json_object
from assent.digests import canonical_json
from assent.messages import JsonObject
from assent.requests import seal_in


def seal_of(args: BaseModel, shown: JsonObject, known: str | None = None) -> str | None:
    """The seal of arguments; None if all of them is shown.

    With ``known``, a seal of the same call, there is always one: it is equal if the arguments are.
    """
    everything = whole(args, shown, made=False)
    if known is None and everything == shown:
        return None
    salt = secrets.token_hex(16) if known is None else known.partition(":")[0]
    digest = hmac.new(salt.encode(), canonical_json(json_object(everything)), hashlib.sha256)
    return f"{salt}:{digest.hexdigest()}"


def seal_on(thread: Thread, call_id: str, args: BaseModel, shown: JsonObject) -> str | None:
    """The seal of a call's arguments, to be compared with those of what was asked about it before."""
    return seal_of(args, shown, known_seal(thread, call_id) if thread.requests else None)


def known_seal(thread: Thread, call_id: str) -> str | None:
    """A seal of what was asked about a call, the approval's first."""
    approval = thread.requests.get(call_id)
    if approval is not None and (seal := seal_in(approval.request)) is not None:
        return seal
    for known in thread.requests.values():
        if known is not approval and is_about(known.question_id, call_id) and seal_in(known.request):
            return seal_in(known.request)
    return None
