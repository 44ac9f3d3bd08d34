"""A provider of proofs for tests: a badge makes a code for one case, action and challenge."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

from askfirst.clock import Clock, SystemClock
from askfirst.protocol import EvidenceRequirement, VerificationEvidence
from askfirst.service.case import Case
from askfirst.service.verification import BrowserChallenge, Finding

POLICY: dict[str, Any] = {
    "mode": "required",
    "required_for": ["browser_submit"],
    "requirements": {"any_of": [{"all_of": [{"proof_type": "proof_of_human", "provider": "badge"}]}]},
    "binding": {
        "case_id": True,
        "action": True,
        "challenge": "c-1",
        "freshness_seconds": 60,
        "single_use": True,
    },
    "fallback": {"on_missing": "browser_review", "on_invalid": "browser_review"},
}


@dataclass
class Badges:
    """The provider. ``good_anywhere`` accepts a code for any case and action; with ``fails`` it raises an error."""

    clock: Clock = field(default_factory=SystemClock)
    good_anywhere: bool = False
    fails: bool = False
    url: str | None = "https://badges.example/new"
    seen: list[VerificationEvidence] = field(default_factory=list[VerificationEvidence])

    def make(self, case_id: str, action: str, number: int = 1) -> str:
        """The code that a person's badge shows now."""
        made = f"{number}-{self.clock.now():.3f}"
        return f"{made}-{self._sign(made, case_id, action)}"

    async def browser_challenge(
        self, case: Case, requirement: EvidenceRequirement
    ) -> BrowserChallenge | None:
        if self.fails:
            raise RuntimeError("no badges today")
        return BrowserChallenge("Code from your badge", "Hold it to the case <b>c-1</b>.", self.url)

    async def verify(self, evidence: VerificationEvidence, case: Case, action: str) -> Finding | None:
        self.seen.append(evidence)
        shown = str(evidence.presentation)
        made, _, signature = shown.rpartition("-")
        expected = self._sign(made, case.case_id, action)
        if not (self.good_anywhere or hmac.compare_digest(signature, expected)):
            return None
        return Finding(assurance="high", made_at=float(made.partition("-")[2]))

    def _sign(self, *parts: str) -> str:
        return hmac.new(b"the badges' key", "\0".join(parts).encode(), hashlib.sha256).hexdigest()[:16]
