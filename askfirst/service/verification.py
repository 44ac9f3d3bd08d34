"""Verification of proofs that a person decided, such as with a passkey.

A provider checks each proof. The service checks the proof's binding to case and action, its age and its single use.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Protocol, cast, runtime_checkable

from pydantic_core import to_json

from askfirst import limits
from askfirst.clock import Clock, SystemClock, to_milliseconds
from askfirst.concurrency import finish
from askfirst.errors import InlineRefused
from askfirst.protocol import (
    EvidenceBinding,
    EvidenceRequirement,
    VerificationEvidence,
    VerificationPolicy,
    VerificationResult,
    VerifiedEvidence,
)
from askfirst.service.budgets import Spending
from askfirst.service.case import Case, iso
from askfirst.store import cases as case_store
from askfirst.store.engine import Engine

logger = logging.getLogger("askfirst.service")
PROVIDER_SECONDS = 10.0
MOST_PROOFS = limits.PROOFS
_LEVELS = ("low", "medium", "high")


class Finding:
    """A provider's result for a valid proof: its level of assurance, and when it was made (seconds since 1970)."""

    def __init__(self, *, assurance: str = "medium", made_at: float) -> None:
        self.assurance = assurance
        self.made_at = made_at


class VerificationProvider(Protocol):
    """Verifies the proofs of one provider, such as a passkey or an identity service."""

    async def verify(self, evidence: VerificationEvidence, case: Case, action: str) -> Finding | None:
        """The result for a proof; None if it is invalid, or was made for another case or action."""
        ...


@dataclass(frozen=True, slots=True)
class BrowserChallenge:
    """What the page asks a person for, as plain text: the name of the proof, and how to get it.

    ``url`` is the page where the proof is made; it must begin with ``https://``.
    """

    label: str
    hint: str | None = None
    url: str | None = None


@runtime_checkable
class BrowserProvider(VerificationProvider, Protocol):
    """A provider whose proofs can be entered on the page, as text.

    `verify` gets that text as the evidence's ``presentation``. The evidence's binding names the case, the chosen
    action and the policy's challenge; the provider has to check that the proof was made for these.
    """

    async def browser_challenge(
        self, case: Case, requirement: EvidenceRequirement
    ) -> BrowserChallenge | None:
        """What to ask the person for; None if the page cannot take such a proof."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """The proofs that a page asks for, by the number of their field.

    ``options`` are sets of field numbers. Filling in one set is enough; no set means that the page cannot ask for
    enough proofs. If ``required`` is False, an answer counts without proofs, too.
    """

    challenges: Mapping[int, BrowserChallenge]
    options: tuple[tuple[int, ...], ...]
    required: bool


class Verifier:
    """Checks evidence against a case's policy: each proof bound to case and action, fresh, and used once."""

    def __init__(
        self,
        providers: Mapping[str, VerificationProvider],
        engine: Engine,
        clock: Clock | None = None,
        spending: Spending | None = None,
    ) -> None:
        self._providers = providers
        self._engine = engine
        self._clock = clock or SystemClock()
        self._spending = spending

    async def check(
        self,
        case: Case,
        mode: str,
        action: str,
        evidence: Sequence[VerificationEvidence],
        address: str | None = None,
    ) -> VerificationResult | None:
        """Verify the proofs of an answer; None if the case asks for none in this ``mode``.

        Raises `InlineRefused` if the proofs are not enough, and `OverBudget`, before any is verified, if too many
        were tried.
        """
        policy = _policy(case, mode)
        if policy is None:
            return None
        if evidence and self._spending is not None:
            await self._spending.proof(case, address)
        accepted: list[Accepted] = []
        for each in evidence if len(evidence) <= MOST_PROOFS else ():
            verified = await self._verified(case, policy, action, each)
            if verified is not None:
                accepted.append((each.format, verified))
        missing = _missing_proofs(policy, accepted)
        if missing and policy.mode != "optional":
            code = "verification_failed" if evidence else "verification_required"
            raise InlineRefused(case.case_id, code, "A proof that a person decided is needed.")
        return VerificationResult(
            satisfied=not missing,
            verified_evidence=[verified for _, verified in accepted],
            missing_requirements=missing or None,
        )

    async def asked(self, case: Case) -> Asked | None:
        """The proofs that the page of a case asks for; None if it needs none."""
        policy = _policy(case, "browser_submit")
        if policy is None:
            return None
        asking = self._page_requirements(policy)
        made = await asyncio.gather(*(self._challenge(case, name, needed) for name, needed in asking))
        challenges = {place: challenge for place, challenge in enumerate(made) if challenge is not None}
        can = {place: asking[place] for place in challenges}
        enough = tuple(islice(_sufficient_sets(policy, can), MOST_PROOFS))
        return Asked(challenges, enough, policy.mode != "optional")

    def evidence(self, case: Case, action: str, proofs: Mapping[int, str]) -> list[VerificationEvidence]:
        """The proofs that a person has entered on the page, by field number, as evidence for an action."""
        policy = _policy(case, "browser_submit")
        if policy is None:
            return []
        challenge = policy.binding.challenge
        bound = EvidenceBinding(case_id=case.case_id, action=action, challenge=challenge)
        return [
            VerificationEvidence(
                proof_type=needed.proof_type,
                provider=provider,
                format=(needed.presentation_formats or ["provider_opaque"])[0],
                presentation=proofs[place],
                binding=bound,
            )
            for place, (provider, needed) in enumerate(self._page_requirements(policy))
            if proofs.get(place)
        ]

    def _page_requirements(self, policy: VerificationPolicy) -> list[tuple[str, EvidenceRequirement]]:
        """The provider and requirement of each kind of proof that the policy asks for and the page can take."""
        found: dict[tuple[str, str], EvidenceRequirement] = {}
        for option in policy.requirements.any_of:
            for needed in option.all_of:
                for name, provider in sorted(self._providers.items()):
                    if needed.provider in (None, name) and isinstance(provider, BrowserProvider):
                        found.setdefault((name, needed.proof_type), needed)
        return [(name, needed) for (name, _), needed in found.items()][:MOST_PROOFS]

    async def _challenge(self, case: Case, name: str, needed: EvidenceRequirement) -> BrowserChallenge | None:
        """What a provider asks for; None if the provider raises or takes too long."""
        provider = cast(BrowserProvider, self._providers[name])
        try:
            async with asyncio.timeout(PROVIDER_SECONDS):
                challenge = await provider.browser_challenge(case, needed)
        except Exception as error:
            logger.warning("the verification provider %r failed: %s", name, type(error).__name__)
            return None
        if challenge is not None and not (challenge.url or "https://").startswith("https://"):
            logger.warning("the verification provider %r gave a URL that is not https", name)
            return replace(challenge, url=None)
        return challenge

    async def _verified(
        self, case: Case, policy: VerificationPolicy, action: str, evidence: VerificationEvidence
    ) -> VerifiedEvidence | None:
        """The verified proof; None if it is refused, or if its provider raises or takes too long (fail closed)."""
        provider = self._providers.get(evidence.provider)
        binding, bound = policy.binding, evidence.binding
        for_case = bound.case_id == case.case_id
        for_action = bound.action == action
        if provider is None or (binding.case_id and not for_case) or (binding.action and not for_action):
            return None
        if binding.challenge is not None and bound.challenge != binding.challenge:
            return None
        try:
            async with asyncio.timeout(PROVIDER_SECONDS):
                finding = await provider.verify(evidence, case, action)
            if finding is not None and finding.assurance not in _LEVELS:
                raise ValueError("no such assurance")
        except Exception as error:
            logger.warning("the verification provider %r failed: %s", evidence.provider, type(error).__name__)
            return None
        now = self._clock.now()
        if finding is None or not 0 <= now - finding.made_at <= binding.freshness_seconds:
            return None
        if binding.expires_at is not None and now > binding.expires_at.timestamp():
            return None
        if binding.single_use:
            spend = partial(case_store.spend, _digest(evidence), to_milliseconds(now))
            if not await finish(self._engine.write(spend)):
                return None
        return VerifiedEvidence.model_validate(
            {
                "proof_type": evidence.proof_type,
                "provider": evidence.provider,
                "assurance_level": finding.assurance,
                "bound_to_case": for_case,
                "bound_to_action": for_action,
                "fresh": True,
                "single_use_enforced": binding.single_use,
                "verified_at": iso(now),
            }
        )


