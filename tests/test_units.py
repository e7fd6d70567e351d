# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.units import (
    format_bytes,
    format_seconds,
    format_tokens,
    parse_tokens,
)


def test_token_counts_use_1024() -> None:
    assert parse_tokens("32K") == 32768
    assert format_tokens(32768) == "32K"
    assert format_tokens(21900) == "21.4K"
    assert format_tokens(512) == "512"
    with pytest.raises(ValueError, match="32K"):
        parse_tokens("many")


def test_bytes_are_printed_in_decimal_units() -> None:
    assert format_bytes(999) == "999 B"
    assert format_bytes(98_362_432) == "98.4 MB"
    assert format_bytes(17_400_000_000) == "17.4 GB"
    assert format_bytes(2_000_000_000_000) == "2000.0 GB"


def test_durations_are_printed_at_the_scale_of_a_person() -> None:
    assert format_seconds(0.284) == "0.28 s"
    assert format_seconds(38.2) == "38 s"
    assert format_seconds(380) == "6 min 20 s"
    assert format_seconds(59.7) == "1 min 0 s"
    assert format_seconds(21_417) == "5 h 57 min"
