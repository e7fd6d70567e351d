# SPDX-License-Identifier: Apache-2.0
"""Which function each order calls: the names of slash commands, and of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from splashpy.chat.orders import (
    context,
    diagnosis,
    files,
    looks,
    messages,
    models,
    parameters,
    programs,
    saved,
    session,
)

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen

Order = Callable[["ChatScreen", str], None]

ORDERS: Mapping[str, Order] = {
    "help": session.help_page,
    "keys": session.help_page,
    "new": session.new,
    "retry": messages.retry,
    "continue": messages.resume,
    "prompts": messages.prompts,
    "edit": messages.edit,
    "branch": messages.branch,
    "copy": messages.copy,
    "chats": saved.chats,
    "rename": saved.rename,
    "delete": saved.delete,
    "export": saved.export,
    "import": saved.read,
    "system": parameters.system,
    "set": parameters.change,
    "parameters": parameters.page,
    "effort": parameters.effort,
    "seed": parameters.seed,
    "draft": parameters.draft,
    "editor": programs.editor,
    "pager": programs.pager,
    "attach": files.attach,
    "detach": files.detach,
    "context": context.show,
    "compact": context.compact,
    "model": models.choose,
    "reload": models.again,
    "unload": models.unload,
    "log": diagnosis.log,
    "doctor": diagnosis.doctor,
    "error": diagnosis.error,
    "race": models.race,
    "screenshot": diagnosis.screenshot,
    "mouse": looks.mouse,
    "stats": looks.stats,
    "speed": looks.speed,
    "colour": looks.colour,
    "thinking": looks.thinking,
    "theme": looks.theme,
    "quit": session.leave,
    "copy_code": messages.copy_code,
    "copy_message": messages.copy_message,
    "copy_block": messages.copy_block,
    "edit_chosen": messages.edit_chosen,
    "retry_chosen": messages.retry_chosen,
    "switch": messages.switch,
    "open_link": messages.open_link,
}
