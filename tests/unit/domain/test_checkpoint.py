"""Checkpoints as text are those of C2SP's tlog-checkpoint and signed-note; whatever breaks their rules is refused."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.domain.checkpoint import Checkpoint, CheckpointNote, NoteSignature, ed25519_key_id, parse_note
from holdlog.domain.refusals import InvalidError

ROOT = bytes(range(32))
ORIGIN = "0b9fca2f-53a4-41f5-a1d8-9d02e5e0b9a0"
TEXT = f"{ORIGIN}\n12\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
LINE = f"— {ORIGIN} {base64.b64encode(b'abcd' + bytes(64)).decode()}\n"
EXAMPLE = """\
example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
"""  # noqa: E501 - the specification's own example
NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), exclude_characters="+"), min_size=1)


def test_text_of_a_checkpoint_is_origin_size_and_root() -> None:
    assert Checkpoint(ORIGIN, 12, ROOT).text == TEXT


def test_example_of_the_specification_is_read_and_written_unchanged() -> None:
    note = parse_note(EXAMPLE)
    assert (note.checkpoint.origin, note.checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert [(it.name, it.key_id.hex(), len(it.signature)) for it in note.signatures] == [
        ("example.com/behind-the-sofa", "033de0ae", 64)
    ]
    assert note.text == EXAMPLE


def test_text_without_signatures_is_an_unsigned_checkpoint() -> None:
    assert parse_note(TEXT) == CheckpointNote(Checkpoint(ORIGIN, 12, ROOT))
    assert parse_note(TEXT).text == TEXT


def test_extension_lines_and_unknown_signatures_are_kept() -> None:
    text = TEXT + "an extension — of somebody\n\n" + LINE + "— witness.example AAAAAEE=\n"
    note = parse_note(text)
    assert note.checkpoint.extensions == ("an extension — of somebody",)
    assert [it.name for it in note.signatures] == [ORIGIN, "witness.example"]
    assert note.text == text


@given(NAMES, st.integers(0, 10**18), st.binary(min_size=32, max_size=32), st.binary(min_size=5, max_size=99))
def test_every_note_that_is_written_is_read_again(name: str, size: int, root: bytes, signed: bytes) -> None:
    note = CheckpointNote(Checkpoint(name, size, root), (NoteSignature(name, signed[:4], signed[4:]),))
    assert parse_note(note.text) == note


@given(st.text() | st.text(alphabet="a0=\n— "))
def test_any_other_text_is_refused_or_read_as_it_is(text: str) -> None:
    try:
        written = parse_note(text).text
    except InvalidError:
        written = text
    assert written == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "each ended by a newline"),
        (TEXT.removesuffix("\n"), "each ended by a newline"),
        (TEXT.replace("\n", "\r\n"), "without control characters"),
        (f"{ORIGIN}\n12\n", "three lines"),
        (f"\n{TEXT}", "three lines"),
        (TEXT.replace("\n12\n", "\n\n12\n") + "\n" + LINE, "three lines"),
        (TEXT.replace("\n12\n", "\n012\n"), "line 2"),
        (TEXT.replace("\n12\n", "\n+12\n"), "line 2"),
        (TEXT.replace("\n12\n", "\n١٢\n"), "line 2"),
        (TEXT.replace("\n12\n", f"\n{'9' * 5000}\n"), "line 2"),
        (TEXT.replace("Hh8=", "Hh9="), "line 3"),
        (TEXT.replace("Hh8=", "Hh8"), "line 3"),
        (TEXT.replace("AAEC", ""), "line 3"),
        (TEXT.replace("AAEC", "AAE\u00e9"), "line 3"),
        (TEXT + "\n" + LINE.replace("—", "-"), "line 5"),
        (TEXT + "\n" + LINE + LINE.replace(ORIGIN, "two names"), "line 6"),
        (TEXT + "\n" + LINE.replace(ORIGIN, "a+b"), "line 5"),
        (TEXT + "\n— name AAAAAA==\n", "line 5"),
        (TEXT + "\n" + LINE * 3000, "characters"),
    ],
)
def test_malformed_checkpoint_is_refused_with_the_line_that_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(InvalidError, match=problem) as refusal:
        parse_note(text)
    assert ORIGIN not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_key_id_begins_the_hash_of_name_type_and_public_key() -> None:
    # key and id: the example of https://pkg.go.dev/golang.org/x/mod/sumdb/note
    name, rest = "PeterNeumann", "c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    key_id, key = rest.split("+")
    assert ed25519_key_id(name, base64.b64decode(key)[1:]).hex() == key_id
