# SPDX-License-Identifier: Apache-2.0
"""Raw prompts and gaps: OpenAI Completions and llama.cpp's own endpoints."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from scripted_engine import Said, Script
from server_kit import Reply, Running, until


def complete(server: Running, **fields: Any) -> Reply:
    return server.post("/v1/completions", {"prompt": "Once", **fields})


def prompt_of(server: Running, script: Script, number: int = -1) -> str:
    tokens = list(script.requests[number].token_ids)
    return server.post("/detokenize", {"tokens": tokens}).json["content"]


def test_a_raw_prompt_is_continued_without_a_template(
    server: Running, script: Script
) -> None:
    script.say(" upon a <think>time<|im_end|>")

    answer = complete(server, echo=True).json

    assert prompt_of(server, script) == "Once"
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "Once upon a <think>time",
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


def test_several_prompts_are_answered_in_order(server: Running, script: Script) -> None:
    script.answers = [Said(("A<|im_end|>",)), Said(("B<|im_end|>",))]

    answer = complete(server, prompt=["one", [72, 105]], stop=None).json

    assert [c["text"] for c in answer["choices"]] == ["A", "B"]
    assert script.requests[1].token_ids == (72, 105)
    lengths = [len(request.token_ids) for request in script.requests]
    assert answer["usage"]["prompt_tokens"] == sum(lengths)


def test_a_stream_of_several_prompts_numbers_its_choices(
    server: Running, script: Script
) -> None:
    script.answers = [Said(("A<|im_end|>",)), Said(("BB<|im_end|>",))]

    events = complete(
        server,
        prompt=["one", "two"],
        stream=True,
        echo=True,
        stream_options={"include_usage": True},
    ).events

    texts = {0: "", 1: ""}
    for event in events[:-2]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == {0: "oneA", 1: "twoBB"}
    assert events[-2]["choices"] == []
    assert events[-1] == "[DONE]"


def test_a_suffix_is_a_gap_to_fill(server: Running, script: Script) -> None:
    script.say("x + 1<|fim_pad|>more<|im_end|>")

    answer = complete(server, prompt="def f(x):\n    return ", suffix="\n\nf(2)").json

    assert answer["choices"][0]["text"] == "x + 1"
    assert prompt_of(server, script) == (
        "<|repo_name|>repository\n<|file_sep|>file\n"
        "<|fim_prefix|>def f(x):\n    return <|fim_suffix|>\n\nf(2)<|fim_middle|>"
    )


def test_a_hand_made_gap_ends_at_the_same_tokens(
    server: Running, script: Script
) -> None:
    script.say("x<|file_sep|>more<|im_end|>")
    prompt = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"

    assert complete(server, prompt=prompt).json["choices"][0]["text"] == "x"


def test_a_gap_is_refused_where_the_model_fills_none(
    serve: Any, plain_speaker: Any
) -> None:
    server = serve(plain_speaker)

    by_suffix = complete(server, suffix="x")
    native = server.post("/infill", {"input_prefix": "a", "input_suffix": "b"})

    assert by_suffix.status == 400
    assert by_suffix.json["error"]["code"] == "not_supported"
    assert native.status == 501
    assert native.json["error"]["message"] == "Infill is not supported by this model"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": ["a", 5]}, "prompt[1]"),
        ({"prompt": [5, "a"]}, "prompt[0]"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2, "stream": True}, "n"),
        ({"logprobs": 21}, "logprobs"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"²": 1}}, "logit_bias"),
        ({"logit_bias": {"--5": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"stream": 1}, "stream"),
    ],
)
def test_an_impossible_value_is_refused_with_its_place(
    server: Running, script: Script, fields: dict[str, Any], param: str
) -> None:
    reply = complete(server, **fields)

    assert reply.status == 400
    assert reply.json["error"]["param"] == param
    assert script.requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_the_model_does_not_have_is_refused_before_any_header(
    server: Running, script: Script, *, stream: bool
) -> None:
    reply = complete(server, logit_bias={"99999": 1}, stream=stream)

    assert reply.status == 400
    assert "logit_bias holds the token id 99999" in reply.json["error"]["message"]
    assert script.requests == []


def test_what_is_asked_of_the_draw_reaches_the_engine(
    server: Running, script: Script
) -> None:
    complete(
        server,
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repeat_penalty=1.1,
        repeat_last_n=50,
        seed=8.0,
        logit_bias={"65": 5, "66": -100},
        speculative=False,
    )

    (request,) = script.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 0)
    assert (sampling.min_p, sampling.presence_penalty) == (0.1, 1)
    assert (sampling.frequency_penalty, sampling.repetition_penalty) == (-1, 1.1)
    assert sampling.penalty_window == 50
    assert sampling.logit_bias == ((65, 5.0), (66, -1e9))
    assert (request.seed, request.seeded, request.draft) == (8, True, False)


def test_the_native_endpoint_answers_in_llama_cpp_s_words(
    server: Running, script: Script
) -> None:
    script.say("one\ntwo<|im_end|>", cached=1)

    answer = server.post("/completion", {"prompt": "Count", "return_tokens": True}).json

    assert answer["content"] == "one\ntwo"
    assert answer["stop"] is True
    assert answer["stop_type"] == "eos"
    assert answer["has_new_line"] is True
    assert answer["tokens_cached"] == 1
    assert answer["tokens_evaluated"] == len("Count")
    assert answer["tokens_predicted"] == len(answer["tokens"]) == 8


def test_a_native_prompt_may_mix_texts_and_tokens(
    server: Running, script: Script
) -> None:
    end = server.post("/tokenize", {"content": "<|im_end|>"}).json["tokens"]

    assert server.post("/completion", {"prompt": ["a", *end, "b"]}).status == 200
    assert server.post("/completion", {"prompt": ["a", 999_999]}).status == 400
    assert server.post("/completion", {"prompt": ["a", None, 5]}).status == 400

    assert prompt_of(server, script) == "a<|im_end|>b"


def test_a_native_stream_ends_with_the_whole_object(
    server: Running, script: Script
) -> None:
    script.say("alpha beta<|im_end|>")

    events = server.post(
        "/completion", {"prompt": "x", "stream": True, "stop": ["beta"]}
    ).events

    assert "".join(event["content"] for event in events) == "alpha "
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["stop_type"] == "word"
    assert events[-1]["stopping_word"] == "beta"


def test_a_warm_up_reads_the_prompt_and_writes_nothing(
    server: Running, script: Script
) -> None:
    warm = {
        "input_prefix": "def f",
        "input_suffix": "",
        "prompt": "",
        "n_predict": 0,
        "samplers": [],
        "t_max_prompt_ms": 1,
        "t_max_predict_ms": 1,
        "response_fields": [""],
    }

    reply = server.post("/infill", warm)

    assert (reply.status, reply.json) == (200, {})
    assert script.requests[0].prefill_only
    assert script.requests[0].foreground


def test_infill_puts_other_files_first_and_answers_the_wanted_fields(
    server: Running, script: Script
) -> None:
    script.say("return 1<|im_end|>")

    answer = server.post(
        "/infill",
        {
            "input_prefix": "a\n",
            "input_suffix": "\nz",
            "prompt": "    ",
            "input_extra": [{"filename": "other.py", "text": "<|im_end|> x"}],
            "n_predict": 128,
            "samplers": ["top_k", "top_p", "infill"],
            "top_k": 40,
            "response_fields": ["content", "timings/prompt_n", "truncated", "none"],
        },
    ).json

    assert set(answer) == {"content", "timings/prompt_n", "truncated"}
    assert prompt_of(server, script) == (
        "<|repo_name|>repository\n<|file_sep|>other.py\n<|im_end|> x<|file_sep|>file\n"
        "<|fim_prefix|>a\n    <|fim_suffix|>\nz<|fim_middle|>"
    )
    end = server.post("/tokenize", {"content": "<|im_end|>"}).json["tokens"]
    assert end[0] not in script.requests[0].token_ids  # it was somebody's text


def test_a_time_limit_stops_after_a_whole_line(server: Running, script: Script) -> None:
    stopped = threading.Event()

    def wait() -> None:
        until(lambda: bool(script.cancelled))
        stopped.set()

    script.say("one\n", "two ", wait, "three")
    body = {"prompt": "x", "t_max_predict_ms": 0, "n_predict": 50}

    answer = server.post("/completion", body).json

    assert stopped.is_set()
    assert answer["stop_type"] == "limit"
    assert answer["content"].startswith("one\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_line_less_indented_ends_a_gap(
    server: Running, script: Script, *, stream: bool
) -> None:
    cancelled = lambda: until(lambda: bool(script.cancelled))  # noqa: E731
    script.say("    a\n    b", "\n", "  ", "c", cancelled)
    body = {"prompt": "x", "n_indent": 4, "stream": stream}

    answer = server.post("/completion", body)

    parts = answer.events if stream else [answer.json]
    assert parts[-1]["stop_type"] == "limit"
    assert "".join(part["content"] for part in parts) == "    a\n    b\n"


@pytest.mark.parametrize("text", ["  a\n  b\n   ", "  a\n", "a\n\n  b"])
def test_text_that_keeps_its_indentation_is_streamed_whole(
    server: Running, script: Script, text: str
) -> None:
    script.say(text, block=1)
    body = {"prompt": "x", "n_indent": 2, "stream": True}

    parts = server.post("/completion", body).events

    assert "".join(part["content"] for part in parts) == text


def test_tokens_are_cut_and_joined(server: Running) -> None:
    cut = server.post("/tokenize", {"content": "é<|im_end|>", "with_pieces": True})
    pieces = [token["piece"] for token in cut.json["tokens"]]
    plain = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})
    vllm = server.post("/tokenize", {"prompt": "hi", "return_token_strs": True}).json
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    rendered = server.post("/apply-template", chat).json
    counted = server.post("/v1/tokenize", chat).json
    bare = server.post("/apply-template", {**chat, "add_generation_prompt": False})

    assert pieces == [[0xC3], [0xA9], "<|im_end|>"]
    assert len(plain.json["tokens"]) == len("<|im_end|>")
    assert vllm == {
        "count": 2,
        "max_model_len": 4096,
        "tokens": vllm["tokens"],
        "token_strs": ["h", "i"],
    }
    assert rendered["prompt"].endswith("<|im_start|>assistant\n<think>\n")
    assert rendered["prompt_tokens"] == counted["count"] == len(counted["tokens"])
    assert rendered["prompt"].startswith(bare.json["prompt"])
    assert server.post("/detokenize", {"tokens": [999_999]}).status == 400
    assert server.post("/detokenize", {"tokens": ["a"]}).status == 400


def test_what_is_not_made_here_is_said(server: Running) -> None:
    assert server.post("/v1/embeddings", {"input": "x"}).status == 501
