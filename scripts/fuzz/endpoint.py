# SPDX-License-Identifier: Apache-2.0
"""Fuzz the HTTP endpoint along its own description, with an engine that always answers.

Everything but the target is real. An answer of status 500 or above is an error, so is
one the description does not know. Of paths with the same handler one is fuzzed; those
of what splashpy does not make say 501 by design and are left out.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from scripted_engine import Script, ScriptedEngine, write_speaker
from server_kit import Running
from tokenizers import Tokenizer

from splashpy.host import host as host_module
from splashpy.protocol import Load
from splashpy.server.settings import ServerSettings

ABSENT = ("/v1/embeddings", "/api/embed", "/api/delete")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=50, help="of each operation")
    parser.add_argument("--schemathesis", default="schemathesis", help="its program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_speaker(Path(folder) / "speaker")
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        script = Script()
        script.say("Hm.</think>An answer.<|im_end|>")
        host_module.Engine = functools.partial(ScriptedEngine, script, tokenizer)
        settings = ServerSettings(model="fuzzed", ollama=True, lmstudio=True)
        with Running(settings, load=Load(model=str(model), name="fuzzed")) as server:
            server.wait_ready()
            code = run(options, server)
            bugs = len(server.faults)
    if bugs:
        print(f"error: {bugs} requests met a bug", file=sys.stderr)
    return code or bool(bugs)


def run(options: argparse.Namespace, server: Running) -> int:
    paths = server.get("/openapi.json").json["paths"]
    chosen = [
        argument
        for path, item in paths.items()
        if "x-same-as" not in item and path not in ABSENT
        for argument in ("--include-path", path)
    ]
    return subprocess.call(
        [
            options.schemathesis,
            "run",
            f"{server.url}/openapi.json",
            "--url",
            server.url,
            "--checks",
            ",".join(CHECKS),
            *chosen,
            "--max-examples",
            str(options.examples),
            "--phases",
            "examples,coverage,fuzzing",
            "--generation-deterministic",
            "--request-timeout",
            "10",
        ],
        cwd=tempfile.gettempdir(),  # it leaves a folder of reports where it runs
    )


if __name__ == "__main__":
    raise SystemExit(main())
