"""Tokens in the library, and how a caller's is found: by its text alone, while it is valid."""

import re

import pytest

import holdlog
from holdlog.adapters.operations.tokens import FindToken, Token
from tests.conftest import both_stores
from tests.doors.test_tokens import TEXT
from tests.support.tampering import files_with
from tests.support.waiting import until

in_memory = pytest.mark.parametrize("kind", ["memory"], indirect=True)


def test_library_creates_lists_and_revokes_tokens(store):
    new = store.token_create("ci", ["read:*", "write:build-*", "read:*"], created_by="ann", ttl_seconds=60)
    assert TEXT.fullmatch(new.token)
    assert (new.status, new.name, new.allow, new.position) == ("ok", "ci", ["read:*", "write:build-*"], 1)
    store.token_create("app", ["admin:*"], created_by="ann", ttl_seconds=None, space="team")
    app, ci = store.token_list().tokens
    assert (app.name, app.state, app.space, app.expires_at) == ("app", "active", "team", None)
    assert (ci.state, ci.allow, ci.by, ci.expires_at) == ("active", new.allow, "ann", new.expires_at)
    assert 0 < ci.expires_in_seconds <= 60
    page = store.token_list(limit=1)
    assert [it.name for it in store.token_list(after=page.next_after).tokens] == ["ci"]
    assert (store.token_revoke("ci", revoked_by="bob").position, bool(store.token_revoke("no", revoked_by="bob"))) == (
        3,
        0,
    )
    assert store.token_revoke("ci", revoked_by="bob").already
    assert [(it.state, it.by) for it in store.token_list().tokens] == [("active", "ann"), ("revoked", "bob")]
    assert [(it.kind, it.token, it.by) for it in store.events(2).events] == [("TokenRevoked", "ci", "bob")]
    assert store.list().namespaces == []


def test_name_of_a_token_is_free_again_when_it_is_revoked_or_has_expired(store):
    first = store.token_create("ci", ["read:*"], created_by="ann")
    taken = store.token_create("ci", ["read:*"], created_by="bob")
    assert (taken.status, "revoke" in taken.hint) == ("exists", False)
    store.token_revoke("ci", revoked_by="ann")
    brief = store.token_create("ci", ["read:*"], created_by="ann", ttl_seconds=0.05)
    until(lambda: store.token_list().tokens[0].state == "expired")
    again = store.token_create("ci", ["read:*"], created_by="ann")
    assert len({first.token, brief.token, again.token}) == 3


@both_stores
def test_text_of_a_token_is_stored_nowhere_and_its_hash_is_shown_to_nobody(open_store, kind, db):
    store = open_store()
    with pytest.raises(holdlog.InvalidError, match=r"^request_id"):
        store.token_create("ci", ["read:*"], created_by="ann", request_id="r")
    token = store.token_create("ci", ["read:*"], created_by="ann").token
    shown = repr((store.events().events, store.token_list()))
    assert not re.search(r"[0-9a-f]{64}", shown)
    assert token[-43:] not in shown
    assert kind != "file" or files_with(db.parent, token[-43:]) == []


def test_bad_argument_of_a_token_is_refused_by_name(store):
    good = {"name": "ci", "allow": ["read:*"], "created_by": "ann"}
    for fields in (
        {"name": "CI"}, {"name": "x" * 65}, {"allow": []}, {"allow": ["see:*"]}, {"allow": ["read"]},
        {"allow": ["read:"]}, {"allow": ["read:a,write:b"]}, {"ttl_seconds": 0}, {"space": "threads"},
        {"space": "a/b"}, {"created_by": ""},
    ):  # fmt: skip
        with pytest.raises(holdlog.InvalidError) as refused:
            store.token_create(**good | fields)
        assert str(refused.value).startswith(*fields)
    assert store.token_list().tokens == []


# --- the token of a caller


def find(store, text):
    return store._engine.query(FindToken(text=text))


def create(store, name, ttl_seconds=None):
    return store.token_create(name, ["read:*"], created_by="ann", ttl_seconds=ttl_seconds, space="team").token


@in_memory
def test_valid_token_is_found_by_its_whole_text(store):
    one, other = create(store, "one"), create(store, "one-more")
    assert find(store, one) == Token("one", ("read:*",), "team", None)
    wrong = [one[:-1], one + "x", one[:-1] + "!", other.replace("one-more", "one"), one.replace("one", "two"), "é\n"]
    assert {find(store, text) for text in wrong} == {None}


@in_memory
def test_token_that_expired_or_was_revoked_or_replaced_is_not_found(store):
    brief, old = create(store, "brief", 0.05), create(store, "old")
    until(lambda: find(store, brief) is None)
    store.token_revoke("old", revoked_by="ann")
    assert find(store, old) is None
    new = create(store, "old")
    assert (find(store, old), find(store, new)) == (None, Token("old", ("read:*",), "team", None))
