"""Which characters agents and new claims may have in their names, and which names mix scripts."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdlog.domain.agent import Register
from holdlog.domain.claims.claim import ClaimGranted, ClaimReleased
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim
from holdlog.domain.claims.resource import canonical, claimable
from holdlog.domain.names import agent_name, allowed_agent_name, mixed_scripts, name
from holdlog.domain.record import ClearNamespace, FencingCondition, Transact
from holdlog.domain.threads.commands import NewResult, StartThread
from holdlog.domain.value import NULL

REFUSED = {
    "\u3164": "U+3164 HANGUL FILLER",
    "\uffa0": "U+FFA0 HALFWIDTH HANGUL FILLER",
    "\u115f": "U+115F HANGUL CHOSEONG FILLER",
    "\u1160": "U+1160 HANGUL JUNGSEONG FILLER",
    "\u2800": "U+2800 BRAILLE PATTERN BLANK",
    "\u034f": "U+034F COMBINING GRAPHEME JOINER",
    "\u17b4": "U+17B4 KHMER VOWEL INHERENT AQ",
    "\u17b5": "U+17B5 KHMER VOWEL INHERENT AA",
    "\ufe0f": "U+FE0F VARIATION SELECTOR-16",
    "\ufe00": "U+FE00 VARIATION SELECTOR-1",
    "\U000e0100": "U+E0100 VARIATION SELECTOR-17",
    "\u180b": "U+180B MONGOLIAN FREE VARIATION SELECTOR ONE",
    "\u200c": "U+200C ZERO WIDTH NON-JOINER",
    "\u200d": "U+200D ZERO WIDTH JOINER",
    "\u200b": "U+200B ZERO WIDTH SPACE",
    "\u202e": "U+202E RIGHT-TO-LEFT OVERRIDE",
    "\u00ad": "U+00AD SOFT HYPHEN",
    "\ufeff": "U+FEFF ZERO WIDTH NO-BREAK SPACE",
    "\u00a0": "U+00A0 NO-BREAK SPACE",
    "\u2003": "U+2003 EM SPACE",
    "\u3000": "U+3000 IDEOGRAPHIC SPACE",
    "\ufffc": "U+FFFC OBJECT REPLACEMENT CHARACTER",
    "\U00016fe4": "U+16FE4 KHITAN SMALL SCRIPT FILLER",
    "\U0001d159": "U+1D159 MUSICAL SYMBOL NULL NOTEHEAD",
    "\u0378": "U+0378, an unassigned character",
    "\U0010ffff": "U+10FFFF, an unassigned character",
    "\ue000": "U+E000, a private use character",
    "\U000f0000": "U+F0000, a private use character",
    "\n": "U+000A, a control character",
    "\x85": "U+0085, a control character",
    "\ud800": "U+D800, a lone surrogate",
}
ACCEPTED = [
    *("ann", "my agent", "claude-7f3a", "Ünal", "日本", "анна", "שרה", "فاطمة", "สมชาย", "김철수", "नमस्ते"),
    *("résumé v2", "🚀", "a+b", "№1", "e\u0301"),
]
FILES = [
    "資料（最終）.docx",
    "my file.py",
    "app/[id]/page.tsx",
    "ノート・一.md",
    "paral·lel.md",
    "Übung 1/änderung.tex",
]


@pytest.mark.parametrize(("character", "called"), REFUSED.items(), ids=[ascii(it) for it in REFUSED])
@pytest.mark.parametrize("spelled", ["ann{}", "{}ann", "a{}nn", "{}"])
def test_refusal_of_a_name_names_the_character(character: str, called: str, spelled: str) -> None:
    text = spelled.format(character)
    for rule in (allowed_agent_name, claimable):
        with pytest.raises(ValueError, match=r"^must not contain ") as refused:
            rule(text)
        assert str(refused.value) == f"must not contain {called}"
    with pytest.raises(ValueError, match=r"must not contain"):
        claimable(f"custom://{text}")


@pytest.mark.parametrize("text", ACCEPTED)
def test_names_of_agents_in_all_scripts_are_accepted(text: str) -> None:
    assert allowed_agent_name(text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("text", [*FILES, *(f"custom://{it}" for it in FILES)])
def test_file_names_with_spaces_and_wide_punctuation_are_accepted(text: str) -> None:
    assert claimable(text) == text


def test_agents_and_new_claims_keep_the_rules_for_names() -> None:
    for text in ("", " ", " a", "a ", "x" * 513, "é" * 513):
        for rule in (allowed_agent_name, claimable):
            with pytest.raises(ValueError, match="must"):
                rule(text)
    with pytest.raises(ValueError, match="both sides"):
        allowed_agent_name("claude//tests")
    with pytest.raises(ValueError, match="at most"):
        allowed_agent_name("é" * 50_000_000)


@pytest.mark.parametrize("text", ["ann\u3164", "ann\u00a0b", "a\u200db", "a\ue000"])
def test_every_command_refuses_an_agent_that_looks_like_another(text: str) -> None:
    for make in (
        lambda: AcquireClaim(resource="a.py", agent=text),
        lambda: ReleaseClaim(resource="a.py", agent=text),
        lambda: Transact(operations=(), by=text),
        lambda: ClearNamespace(namespace="n", by=text),
        lambda: Register(agent=text, name="Ann"),
        lambda: StartThread(thread="t", by=text),
    ):
        with pytest.raises(ValidationError, match="must not contain U\\+"):
            make()


@pytest.mark.parametrize("text", ["a\u3164.py", "src/*.py", "custom:merge"])
def test_new_claim_is_refused_under_a_name_that_an_old_one_may_have(text: str) -> None:
    for make in (
        lambda: AcquireClaim(resource=text, agent="ann"),
        lambda: AcquireClaim(resource="a", agent="ann", also=(text,)),
        lambda: AcquireClaim(resource="a", agent="ann", alternatives=(text,)),
        lambda: ReleaseClaim(resource="a", agent="ann", outcome="moved", moved_to=text),
    ):
        with pytest.raises(ValidationError, match="must"):
            make()


@pytest.mark.parametrize("text", ["a\u3164.py", "src/*.py", "custom:merge"])
def test_stored_names_that_break_the_rules_load_and_are_released(text: str) -> None:
    assert ReleaseClaim(resource=text, agent="ann", also=(text,)).resource == text
    assert FencingCondition(resource=text, version=1).resource == text
    granted = ClaimGranted(agent="ann\u3164", mode="exclusive")
    assert ClaimGranted.model_validate_json(granted.model_dump_json()) == granted
    assert ClaimReleased(agent="ann\u3164", grant=1, outcome="moved", moved_to=text).moved_to == text
    assert NewResult(value=NULL, agent="ann\u3164", checksum="0" * 32).agent == "ann\u3164"


@given(st.text())
@example("e\u0301\u0323")
@example("\u212b")
@example("\u1100\u1161\u11a8")
def test_accepted_agent_name_is_already_normalised(text: str) -> None:
    try:
        accepted = allowed_agent_name(text)
    except ValueError:
        return
    assert allowed_agent_name(accepted) == accepted == agent_name(text) == name(text)
    assert unicodedata.is_normalized("NFC", accepted)
    assert not any(it.isspace() and it != " " for it in accepted)


@given(st.text(), st.sampled_from(["", "src/", "custom://", "file://web/", "./", "a\\"]))
def test_accepted_resource_name_is_already_normalised(text: str, start: str) -> None:
    try:
        accepted = claimable(start + text)
    except ValueError:
        return
    assert claimable(accepted) == accepted == canonical(start + text)
    assert unicodedata.is_normalized("NFC", accepted)


letters = st.sampled_from("aZéабвαβאب漢あア한\u0301\u0e31\u094d1-_")


@given(st.text(letters, min_size=1, max_size=6), st.sampled_from([str.upper, str.lower, str.casefold, str.title]))
def test_other_case_of_an_accepted_name_is_accepted(text: str, case: object) -> None:
    assert callable(case)
    allowed_agent_name(case(allowed_agent_name(text)))


@given(st.text(), st.text())
def test_two_accepted_names_that_differ_differ_visibly(one: str, other: str) -> None:
    """Whatever Unicode calls ignorable or blank is in neither of them."""
    for text in (one, other):
        try:
            accepted = allowed_agent_name(text)
        except ValueError:
            continue
        assert not {unicodedata.category(it) for it in accepted} & {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    "text",
    [
        "\u0430nn",  # Cyrillic а
        "cl\u0430ude/tests",
        "custom://m\u0435rge",
        "src/p\u0430rser.py",
        "αnn",
        "team-\u0430",
        "ann\u1039",  # the Myanmar virama
        "漢字한글x\u0431",
        "あ한",
        "\uff41\u0430",  # fullwidth Latin a
        "file://web/\u0430nn.py",
    ],
)
def test_word_of_several_scripts_is_mixed(text: str) -> None:
    assert mixed_scripts(text)


@pytest.mark.parametrize(
    "text",
    [
        *("ann", "src/main.py", "custom://merge", "Ünal 2", "анна", "документ.py", "src/документ.py", "שרה/tests"),
        *("claude/тест", "custom://слияние", "漢字かなカナabc", "資料（最終）v2.docx", "한글漢字abc", "ㄅㄆ漢字abc"),
        *("नमस्ते", "สมชาย", "🚀ann", "µm", "e\u0301", "ﾊﾝｶｸ", "ａｎｎ", "Отчёт Q3.docx", "№1", "x²"),
    ],
)
def test_words_of_one_script_or_of_usually_combined_ones_are_not_mixed(text: str) -> None:
    assert not mixed_scripts(text)
