"""Tokens: create, list, revoke, and find that of a caller."""

from hmac import compare_digest
from secrets import token_urlsafe
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, Field, PrivateAttr, Strict
from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Agent, Command, Duration, Limit, Prefix, Query
from holdlog.adapters.operations.rows import is_live, read_page, show_expiry
from holdlog.adapters.stores import sql
from holdlog.domain import tokens
from holdlog.domain.results import utc
from holdlog.domain.tokens import NewToken, NoToken, Revoked, TokenExists
from holdlog.projections.results import TokenEntry, TokenPage

TokenName = Annotated[str, Strict(), AfterValidator(tokens.check_token_name)]
Space = Annotated[str, Strict(), AfterValidator(tokens.check_space)]
Grant = Annotated[str, Strict(), AfterValidator(tokens.check_grant)]
LIFETIME: Final = 90 * 24 * 3600
"""Seconds that a token is valid if nobody says how long."""
MAX_GRANTS: Final = 64
_NO_HASH: Final = "0" * 64


class TokenCreate(Command, name="token_create", group="tokens", positional="token allow", scope="admin"):
    """Create a token for callers over HTTP. Its text is returned this once, and the store keeps only a hash of it."""

    results = (NewToken, TokenExists)
    reads, decide = tokens.declare, tokens.create
    token: TokenName = Field(alias="name", description="1 to 64 characters of a-z, 0-9 and -; the log shows it")
    allow: list[Grant] = Field(
        min_length=1, max_length=MAX_GRANTS, description="Grants such as read:* or write:build-*"
    )
    created_by: Agent
    ttl_seconds: Duration | None = Field(default=LIFETIME, description="None: until it is revoked")
    space: Space | None = Field(default=None, description="The first label of the only namespaces that it reaches")
    _secret: str = PrivateAttr(default_factory=lambda: token_urlsafe(32))

    @property
    def text(self) -> str:
        return tokens.write_text(self.token, self._secret)


class TokenRevoke(Command, name="token_revoke", group="tokens", positional="token", scope="admin"):
    """Revoke a token for ever."""

    results = (Revoked, NoToken)
    reads, decide = tokens.declare, tokens.revoke
    token: TokenName = Field(alias="name")
    revoked_by: Agent


class TokenList(Query, name="token_list", group="tokens", scope="admin"):
    """List the tokens by name, in pages, without their texts."""

    results = (TokenPage,)
    after: Prefix = Field(default="", description="The next_after of the page before")
    limit: Limit = 1000

    def read(self, reader: Reader) -> TokenPage:
        stream = tokens.token_stream(self.after)
        rows, more = read_page(reader, sql.ALL_RECORDS, tokens.token_stream(""), stream, self.limit)
        entries = [_show_token(row, reader.now()) for row in rows]
        return TokenPage(entries, entries[-1].name if more else None)


class Token(NamedTuple):
    """A valid token of a caller. `expires_at` is in microseconds since 1970."""

    name: str
    allow: tuple[str, ...]
    space: str | None
    expires_at: int | None


class FindToken(Query):
    """The valid token that has this text. Checking takes as long whether or not the name exists, so that callers cannot
    guess names by the time it takes."""

    is_quick = True
    text: str

    def read(self, reader: Reader) -> Token | None:
        name = tokens.read_name(self.text)
        if name is None:
            return None
        rows = reader.read(sql.RECORD, {"stream": tokens.token_stream(name)})
        fields = from_json(rows[0][3]) if rows and is_live(rows[0], reader.now()) else {}
        if not compare_digest(tokens.hash_text(self.text), fields.get("hash", _NO_HASH)):
            return None
        return Token(name, tuple(fields["allow"]), fields.get("space"), rows[0][5])


def _show_token(row: Any, now: int) -> TokenEntry:
    stream, _, at, meta, _, expires_at, exists = row
    get = from_json(meta).get
    state: Any = "revoked" if not exists else "active" if is_live(row, now) else "expired"
    name = stream.removeprefix("token:")
    return TokenEntry(name, state, get("by"), utc(at), get("allow"), get("space"), *show_expiry(expires_at, now))
