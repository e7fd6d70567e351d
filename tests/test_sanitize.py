# SPDX-License-Identifier: Apache-2.0
"""Nothing a terminal would obey gets through the sanitizer."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.sanitize import sanitize, sanitize_line

ATTACKS = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;aGVsbG8=\x1b\\",
    "hyperlink": "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "device control": "\x1bP+q544e\x1b\\",
    "cursor report": "\x1b[6n",
    "colour": "\x1b[31mred\x1b[0m",
    "eight-bit CSI": "\x9b31m",
    "eight-bit OSC": "\x9d0;owned\x9c",
    "overwrite": "safe\rrm -rf /",
    "erase": "secret\x08\x08\x08\x08\x08\x08public",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_control_sequence_becomes_visible_text(attack: str) -> None:
    shown = sanitize(attack)

    assert not any(unicodedata.category(c) == "Cc" for c in shown)
    assert len(shown) == len(attack)


def test_escape_is_shown_as_its_picture() -> None:
    assert sanitize("\x1b[0m") == "␛[0m"
    assert sanitize("\x7f") == "␡"
    assert sanitize("\x85") == "\ufffd"


def test_newlines_and_tabs_stay() -> None:
    assert sanitize("a\tb\nc\r\nd\u2028e\u2029f") == "a\tb\nc\nd\ne\nf"


def test_characters_that_reorder_text_show_their_code() -> None:
    assert sanitize("\u202egnp.exe") == "⟨U+202E⟩gnp.exe"
    assert sanitize("\u2066a\u2069") == "⟨U+2066⟩a⟨U+2069⟩"


def test_a_lone_surrogate_can_be_written_afterwards() -> None:
    assert sanitize("a\ud800b").encode() == "a\ufffdb".encode()


def test_a_name_stays_on_one_line() -> None:
    assert sanitize_line("a\tb\r\nc\x1b") == "a b c␛"


def test_ordinary_text_of_any_script_is_untouched() -> None:
    for text in ("plain", "žluťoučký", "世界", "שלום", "👩‍👩‍👧", "e\u0301", "[/INST]"):
        assert sanitize(text) == text


@given(st.text(st.characters()))
def test_what_comes_out_is_safe_and_stays_as_it_is(text: str) -> None:
    shown = sanitize(text)

    shown.encode("utf-8")
    controls = {c for c in shown if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")}
    assert controls <= {"\n", "\t"}
    assert sanitize(shown) == shown