def _policy(case: Case, mode: str) -> VerificationPolicy | None:
    """The verification policy of a case for this mode of answering; None if it asks for no proof."""
    if case.verification_policy is None:
        return None
    policy = VerificationPolicy.model_validate(case.verification_policy)
    return policy if mode in policy.required_for or policy.mode == "optional" else None


def _sufficient_sets(
    policy: VerificationPolicy, can: Mapping[int, tuple[str, EvidenceRequirement]]
) -> Iterator[tuple[int, ...]]:
    """The sets of field numbers that meet an option of the policy."""
    for option in policy.requirements.any_of:
        ways = [
            [
                place
                for place, (name, shown) in can.items()
                if shown.proof_type == needed.proof_type and needed.provider in (None, name)
            ]
            for needed in option.all_of
        ]
        yield from product(*ways)


def _digest(evidence: VerificationEvidence) -> str:
    presented = to_json([evidence.provider, evidence.proof_type, evidence.presentation])
    return hashlib.sha256(presented).hexdigest()


Accepted = tuple[str, VerifiedEvidence]
"""The format of a proof's presentation, and the verified proof."""


def _missing_proofs(policy: VerificationPolicy, accepted: Sequence[Accepted]) -> list[str]:
    """The proof types that are missing for the option that lacks the fewest; empty if an option is met."""
    nearest: list[str] | None = None
    for option in policy.requirements.any_of:
        lacking = [it.proof_type for it in option.all_of if not any(_meets(got, it) for got in accepted)]
        if nearest is None or len(lacking) < len(nearest):
            nearest = lacking
    return nearest or []


def _meets(shown: Accepted, needed: EvidenceRequirement) -> bool:
    form, got = shown
    level = got.assurance_level or "low"
    return (
        got.proof_type == needed.proof_type
        and needed.provider in (None, got.provider)
        and (needed.min_assurance is None or _LEVELS.index(level) >= _LEVELS.index(needed.min_assurance))
        and (needed.presentation_formats is None or form in needed.presentation_formats)
    )
