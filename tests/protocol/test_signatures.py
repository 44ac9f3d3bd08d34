"""Signatures of callbacks and of results, against known answers and other implementations."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import OctKey, RSAKey

from askfirst.errors import InvalidProtocolObject, InvalidSecret, InvalidSignature, MissingExtra
from askfirst.protocol import (
    SIGNATURE_HEADER,
    Result,
    SigningKey,
    jwks_document,
    new_callback_secret,
    sign_callback,
    sign_result,
    verify_callback,
    verify_result,
    verify_webhook,
    webhook_headers,
)

# The protocol's own header.


def test_a_known_answer() -> None:
    # RFC 4231, test case 2.
    assert sign_callback(b"what do ya want for nothing?", "Jefe") == (
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@given(st.binary(), st.text(st.characters(codec="utf-8"), min_size=1))
def test_it_is_the_checklists_signature(body: bytes, secret: str) -> None:
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    assert sign_callback(body, secret) == expected
    verify_callback(body, expected, secret)


@pytest.mark.parametrize(
    "header", [None, "", "sha256=", "sha1=00", "sha256=" + "0" * 64, "sha256=é", "\udc80"]
)
def test_wrong_headers_are_refused(header: str | None) -> None:
    with pytest.raises(InvalidSignature):
        verify_callback(b"body", header, "secret")


def test_another_body_or_secret_is_refused() -> None:
    signature = sign_callback(b'{"a":1}', "secret")
    for body, secret in ((b'{"a": 1}', "secret"), (b'{"a":1}', "Secret"), (b"", "secret")):
        with pytest.raises(InvalidSignature, match="does not fit its body"):
            verify_callback(body, signature, secret)
    with pytest.raises(InvalidSignature):
        verify_callback(b'{"a":1}', signature.upper(), "secret")


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(InvalidSecret):
        sign_callback(b"", "")
    with pytest.raises(InvalidSecret):
        verify_callback(b"", "sha256=", "")


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(other) or True)
    verify_callback(b"", "anything", "secret")
    verify_webhook(b"", headers("x", 5, "v1,anything"), SECRET, now=5)
    assert compared == [b"anything", b"v1,anything"]


def test_the_header_has_its_name() -> None:
    assert SIGNATURE_HEADER == "X-HITL-Signature"


# Standard Webhooks.

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BODY = b'{"event":"review.completed"}'


def headers(message_id: str, timestamp: object, signature: str) -> dict[str, str]:
    return {"Webhook-Id": message_id, "Webhook-Timestamp": str(timestamp), "Webhook-Signature": signature}


def test_headers_are_made_as_the_standard_says() -> None:
    made = webhook_headers(BODY, SECRET, message_id="msg_1", timestamp=1_700_000_000)
    mac = hmac.digest(bytes(range(32)), b"msg_1.1700000000." + BODY, "sha256")
    assert made == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }
    assert verify_webhook(BODY, made, SECRET, now=1_700_000_000) == "msg_1"


def test_one_good_signature_among_several_is_enough() -> None:
    good = webhook_headers(BODY, SECRET, message_id="m", timestamp=9)["webhook-signature"]
    assert verify_webhook(BODY, headers("m", 9, f"v1a,xyz v1,AAAA {good}"), SECRET, now=9) == "m"


@pytest.mark.parametrize("now", [699, 1301, 10**9])
def test_old_and_future_ones_are_refused(now: float) -> None:
    made = webhook_headers(BODY, SECRET, message_id="m", timestamp=1000)
    assert verify_webhook(BODY, made, SECRET, now=1300) == verify_webhook(BODY, made, SECRET, now=700) == "m"
    with pytest.raises(InvalidSignature, match="more than 300 s"):
        verify_webhook(BODY, made, SECRET, now=now)
    assert verify_webhook(BODY, made, SECRET, now=now, tolerance=10**9) == "m"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_every_header_counts(name: str) -> None:
    made = webhook_headers(BODY, SECRET, message_id="m", timestamp=9)
    without = {key: value for key, value in made.items() if key != name}
    with pytest.raises(InvalidSignature, match=f"no {name} header"):
        verify_webhook(BODY, without, SECRET, now=9)
    for other in ("8", "x", "v1,AAAA", "é"):
        with pytest.raises(InvalidSignature):
            verify_webhook(BODY, {**made, name: other}, SECRET, now=9)


@pytest.mark.parametrize("timestamp", ["soon", "-9", "9.0", "९", "1e3", "9" * 400])
def test_a_signed_timestamp_must_still_be_a_number(timestamp: str) -> None:
    mac = hmac.digest(bytes(range(32)), f"m.{timestamp}.".encode() + BODY, "sha256")
    signed = headers("m", timestamp, "v1," + base64.b64encode(mac).decode())
    with pytest.raises(InvalidSignature, match="not a number of seconds"):
        verify_webhook(BODY, signed, SECRET, now=9)


@pytest.mark.parametrize("secret", ["whsec_???", "hunter2", base64.b64encode(b"k" * 32).decode()])
def test_a_secret_of_another_kind_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        webhook_headers(BODY, secret, message_id="m", timestamp=9)
    assert secret not in str(refused.value)
    for empty in ("", "whsec_"):
        with pytest.raises(InvalidSecret):
            webhook_headers(BODY, empty, message_id="m", timestamp=9)


def test_a_new_secret_serves_both() -> None:
    secret = new_callback_secret()
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert secret != new_callback_secret()
    verify_callback(BODY, sign_callback(BODY, secret), secret)
    made = webhook_headers(BODY, secret, message_id="m", timestamp=9)
    assert verify_webhook(BODY, made, secret, now=9) == "m"


# Results.

AT = datetime(2026, 2, 22, 10, 0, tzinfo=UTC)
SIGNER = "https://a.example/.well-known/jwks.json"
RESULT = Result(action="approve", data={"note": "ö", "n": [1, 2.5, None]})


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.generate()


def signed(key: SigningKey, result: Result = RESULT) -> Result:
    return sign_result(result, case_id="c1", key=key, signed_at=AT, signer=SIGNER)


def test_a_signed_result_survives_the_wire(key: SigningKey) -> None:
    result = signed(key)
    assert (result.action, result.data) == (RESULT.action, RESULT.data)
    assert result.signature is not None
    assert result.signature.wire() | {"value": ""} == {
        "algorithm": "ES256",
        "value": "",
        "signed_at": "2026-02-22T10:00:00Z",
        "signer": SIGNER,
    }
    verify_result(Result.read(json.dumps(result.wire())), case_id="c1", jwks=jwks_document([key]))


def test_anyone_can_check_it_without_our_code(key: SigningKey) -> None:
    signature = signed(key).signature
    assert signature is not None
    header, middle, mark = (signature.value or "").split(".")
    assert middle == ""
    assert json.loads(unpadded(header)) == {"alg": "ES256", "kid": key.key_id}
    data, at = '{"n":[1,2.5,null],"note":"ö"}', "2026-02-22T10:00:00Z"
    payload = f'{{"action":"approve","case_id":"c1","data":{data},"signed_at":"{at}"}}'
    message = f"{header}.{base64.urlsafe_b64encode(payload.encode()).decode().rstrip('=')}".encode()
    jwk = jwks_document([key])["keys"][0]
    x, y = (int.from_bytes(unpadded(jwk[name])) for name in "xy")
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    r, s = (int.from_bytes(unpadded(mark)[part]) for part in (slice(32), slice(32, None)))
    public.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize(
    "change",
    [
        {"action": "reject"},
        {"data": {"note": "o", "n": [1, 2.5, None]}},
        {"data": None},
        {"signature": None},
    ],
)
def test_any_change_is_found(key: SigningKey, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSignature):
        verify_result(signed(key).model_copy(update=change), case_id="c1", jwks=jwks_document([key]))


@pytest.mark.parametrize(
    "change",
    [
        {"signed_at": datetime(2026, 2, 22, 10, 1, tzinfo=UTC)},
        {"signed_at": None},
        {"algorithm": "RS256"},
        {"algorithm": None},
        {"value": None},
        {"value": ""},
        {"value": "a.b.c"},
        {"value": "é..é"},
    ],
)
def test_any_change_of_the_signature_is_found(key: SigningKey, change: dict[str, Any]) -> None:
    result = signed(key)
    assert result.signature is not None
    forged = result.model_copy(update={"signature": result.signature.model_copy(update=change)})
    with pytest.raises(InvalidSignature):
        verify_result(forged, case_id="c1", jwks=jwks_document([key]))


def test_another_case_or_key_is_found(key: SigningKey) -> None:
    with pytest.raises(InvalidSignature):
        verify_result(signed(key), case_id="c2", jwks=jwks_document([key]))
    for jwks in (jwks_document([SigningKey.generate()]), {"keys": []}, {}, {"keys": [{"kty": "?"}]}):
        with pytest.raises(InvalidSignature):
            verify_result(signed(key), case_id="c1", jwks=jwks)
    verify_result(signed(key), case_id="c1", jwks=jwks_document([SigningKey.generate(), key]))


@pytest.mark.parametrize("algorithm", ["HS256", "none"])
def test_other_algorithms_are_refused(key: SigningKey, algorithm: str) -> None:
    """Such as a MAC made with the public key, which everyone has."""
    public = jwks_document([key])
    shared = OctKey.import_key(json.dumps(public["keys"][0]))
    header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).decode().rstrip("=")
    value = f"{header}.."
    if algorithm == "HS256":
        compact = jws.serialize_compact({"alg": "HS256"}, b"{}", shared)
        value = compact.split(".")[0] + ".." + compact.split(".")[2]
    result = signed(key)
    assert result.signature is not None
    forged = result.signature.model_copy(update={"algorithm": algorithm, "value": value})
    with pytest.raises(InvalidSignature):
        verify_result(result.model_copy(update={"signature": forged}), case_id="c1", jwks=public)


def test_a_long_answer_is_signed(key: SigningKey) -> None:
    long = signed(key, Result(action="approve", data={"feedback": "x" * 200_000}))
    verify_result(long, case_id="c1", jwks=jwks_document([key]))


def test_another_services_rsa_key_is_understood() -> None:
    rsa = RSAKey.generate_key(2048, parameters={"kid": "r1"})
    payload = b'{"action":"skip","case_id":"c1","data":{},"signed_at":"2026-02-22T10:00:00Z"}'
    header, _, mark = jws.serialize_compact({"alg": "RS256", "kid": "r1"}, payload, rsa).split(".")
    result = Result.read(
        {
            "action": "skip",
            "signature": {
                "algorithm": "RS256",
                "value": f"{header}..{mark}",
                "signed_at": "2026-02-22T10:00:00Z",
            },
        }
    )
    verify_result(result, case_id="c1", jwks={"keys": [rsa.as_dict(private=False)]})


def test_a_number_that_others_would_round_is_not_signed(key: SigningKey) -> None:
    with pytest.raises(InvalidProtocolObject, match="send it as text"):
        signed(key, Result(action="submit", data={"account": 2**60}))


def test_a_key_is_kept_and_taken_up_again(key: SigningKey) -> None:
    again = SigningKey(json.loads(json.dumps(key.private_jwk())))
    assert again.key_id == key.key_id
    verify_result(signed(again), case_id="c1", jwks=jwks_document([key]))


def test_the_private_half_stays_private(key: SigningKey) -> None:
    secret = key.private_jwk()["d"]
    public = jwks_document([key])["keys"][0]
    assert "d" not in public
    assert {public["kid"], public["alg"], public["use"]} == {key.key_id, "ES256", "sig"}
    assert secret not in repr(key) + str(jwks_document([key]))


@pytest.mark.parametrize("jwk", [{}, {"kty": "EC"}, {"kty": "oct", "k": "aaaa"}])
def test_what_is_no_private_key_is_refused(jwk: dict[str, Any], key: SigningKey) -> None:
    for bad in (jwk, key.public_jwk()):
        with pytest.raises(InvalidSecret):
            SigningKey(bad)


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch, key: SigningKey) -> None:
    result = signed(key)
    for name in [name for name in sys.modules if name.partition(".")[0] == "joserfc"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    for act in (
        SigningKey.generate,
        lambda: signed(key),
        lambda: verify_result(result, case_id="c1", jwks={}),
    ):
        with pytest.raises(MissingExtra, match=r"askfirst\[signatures\]"):
            act()
