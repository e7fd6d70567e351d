# SPDX-License-Identifier: Apache-2.0
"""The loaded model as Ollama and LM Studio list theirs."""

from __future__ import annotations

import hashlib
from typing import Any

from splashpy.protocol import Ready
from splashpy.server.endpoint import Endpoint
from splashpy.server.errors import ApiError
from splashpy.server.fields import Fields
from splashpy.server.models import capabilities
from splashpy.server.ollama_shape import rfc3339

OLLAMA_VERSION = "0.24.0"
"""What is said to editors that refuse versions without tools; none of Ollama's own."""

_UNKNOWN_FAMILY = "unknown"
_NEVER = "9999-12-31T23:59:59Z"  # the model stays loaded as long as the server runs


# --- Ollama ---------------------------------------------------------------------------


def tags(endpoint: Endpoint) -> dict[str, Any]:
    """``/api/tags``: the model under each of its names."""
    names = endpoint.settings.served_names
    return {"models": [_listed(endpoint, name) for name in names]}


def loaded(endpoint: Endpoint) -> dict[str, Any]:
    """``/api/ps``: the model, once it is loaded."""
    facts = endpoint.engine.facts
    if facts is None:
        return {"models": []}
    size = endpoint.settings.size_bytes
    entry = _listed(endpoint, endpoint.settings.served_names[0])
    entry |= {"expires_at": _NEVER, "size_vram": size}
    return {"models": [{**entry, "context_length": facts.context_max}]}


def shown(endpoint: Endpoint, body: Fields) -> dict[str, Any]:
    """``/api/show``: what a model is and can do.

    Editors look for tools among the capabilities, for the length of the context under
    the name of the architecture, and for ``.Suffix`` in the template of a model that
    fills gaps.

    Raises:
        ApiError: another model, where that is refused; none is loaded.
    """
    facts = endpoint.engine.facts
    if facts is None:
        raise endpoint.engine.absence()
    asked = body.text("model") or body.text("name")
    name = endpoint.served_model(asked.removesuffix(":latest"))
    family, count = _family(endpoint), endpoint.settings.parameters
    about: dict[str, Any] = {
        "general.architecture": family,
        "general.basename": name.rsplit("/", 1)[-1],
        f"{family}.context_length": facts.context_max,
    }
    if count:
        about["general.parameter_count"] = count
    gap = "{{ .Prompt }}{{ .Suffix }}"
    return {
        "modelfile": "",
        "parameters": _parameters(facts),
        "template": gap if facts.infill else "{{ .Prompt }}",
        "details": _details(endpoint),
        "model_info": about,
        "capabilities": capabilities(facts),
        "modified_at": rfc3339(endpoint.now()),
    }


def pulled(endpoint: Endpoint, body: Fields) -> dict[str, Any]:
    """``/api/pull``: the model that is here already is there.

    Raises:
        ApiError: any other model.
    """
    asked = body.text("model") or body.text("name")
    if asked.removesuffix(":latest") not in endpoint.settings.served_names:
        raise ApiError(
            "model_not_found",
            f"{asked!r} is not served here; splashpy pull fetches models",
        )
    return {"status": "success"}


def _listed(endpoint: Endpoint, name: str) -> dict[str, Any]:
    fingerprint = f"{endpoint.settings.model} {endpoint.settings.package_hash}"
    return {
        "name": name,
        "model": name,
        "modified_at": rfc3339(endpoint.now()),
        "size": endpoint.settings.size_bytes,
        "digest": hashlib.sha256(fingerprint.encode()).hexdigest(),
        "details": _details(endpoint),
    }


def _details(endpoint: Endpoint) -> dict[str, Any]:
    settings = endpoint.settings
    family, count, bits = _family(endpoint), settings.parameters, settings.bits
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": f"{count / 1e9:.3g}B" if count else "",
        "quantization_level": f"Q{bits}" if bits else "",
    }


def _parameters(facts: Ready) -> str:
    """The defaults, one on each line."""
    defaults = facts.sampling_defaults
    values = {
        "num_ctx": facts.context_max,
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
    }
    return "\n".join(f"{k} {v}" for k, v in values.items() if v is not None)


def _family(endpoint: Endpoint) -> str:
    return endpoint.settings.family or _UNKNOWN_FAMILY


# --- LM Studio ------------------------------------------------------------------------


def studio_list(endpoint: Endpoint) -> dict[str, Any]:
    """``/api/v0/models``: the model under each of its names."""
    names = endpoint.settings.served_names
    return {
        "object": "list",
        "data": [studio_entry(endpoint, name) for name in names],
    }


def studio_entry(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """One entry; Zed takes no words here but those LM Studio has.

    Raises:
        ApiError: no such model is served.
    """
    if name not in endpoint.settings.served_names:
        raise ApiError("model_not_found", f"{name!r} is not served here")
    facts, context = endpoint.engine.facts, endpoint.engine.context
    bits = endpoint.settings.bits
    entry = {
        "id": name,
        "object": "model",
        "type": "llm",
        "publisher": "splashpy",
        "arch": _family(endpoint),
        "compatibility_type": "mlx",
        "quantization": f"{bits}bit" if bits else "",
        "state": "loaded" if facts else "loading",
        "max_context_length": context,
        "capabilities": ["tool_use"] if facts and facts.tools else [],
    }
    return {**entry, "loaded_context_length": context} if facts else entry
