"""How much a key, a link or an address may use of the service, before others would have less of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from assent.errors import ServiceError
from assent.store.usage import Allowance
from assent.store.windows import Window

MINUTE, HOUR = 60_000, 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The service's budgets, counted over all processes on one database. Each is a whole number from 1 up.

    The defaults are what nobody meets who asks people. Who runs the service may change them.
    """

    open_cases: int = 1_000
    """Cases of one key that are open at once."""
    cases_per_hour: int = 1_000
    """Cases that one key opens within an hour: how much it can wear people out."""
    stored_bytes: int = 1_000_000_000
    """Bytes of all cases of one key, until they are purged."""
    streams_per_key: int = 200
    """Event streams of one key that are open at once."""
    streams_per_address: int = 400
    """Event streams from one network address that are open at once."""
    posts_per_minute: int = 60
    """Answers, drafts, steps and wishes for codes by one link, within a minute."""
    proofs_per_hour: int = 20
    """Answers with proofs that are looked at for one case, within an hour."""
    codes_per_case: int = 5
    """Codes that are sent by e-mail for one case, within an hour."""
    codes_per_recipient: int = 20
    """Codes that are sent to one e-mail address, within an hour."""
    codes_per_key: int = 200
    """Codes that are sent for all cases of one key, within an hour."""
    codes_per_address: int = 100
    """Codes that are sent at the wish of one network address, within an hour."""
    code_tries_per_recipient: int = 50
    """Codes that are tried for one e-mail address, within an hour."""
    code_tries_per_key: int = 500
    """Codes that are tried for all cases of one key, within an hour."""
    tries_per_address: int = 200
    """Codes and proofs that are tried from one network address, within an hour."""
    prefills_per_minute: int = 100
    """Values that are fetched for the fields of one case, within a minute."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value: object = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ServiceError(
                    f"the budget {each.name} is a whole number from 1 up, and {value!r} is none"
                )

    @property
    def allowance(self) -> Allowance:
        """What a key may have stored."""
        return Allowance(self.open_cases, self.stored_bytes, Window(self.cases_per_hour, HOUR))


def read_budgets(given: Iterable[str]) -> Budgets:
    """Budgets from texts such as ``open_cases=50``; raises `ServiceError` for one that is none."""
    known = [each.name for each in fields(Budgets)]
    values: dict[str, int] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            raise ServiceError(f"there is no budget {name[:64]!r}; there are {', '.join(known)}")
        if not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise ServiceError(f"the budget {name} is a whole number from 1 up, as in {name}=50")
        values[name] = int(value)
    return Budgets(**values)
