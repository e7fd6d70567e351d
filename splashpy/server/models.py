# SPDX-License-Identifier: Apache-2.0
"""What is served: the list of models, health, status, metrics, llama.cpp's properties.

The entry of a model answers to OpenAI's, Anthropic's, vLLM's, llama.cpp's and
OpenRouter's readers at once; each looks for the size of the context under its own name.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from splashpy import wire
from splashpy.protocol import Ready
from splashpy.server.endpoint import Endpoint
from splashpy.server.errors import ApiError
from splashpy.server.vitals import Vitals
from splashpy.version import __version__

_PARAMETERS = (
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "reasoning_effort",
)


def model_list(endpoint: Endpoint) -> dict[str, Any]:
    """``/v1/models``: the model under each of its names."""
    names = endpoint.settings.served_names
    return {
        "object": "list",
        "data": [model_entry(endpoint, name) for name in names],
        "has_more": False,
        "first_id": names[0],
        "last_id": names[-1],
    }


def model_entry(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """One entry; the limits are those of the loaded engine.

    Raises:
        ApiError: no such model is served.
    """
    settings, facts = endpoint.settings, endpoint.engine.facts
    if name not in settings.served_names:
        raise ApiError("model_not_found", f"{name!r} is not served here")
    created = int(endpoint.now() - (time.perf_counter() - endpoint.started_at))
    when = datetime.fromtimestamp(created, UTC)
    entry: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "splashpy",
        "root": settings.model,
        "type": "model",
        "display_name": f"{name} (splashpy)",
        "created_at": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "supported_parameters": list(_PARAMETERS),
        "meta": None,
    }
    return entry | _limits(endpoint, facts) if facts else entry


def _limits(endpoint: Endpoint, facts: Ready) -> dict[str, Any]:
    settings, context = endpoint.settings, facts.context_max
    found: dict[str, Any] = {
        "capabilities": capabilities(facts),
        "meta": {
            "vocab_type": 2,
            "n_vocab": facts.vocab_size,
            "n_ctx": context,
            "n_ctx_train": context,
            "n_params": settings.parameters,
            "size": settings.size_bytes,
        },
    }
    for name in ("max_model_len", "context_length", "context_window"):
        found[name] = context
    found["max_context_length"] = context
    for name in ("max_input_tokens", "max_tokens", "max_output_tokens"):
        found[name] = context - 1
    if facts.effort_levels:
        found["reasoning"] = {
            "default": facts.effort_default != "none",
            "efforts": list(facts.effort_levels),
            "default_effort": facts.effort_default or None,
        }
    return found


def capabilities(facts: Ready) -> list[str]:
    """What the model can do, in Ollama's words."""
    found = ["completion"]
    found += ["tools"] if facts.tools else []
    found += ["thinking"] if facts.reasoning else []
    return [*found, "insert"] if facts.infill else found


def status(endpoint: Endpoint) -> dict[str, Any]:
    """``/status``: everything worth knowing about the server now."""
    engine, metrics, settings = endpoint.engine, endpoint.metrics, endpoint.settings
    facts = engine.facts
    load = engine.vitals.progress
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_s": round(time.perf_counter() - endpoint.started_at, 3),
        "model": {
            "id": settings.model,
            "package_hash": settings.package_hash,
            "drafter": facts.draft.state if facts else None,
            "block_size": facts.block_size if facts else None,
            "ctx": engine.context,
        },
        "ready": wire.to_json(replace(facts, template="")) if facts else None,
        "state": "draining" if endpoint.draining else engine.state,
        "load": {
            "phase": load.phase,
            "done": load.done,
            "total": load.total,
            "unit": load.unit,
        },
        "requests": {
            outcome: int(metrics.total("requests_total", outcome=outcome))
            for outcome in ("ok", "error", "cancelled", "rejected")
        },
        "queue": {
            "running": endpoint.running,
            "waiting": endpoint.waiting,
            "lanes": endpoint.lanes,
            "capacity": settings.max_queue,
        },
        "phases": asdict(engine.vitals.phases),
        "cache": {
            "hits": int(metrics.total("prefix_cache_hits_total")),
            "misses": int(metrics.total("prefix_cache_misses_total")),
            "reused_tokens": int(metrics.total("cached_prompt_tokens_total")),
        },
        "speculation": _speculation(endpoint),
        "engine": _engine(endpoint),
        "memory": _memory(engine.vitals),
        "http": {"ignored_fields": int(metrics.total("ignored_fields_total"))},
        "last": endpoint.last,
    }


def _speculation(endpoint: Endpoint) -> dict[str, Any]:
    total = endpoint.metrics.total
    return {
        "drafted": int(total("spec_decode_num_draft_tokens_total")),
        "accepted": int(total("spec_decode_num_accepted_tokens_total")),
        "cycles": int(total("spec_decode_decisions_total")),
        "saved_steps": round(total("spec_decode_saved_steps_total"), 1),
        "regret_steps": round(total("spec_decode_regret_steps_total"), 1),
    }


