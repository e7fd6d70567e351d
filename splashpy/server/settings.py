# SPDX-License-Identifier: Apache-2.0
"""What the person who starts the server decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from splashpy.protocol import Sampling

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Wishes about the endpoint.

    Attributes:
        model: name of the model, as people call it.
        package_hash: 12 hex digits that change with the files of the model.
        parameters: number of weights; 0 where unknown.
        size_bytes: of the files; 0 where unknown.
        family: architecture of the model; empty where unknown.
        bits: of its quantized weights; 0 where unknown or not quantized.
        names: further names of the model.
        strict_model: refuse requests for another model.
        key: what clients must show; empty lets everybody in.
        hosts: names clients may call the server by, beside those of loopback.
        origins: web pages that may call, beside local ones; ``*`` is all.
        bound_to: the address it listens at.
        sampling: what applies where a request says nothing.
        effort: reasoning effort where a request says nothing; None: the template's.
        efforts: other words for efforts, asked for and meant.
        max_output: most tokens of any answer; None: what the context leaves.
        max_reasoning: most tokens of reasoning before any answer; None: no limit.
        max_body_bytes: of a request.
        max_queue: requests that may wait.
        request_seconds: how long one may take from its first byte.
        keepalive_seconds: longest silence in a stream.
        load_seconds: how long a request waits for the model to be loaded.
        idle_seconds: without requests, after which the model is unloaded; None: never.
        log_requests: one line for each request.
        ollama: answer in Ollama's dialect too.
        lmstudio: answer in LM Studio's dialect too.
    """

    model: str
    package_hash: str = ""
    parameters: int = 0
    size_bytes: int = 0
    family: str = ""
    bits: int = 0
    names: tuple[str, ...] = ()
    strict_model: bool = False
    key: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    bound_to: str = "127.0.0.1"
    sampling: Sampling = field(default_factory=Sampling)
    effort: str | None = None
    efforts: tuple[tuple[str, str], ...] = ()
    max_output: int | None = None
    max_reasoning: int | None = None
    max_body_bytes: int = 64 * MEBIBYTE
    max_queue: int = 16
    request_seconds: float = 3600.0
    keepalive_seconds: float = 5.0
    load_seconds: float = 30.0
    idle_seconds: float | None = None
    log_requests: bool = False
    ollama: bool = False
    lmstudio: bool = False

    @property
    def served_names(self) -> tuple[str, ...]:
        """All names the model answers to, the one it is called by first."""
        base = self.model.rsplit("/", 1)[-1]
        return tuple(dict.fromkeys((*self.names, self.model, base)))
