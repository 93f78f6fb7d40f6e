"""Names of agents and resources: which are refused and why, and what protects nothing."""

import unicodedata

import pytest

import holdlog
from tests.support.claims import file_alone, holders, take
from tests.support.hosts import write

REFUSED = {
    "U+3164": "\u3164", "U+FFA0": "\uffa0", "U+115F": "\u115f", "U+2800": "\u2800", "U+034F": "\u034f",
    "U+17B4": "\u17b4", "U+FE0F": "\ufe0f", "U+E0100": "\U000e0100", "U+180B": "\u180b", "U+200C": "\u200c",
    "U+200D": "\u200d", "U+200B": "\u200b", "U+202E": "\u202e", "U+061C": "\u061c", "U+2066": "\u2066",
    "U+00AD": "\u00ad", "U+FEFF": "\ufeff", "U+00A0": "\u00a0", "U+2003": "\u2003", "U+3000": "\u3000",
    "U+FFFC": "\ufffc", "U+16FE4": "\U00016fe4", "U+1D159": "\U0001d159", "U+E000": "\ue000", "U+000A": "\n",
    "U+0000": "\0", "U+001B": "\x1b", "U+0085": "\x85", "U+2028": "\u2028", "U+D800": "\ud800",
}  # fmt: skip
NAMES = """ann|my agent|claude-7f3a|Ünal|日本|анна|שרה|فاطمة|สมชาย|김철수|नमस्ते|résumé v2|🚀|a+b|№1|e\u0301
資料（最終）.docx|app/[id]/page.tsx|ノート・一.md|paral·lel.md|Übung 1/änderung.tex|C#/a.cs|customers:a""".replace(
    "\n", "|"
).split("|")


def refusal(call, *arguments, **options):
    with pytest.raises(holdlog.InvalidError) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@file_alone
@pytest.mark.parametrize("spelled", ["ann{}", "{}ann", "a{}nn", "{}"])
def test_refusal_of_a_name_names_the_argument_and_the_character(store, spelled):
    for code, character in REFUSED.items():
        text = spelled.format(character)
        for argument, message in (
            ("agent", refusal(store.claim, "a", agent=text)),
            ("resource", refusal(store.claim, text, agent="ann")),
            ("resource", refusal(store.claim, f"custom://{text}", agent="ann")),
        ):
            assert message.startswith(f"{argument}: must not contain {code}"), message
    assert holders(store) == {}


@file_alone
def test_every_call_that_names_an_agent_or_a_new_claim_has_the_same_rules(store):
    take(store, "a")
    agent, name = "ann\u3164", "src/\u3164.py"
    for argument, message in (
        ("agent", refusal(store.release, "a", agent=agent)),
        ("updated_by", refusal(store.set, "n", "k", 1, updated_by=agent)),
        ("deleted_by", refusal(store.delete, "n", "k", deleted_by=agent)),
        ("also", refusal(store.claim, "b", agent="ann", also=["c", name])),
        ("moved_to", refusal(store.release, "a", agent="ann", outcome="moved", moved_to=name)),
    ):
        assert message.startswith(argument)
    assert "U+3164" in message
    assert holders(store) == {"a": ["ann"]}


@file_alone
def test_names_in_all_scripts_are_claimed_in_one_normal_form(store):
    for text in NAMES:
        normal = unicodedata.normalize("NFC", text)
        agent = normal.replace("/", "-")
        assert take(store, text, agent).resource == normal
        assert take(store, f"custom://{text}", agent).resource == f"custom://{normal}"
        assert holders(store)[normal] == [agent]


@file_alone
def test_unassigned_characters_are_accepted(store):
    assert take(store, "a\u0378", "ann\u0378").resource == "a\u0378"


@file_alone
def test_lengths_and_edges_of_names(store):
    for agent, resource in (("é" * 128, "x" * 512), ("x" * 128, "é" * 512)):
        take(store, resource, agent)
    for text in ("", " ", " a", "a ", "é" * 513, "custom:// x", "x" * 1_000_000):
        assert refusal(store.claim, text, agent="ann").startswith("resource: must")
    for text in ("", " ", " a", "a ", "x" * 129, "/", "/ann", "ann/", "ann//tests"):
        assert refusal(store.claim, "a", agent=text).startswith("agent: must")
    for text in ("x" * 501, "\ud800"):
        assert refusal(store.claim, "a", agent="ann", note=text).startswith("note: must")
    take(store, "b", note="é" * 500)


# --- names that protect nothing

INSTEAD = {
    "src/": ["src/*.py", "src/**", "*", "a?.py", "file://web/*.py", "./src/*.py", "src\\*.py", "/abs/*.py"],
    "custom://merge": [*("custom:merge", "custom:/x", "custom:", "custom//deploy", "Custom:merge", "custom: x")],
    "custom://": ["..", "../a", "a/../b", "a\\..\\b", "file://web/../b", "http://x", "ftp://a/b", "file:/x"],
    "must": [".", "./", "/", "//", "\\", "file://", "custom://"],
}


@file_alone
def test_name_that_protects_nothing_is_refused_with_what_to_use_instead(store):
    for instead, names in INSTEAD.items():
        for name in names:
            assert instead in refusal(store.claim, name, agent="ann"), name
    assert holders(store) == {}
    for name in ("app/[id]/page.tsx", "custom/deploy", "src/a.py:10", "a, b.py", "custom://*.py", "custom://a?"):
        assert take(store, name).resource == name


def test_one_path_in_two_worktrees_is_two_resources_that_know_of_each_other(stdio, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name / "a.py", "")
    folders = [word for name in ("one", "two") for word in ("--workspace", f"{name}={tmp_path / name}")]
    server = stdio(*folders, cwd=tmp_path / "one")
    first = server.call("claim", resource="a.py", agent="ann")
    again = server.call("claim", resource=str(tmp_path / "one" / "a.py"), agent="ann")
    assert again["status"] == "already_claimed"
    assert first["resource"] == again["resource"]
    second = server.call("claim", resource=str(tmp_path / "two" / "a.py"), agent="bob")
    assert (second["status"], second["resource"]) == ("claimed", "file://two/a.py")
    assert second["also_claimed_in"] == [{"workspace": "one", "held_by": "ann"}]
    assert second["hint"]
    assert server.call("status", resource="a.py")["also_claimed_in"] == [{"workspace": "two", "held_by": "bob"}]
    assert "workspace" in server.error("claim", resource="/etc/passwd", agent="ann")
