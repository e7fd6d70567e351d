# SPDX-License-Identifier: Apache-2.0
"""Where chat templates run: Jinja's immutable sandbox, furnished as they expect.

Templates are programs written by a model's author for Hugging Face's environment:
``raise_exception``, ``strftime_now``, a ``tojson`` that escapes no HTML, loop controls,
and a ``generation`` block that marks training text and means nothing here. The
behaviour follows ``apply_chat_template`` of transformers 5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from splashpy.errors import TemplateError

# What running a template can raise, beside interrupts and exhausted memory.
_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Sandbox:
    """Compiles and runs templates; ``clock`` tells the local time they may print."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationBlock],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: clock().strftime(form)
        self._environment = environment

    def compile(self, source: str) -> tuple[jinja2.Template, frozenset[str]]:
        """A template and the names it reads from outside.

        Raises:
            TemplateError: the source is no template.
        """
        try:
            names = jinja2.meta.find_undeclared_variables(
                self._environment.parse(source)
            )
            return self._environment.from_string(source), frozenset(names)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template has an error in line {error.lineno}",
                why=str(error.message),
                fix=("send a raw prompt instead", "choose another package"),
            ) from None


def run(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    """The text a template writes.

    Raises:
        TemplateError: the template fails, or refuses what it is given.
    """
    try:
        return template.render(values)
    except _FAILURES as error:
        line = _template_line(error.__traceback__)
        where = f" in line {line}" if line else ""
        raise TemplateError(
            f"the chat template failed{where}: {error}",
            why="the model's template does not take this conversation",
            fix=("change the roles or the order of the messages", "send a raw prompt"),
        ) from None


class _GenerationBlock(Extension):
    """``{% generation %} … {% endgeneration %}`` renders what is inside."""

    tags = {"generation"}  # noqa: RUF012 - how Jinja declares a tag

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates pass it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _template_line(trace: TracebackType | None) -> int | None:
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
