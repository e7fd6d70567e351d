# SPDX-License-Identifier: Apache-2.0
"""Write the pages that are made from the tables of the command line.

The pictures of the chat are those its tests compare the screen with.

::

    scripts/docs            write docs/cli.md, docs/errors.md, docs/man/*.1 and
                            docs/screenshots/*.svg
    scripts/docs --check    write nothing; say which of them are out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from splashpy import __version__
from splashpy.cli import commands, program
from splashpy.cli.catalogue import CATALOGUE, EXIT_CODES
from splashpy.cli.config import KEYS
from splashpy.cli.options import VARIABLES
from splashpy.cli.page import HELP_ROWS, PageCommand, render
from splashpy.cli.topics import TOPICS

ROOT = Path(__file__).resolve().parents[2]
MADE_BY = "Made by scripts/docs from the tables in splashpy/cli; do not edit."

SNAPSHOTS = ROOT / "tests/chat/__snapshots__/test_looks"
SCREENSHOTS = {
    "ready": "ready",
    "writing": "writing",
    "speed-panel": "speed_panel",
    "draft-colours": "tokens_coloured_by_origin",
    "parameters": "parameters",
    "models": "models_with_every_verdict",
    "narrow": "finished_on_a_narrow_terminal",
}
"""Pictures of docs/chat.md, and the tests they come from."""


def command(name: str) -> PageCommand:
    found = program.load(name)
    assert isinstance(found, PageCommand)
    return found


# --- Markdown ---------------------------------------------------------------------


def cli_page() -> str:
    parts = [
        "# Command line",
        f"<!-- {MADE_BY} -->",
        fenced(commands.overview()),
        "stdout carries the result and nothing else; progress, notes, questions and "
        "errors go to stderr. With `--json` the result is one JSON document whose "
        '`schema` is `"splashpy.<command>/1"`; within a number, fields are only added. '
        "An error in JSON mode is a document with the schema `splashpy.error/1` on "
        "stdout, with the same exit code; what `splashpy verify` and `splashpy train` "
        "find is in the `error` of their own documents. `splashpy run --json-stream` "
        "prints every engine event instead, one JSON object on a line.",
    ]
    for name in commands.listed():
        parts += [f"## splashpy {name}", fenced(render(command(name), rare=True))]
        others = [
            other for other, row in commands.COMMANDS.items() if row.alias_of == name
        ]
        if others:
            parts.append(f"Also spelled: `splashpy {'`, `splashpy '.join(others)}`.")
    parts.append("## Topics")
    for topic, (about, page) in TOPICS.items():
        parts += [f"### {topic}", f"{about[0].upper()}{about[1:]}.", fenced(page())]
    return "\n\n".join(parts) + "\n"


def errors_page() -> str:
    parts = [
        "# Errors",
        f"<!-- {MADE_BY} -->",
        "An error is at most five lines on stderr: what happened, why, and commands "
        "that help. `--debug` adds the traceback. Codes are stable, words may change. "
        "`splashpy help E-CODE` prints the same as this page.",
    ]
    for code, row in CATALOGUE.items():
        fixes = "\n".join(f"- {fix}" for fix in row.fixes)
        parts += [f"## {code}", f"Exit code {row.exit_code}. {row.when}", fixes]
    return "\n\n".join(parts) + "\n"


def fenced(text: str) -> str:
    return f"```text\n{text}\n```"


# --- man pages --------------------------------------------------------------------


def program_manual() -> str:
    lines = manual_head("splashpy", "local speculative decoding for Apple silicon")
    lines += ["\\fBsplashpy\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]", ".SH COMMANDS"]
    for name, row in commands.listed().items():
        lines += [".TP", f"\\fB{roff(name)}\\fR {roff(row.synopsis)}".rstrip()]
        lines += [f"{roff(row.help)}; see \\fB{roff(manual(name))}\\fR(1)"]
    lines += [".SH ENVIRONMENT", *definitions(VARIABLES)]
    lines += [".SH FILES", ".TP", "\\fBconfig.toml\\fR", "Optional. Keys:"]
    for table, rows in KEYS.items():
        for key, (_, effect) in rows.items():
            lines += [".br", f"[{table}] {roff(key)}: {roff(effect)}"]
    exits = {str(code): meaning for code, meaning in EXIT_CODES.items()}
    lines += [".SH EXIT STATUS", *definitions(exits)]
    return "\n".join(lines) + "\n"


def command_manual(name: str) -> str:
    made = command(name)
    lines = manual_head(manual(name), made.page.summary.rstrip("."))
    usage = f" {roff(made.page.usage)}" if made.page.usage else ""
    lines.append(f"\\fBsplashpy {roff(name)}\\fR{usage} [\\fIOPTIONS\\fR]")
    if made.page.notes:
        lines += [".SH DESCRIPTION"]
        for note in made.page.notes:
            lines += [roff(note), ".br"]
    lines.append(".SH EXAMPLES")
    for example, meaning in made.page.examples:
        lines += [".TP", f"\\fB{roff(example)}\\fR", roff(meaning)]
    for heading, rows in made.rows(rare=True):
        lines.append(f".SH {heading.upper()} OPTIONS")
        shown = [*rows, *HELP_ROWS] if heading == "Common" else rows
        for row in shown:
            default = f" [{row.default}]" if row.default else ""
            lines += [".TP", f"\\fB{roff(row.spelling)}\\fR", roff(row.help + default)]
    lines += [".SH SEE ALSO", "\\fBsplashpy\\fR(1)"]
    return "\n".join(lines) + "\n"


def manual(name: str) -> str:
    """Name of a command's man page."""
    return f"splashpy-{name}".replace(" ", "-")


def manual_head(name: str, about: str) -> list[str]:
    return [
        f'.\\" {MADE_BY}',
        f'.TH "{name.upper()}" "1" "" "splashpy {__version__}" "User Commands"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(about)}",
        ".SH SYNOPSIS",
    ]


def definitions(entries: dict[str, str]) -> list[str]:
    lines: list[str] = []
    for name, text in entries.items():
        lines += [".TP", f"\\fB{roff(name)}\\fR", roff(text)]
    return lines


def roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


# --- all of them ------------------------------------------------------------------


def pages() -> dict[Path, str]:
    made = {
        Path("docs/cli.md"): cli_page(),
        Path("docs/errors.md"): errors_page(),
        Path("docs/man/splashpy.1"): program_manual(),
    }
    for name, picture in SCREENSHOTS.items():
        shown = SNAPSHOTS / f"test_{picture}.svg"
        made[Path(f"docs/screenshots/{name}.svg")] = shown.read_text(encoding="utf-8")
    for name in commands.listed():
        made[Path(f"docs/man/{manual(name)}.1")] = command_manual(name)
    return made


def stale(made: dict[Path, str]) -> list[Path]:
    wrong = [path for path, text in made.items() if read(ROOT / path) != text]
    manuals = (ROOT / "docs/man").glob("*.1")
    found = [path.relative_to(ROOT) for path in manuals]
    return wrong + [path for path in found if path not in made]


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main() -> int:
    made = pages()
    wrong = stale(made)
    if "--check" in sys.argv[1:]:
        for path in wrong:
            print(
                f"{path} is out of date; run scripts/docs",
                file=sys.stderr,
            )
        return 1 if wrong else 0
    for path in wrong:
        if path in made:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(made[path], encoding="utf-8")
        else:
            (ROOT / path).unlink()
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
