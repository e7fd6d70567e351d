# SPDX-License-Identifier: Apache-2.0
"""What a client sees of the prefix cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.cache.disk.lookup_file import LookupFile
from splashpy.protocol import Done, Prefill

SYSTEM = {"role": "system", "content": "Answer in short lines. " * 6}


def talk(*texts: str) -> tuple[dict[str, Any], ...]:
    roles = ["user", "assistant"] * len(texts)
    pairs = zip(roles, texts, strict=False)
    return (SYSTEM, *({"role": role, "content": text} for role, text in pairs))


def reply(conversation: Any, messages: Any, **fields: Any) -> tuple[str, Done, Any]:
    fields = {"messages": messages, "max_tokens": 6, **fields}
    events = conversation.ask(**fields)
    text = "".join(
        piece.text for event in events for piece in getattr(event, "pieces", ())
    )
    done = events[-1]
    assert isinstance(done, Done), done
    return text, done, [event for event in events if isinstance(event, Prefill)]


@pytest.mark.parametrize("family", ["llama", "qwen3_5", "gpt_oss"])
@pytest.mark.parametrize("drafter", [False, True], ids=["alone", "with a drafter"])
def test_usage_and_progress_tell_what_was_restored(
    family: str, drafter: bool, conversation: Any, tmp_path: Path
) -> None:
    model = tiny.write_model(tmp_path / "m", family)
    options = {"draft": str(tiny.write_drafter(tmp_path / "d"))} if drafter else {}
    conversation.load(model, **options)
    text, done, _ = reply(conversation, talk("Hello"))
    assert done.usage.cached == 0

    _, again, events = reply(conversation, talk("Hello"))
    assert again.usage.cached == again.usage.prompt - 1
    assert [event.cached for event in events] == [again.usage.cached] * len(events)
    assert events[0].processed == again.usage.cached
    assert events[-1].processed == again.usage.prompt

    told = "".join(c for c in text if c.isascii() and c.isprintable()) or "Yes."
    _, turn, _ = reply(conversation, talk("Hello", told, "And then?"))
    assert turn.usage.cached >= done.usage.prompt - 1

    _, other, _ = reply(conversation, talk("Something else"))
    assert len(SYSTEM["content"]) <= other.usage.cached < done.usage.prompt


@pytest.mark.parametrize("family", ["qwen3_5", "gpt_oss"])
def test_an_opener_that_history_does_not_repeat_costs_its_own_tokens_only(
    family: str, conversation: Any, tmp_path: Path
) -> None:
    model = tiny.write_model(tmp_path / "m", family)
    settings = json.loads((model / "tokenizer_config.json").read_text())
    opener = settings["chat_template"].replace(
        "assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif"
    )
    assert opener != settings["chat_template"]
    settings["chat_template"] = opener
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    conversation.load(model)
    _, first, _ = reply(conversation, talk("Hello"))
    tail = len("<think>\n")
    _, again, _ = reply(conversation, talk("Hello"))
    assert again.usage.cached >= first.usage.prompt - tail
    _, turn, _ = reply(conversation, talk("Hello", "Good day.", "And now?"))
    assert turn.usage.cached == first.usage.prompt - tail


def test_lookups_are_written_down_with_message_and_character(
    conversation: Any, tmp_path: Path
) -> None:
    model = tiny.write_model(tmp_path / "m")
    conversation.load(model, cache_dir=str(tmp_path / "kv"), cache_disk=1 << 20)
    reply(conversation, talk("Name one red thing.", "An apple.", "Another?"))
    reply(conversation, talk("Name one big thing.", "An apple.", "Another?"))
    first, second = LookupFile(tmp_path / "kv").read()
    assert first["reason"] == "empty"
    where = second["where"]
    assert (where["message"], where["role"], where["character"]) == (2, "user", 9)
    assert where["now"].startswith("big")
    assert where["was"].startswith("red")
    assert second["resumed"] == second["shared"] > len(SYSTEM["content"])


def test_nothing_is_written_down_where_nothing_may_be_kept(
    conversation: Any, tmp_path: Path
) -> None:
    model = tiny.write_model(tmp_path / "m")
    conversation.load(model, cache_dir=str(tmp_path / "kv"), cache_disk=0)
    reply(conversation, talk("Hello"))
    assert not (tmp_path / "kv").exists()


def test_a_raw_prompt_is_kept_too(conversation: Any, tmp_path: Path) -> None:
    conversation.load(tiny.write_model(tmp_path / "m"))
    for cached in (0, 39):
        events = conversation.ask(prompt="a raw text of forty characters, no less.")
        assert events[-1].usage.cached == cached
