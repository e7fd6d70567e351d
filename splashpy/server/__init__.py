# SPDX-License-Identifier: Apache-2.0
"""The local HTTP endpoint: editors, agents and SDKs talk to the engine here.

A dialect (OpenAI, Anthropic, llama.cpp, Ollama) reads a body into a ``Generate``
command and writes the events that answer it in its own shapes. This room knows status
codes and server-sent events; prompts, reasoning, tool calls and stop strings are the
host's, and the engine is a client it is given. It cannot reach MLX.

Read ``app.py`` first, then ``exchange.py`` and, as a model of a dialect, ``chat.py``.
"""
