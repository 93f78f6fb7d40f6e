"""What may happen to a token."""

from typing import Any

import pytest
from pydantic import ValidationError

from holdlog.domain import token
from holdlog.domain.refusals import HoldlogError, InvalidError, NotFoundError
from holdlog.domain.token import (
    IssueToken,
    RevokeToken,
    RotateToken,
    Token,
    TokenCommand,
    TokenEvent,
    TokenIssued,
    TokenRevoked,
    TokenRotated,
)

SECOND = 1_000_000
ONE, TWO, THREE = (digit * 64 for digit in "123")


def issued(hashed: str = ONE, until: int | None = None, space: str | None = None) -> TokenIssued:
    """`until`: seconds after 1970."""
    expires_at = None if until is None else until * SECOND
    return TokenIssued(hash=hashed, allow=("read:*",), expires_at=expires_at, space=space, by="ann")


def rotated(hashed: str = TWO, until: int = 0) -> TokenRotated:
    return TokenRotated(hash=hashed, overlap_until=until * SECOND, by="ann")


REVOKED = TokenRevoked(by="ann")


def issue(hashed: str = ONE, lifetime: float | None = None, **more: Any) -> IssueToken:
    told = {"name": "ci", "allow": ("read:*",), "by": "ann"} | more
    return IssueToken(hash=hashed, lifetime_seconds=lifetime, **told)


def rotate(hashed: str = TWO, overlap: float = 0) -> RotateToken:
    return RotateToken(name="ci", hash=hashed, overlap_seconds=overlap, by="ann")


def revoke() -> RevokeToken:
    return RevokeToken(name="ci", by="ann")


def after(*events: TokenEvent) -> Token:
    """The n-th event happens n seconds after 1970."""
    state = Token("ci")
    for number, event in enumerate(events, start=1):
        state = token.evolve(state, event, number * SECOND)
    return state


class given:
    def __init__(self, *events: TokenEvent) -> None:
        self._state = after(*events)

    def when(self, command: TokenCommand, at: int = 10) -> "given":
        self._command, self._at = command, at * SECOND
        return self

    def then(self, *expected: TokenEvent) -> None:
        assert token.decide(self._command, self._state, self._at) == list(expected)

    def refused(self, kind: type[HoldlogError], told: str) -> None:
        with pytest.raises(kind, match=told):
            token.decide(self._command, self._state, self._at)


def test_token_is_issued_with_or_without_an_expiry() -> None:
    given().when(issue()).then(issued())
    given().when(issue(lifetime=5)).then(issued(until=15))


def test_token_may_be_bound_to_a_space() -> None:
    given().when(issue(space="team")).then(issued(space="team"))


def test_name_of_a_token_is_taken_until_it_is_revoked() -> None:
    given(issued()).when(issue(TWO)).refused(InvalidError, "a token with this name exists")
    given(issued(until=5)).when(issue(TWO), at=10).refused(InvalidError, "a token with this name exists")
    given(issued(), REVOKED).when(issue(TWO)).then(issued(TWO))


def test_unknown_token_is_neither_rotated_nor_revoked() -> None:
    given().when(rotate()).refused(NotFoundError, "token ci does not exist")
    given().when(revoke()).refused(NotFoundError, "token ci does not exist")


def test_rotation_issues_another_secret_and_limits_the_old_one() -> None:
    given(issued()).when(rotate(overlap=60)).then(rotated(until=70))
    given(issued()).when(rotate()).then(rotated(until=10))


def test_expired_token_is_not_rotated() -> None:
    given(issued(), REVOKED).when(rotate()).refused(InvalidError, "was revoked; issue it again")
    given(issued(until=10)).when(rotate(), at=10).refused(InvalidError, "has expired; revoke it")
    given(issued(until=10)).when(rotate(), at=9).then(rotated(until=9))


def test_revoking_a_token_again_changes_nothing() -> None:
    given(issued()).when(revoke()).then(REVOKED)
    given(issued(), REVOKED).when(revoke()).then()
    given(issued(until=5)).when(revoke()).then(REVOKED)


def test_both_secrets_are_valid_until_the_overlap_ends() -> None:
    state = after(issued(ONE), rotated(TWO, until=60))
    assert list(state.hashes(at=59 * SECOND)) == [TWO, ONE]
    assert list(state.hashes(at=60 * SECOND)) == [TWO]


def test_third_secret_ends_the_first_one_whatever_time_it_had() -> None:
    state = after(issued(ONE), rotated(TWO, until=60), rotated(THREE, until=30))
    assert list(state.hashes(at=20 * SECOND)) == [THREE, TWO]


def test_no_secret_is_valid_once_the_token_is_revoked_or_expired() -> None:
    assert list(after(issued(), rotated(until=60), REVOKED).hashes(at=10 * SECOND)) == []
    state = after(issued(until=20), rotated(until=60))
    assert list(state.hashes(at=20 * SECOND - 1)) == [TWO, ONE]
    assert list(state.hashes(at=20 * SECOND)) == []


def test_reissued_token_inherits_nothing_from_the_one_before() -> None:
    state = after(issued(ONE, until=9, space="team"), rotated(TWO, until=60), REVOKED, issued(THREE))
    assert state == Token("ci", 4, THREE, allow=("read:*",), issued_by="ann", issued_at=4 * SECOND)
    assert list(state.hashes(at=10 * SECOND)) == [THREE]


@pytest.mark.parametrize("name", ["", "CI", "c_i", "a" * 65, "ä", "a/b", "a\n"])
def test_token_names_have_lower_case_letters_digits_and_hyphens(name: str) -> None:
    with pytest.raises(ValidationError, match="must have 1 to 64"):
        issue(name=name)


@pytest.mark.parametrize(
    "grant", ["read", "read:", "see:*", "READ:*", ":x", "read: x", "read:a\nb", "read:\u202e", "read:*,write:x"]
)
def test_grant_is_a_scope_and_a_pattern(grant: str) -> None:
    with pytest.raises(ValidationError):
        issue(allow=(grant,))


def test_token_needs_a_grant_and_has_a_limited_number() -> None:
    for allow in ((), ("read:*",) * 101):
        with pytest.raises(ValidationError):
            issue(allow=allow)


@pytest.mark.parametrize("hashed", ["", "1" * 63, "A" * 64, "holdlog_ci_secret", "1" * 64 + "\n"])
def test_token_event_accepts_only_a_hash(hashed: str) -> None:
    with pytest.raises(ValidationError):
        issue(hashed=hashed)
