# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import select

from splashpy.chat.terminal_input import Ending


def readable(ending: Ending) -> bool:
    return bool(select.select([ending.wakes], [], [], 0)[0])


def test_the_end_wakes_who_waits_for_keys_and_can_be_taken_back() -> None:
    ending = Ending()
    assert not readable(ending)
    ending.set()
    assert ending.is_set()
    assert readable(ending)
    ending.clear()
    assert not ending.is_set()
    assert not readable(ending)