def _memory(vitals: Vitals) -> dict[str, Any]:
    memory, now = vitals.memory, vitals.clock()
    return {
        "active_bytes": memory.active,
        "cache_bytes": memory.cache,
        "peak_bytes": memory.peak,
        "pressure": memory.pressure,
        "ledger": asdict(memory.ledger),
        "wired_bytes": memory.wired,
        "not_wired": memory.not_wired or None,
        "sheds": [
            {
                "seconds_ago": round(now - at, 1),
                "level": shed.level,
                "action": shed.action,
                "bytes": shed.held,
                "tokens": shed.tokens,
            }
            for at, shed in vitals.sheds
        ],
    }


def _engine(endpoint: Endpoint) -> dict[str, Any]:
    engine = endpoint.engine
    problem = engine.problem
    return {
        "pid": engine.vitals.pid or None,
        "restarts": engine.restarts.count,
        "safe_mode": engine.safe_mode,
        "replayed_requests": engine.replayed,
        "unload_after_s": engine.idle_seconds,
        "unloads": engine.unloads,
        "problem": problem.message if problem else None,
    }


def _able(endpoint: Endpoint) -> bool:
    """Whether a request would be answered, though perhaps after a load."""
    engine = endpoint.engine
    resting = engine.state in ("unloading", "unloaded") and engine.problem is None
    return engine.state == "ready" or resting


def health(endpoint: Endpoint) -> dict[str, Any]:
    """``/health``: the model is loaded, or will be when somebody wants it.

    Raises:
        ApiError: it is not.
    """
    if not _able(endpoint):
        raise endpoint.engine.absence()
    return {"status": "ok"}


def readiness(endpoint: Endpoint) -> tuple[int, dict[str, Any]]:
    """``/ready``: whether a request could be admitted now, with the status for it."""
    full = endpoint.active >= endpoint.lanes + endpoint.settings.max_queue
    if endpoint.draining:
        reason = "draining"
    elif not _able(endpoint):
        problem = endpoint.engine.problem
        short = problem is not None and problem.code == "insufficient_memory"
        reason = "memory" if short else endpoint.engine.state
    elif full:
        reason = "queue"
    else:
        return 200, {"status": "ready"}
    return 503, {"status": "unavailable", "reason": reason}


def prometheus(endpoint: Endpoint) -> str:
    """``/metrics``."""
    engine = endpoint.engine
    ready = float(_able(endpoint) and not endpoint.draining)
    endpoint.metrics.put("engine_restarts_total", engine.restarts.count)
    endpoint.metrics.put("requests_replayed_total", engine.replayed)
    endpoint.metrics.put("model_unloads_total", engine.unloads)
    memory = engine.vitals.memory
    phases = {
        (("phase", name),): float(count)
        for name, count in asdict(engine.vitals.phases).items()
    }
    gauges = {
        "ready": ("1 when requests are answered.", ready),
        "model_loaded": ("1 when the model is in memory.", float(engine.loaded)),
        "queue_waiting": ("Requests that wait.", endpoint.waiting),
        "requests_running": ("Requests the engine works on.", endpoint.running),
        "lanes": ("Requests that may run at a time.", endpoint.lanes),
        "requests_in_phase": ("Requests at the engine by what they do.", phases),
        "memory_active_bytes": ("Bytes MLX holds.", memory.active),
        "memory_peak_bytes": ("Most bytes MLX held.", memory.peak),
        "memory_cache_bytes": ("Bytes MLX keeps for reuse.", memory.cache),
    }
    info = {"version": __version__, "model": endpoint.settings.model}
    return endpoint.metrics.render(gauges, info)


def properties(endpoint: Endpoint) -> dict[str, Any]:
    """llama.cpp's ``/props``.

    Raises:
        ApiError: the model is not loaded.
    """
    facts = endpoint.engine.facts
    if facts is None:
        raise endpoint.engine.absence()
    defaults = facts.sampling_defaults
    parameters = {
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
    }
    return {
        "default_generation_settings": {
            "n_ctx": facts.context_max,
            "params": {k: v for k, v in parameters.items() if v is not None},
        },
        "total_slots": endpoint.lanes,
        "model_path": endpoint.settings.model,
        "model_alias": endpoint.settings.served_names[0],
        "chat_template": facts.template,
        "modalities": {"vision": False, "audio": False},
        "bos_token": facts.bos,
        "eos_token": facts.eos,
        "build_info": f"splashpy-{__version__}",
        "is_sleeping": endpoint.engine.state == "unloaded",
    }


def slots(endpoint: Endpoint, *, fail_when_busy: bool) -> list[dict[str, Any]]:
    """llama.cpp's ``/slots``.

    Raises:
        ApiError: no slot is free, and that was asked.
    """
    if fail_when_busy and endpoint.running >= endpoint.lanes:
        raise ApiError("queue_full", "no slot is free", status=503)
    return [
        {
            "id": number,
            "n_ctx": endpoint.engine.context,
            "is_processing": number < endpoint.running,
        }
        for number in range(endpoint.lanes)
    ]
