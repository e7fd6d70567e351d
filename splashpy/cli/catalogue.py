# SPDX-License-Identifier: Apache-2.0
"""The one table of error codes: what each means and what helps.

``splashpy help E-CODE``, ``docs/errors.md`` and the man page are made from it. Codes
are stable; the words of a message may change.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One code.

    Attributes:
        exit_code: of the process, when this error ends it.
        when: what happened.
        fixes: what helps, the likeliest first.
    """

    exit_code: int
    when: str
    fixes: tuple[str, ...]


CATALOGUE: dict[str, CatalogueEntry] = {
    "E-USAGE": CatalogueEntry(
        2,
        "An option, a value or a combination of them is not allowed. The message "
        "quotes what was given and says what is allowed.",
        ("splashpy COMMAND --help lists the options of a command.",),
    ),
    "E-TTY": CatalogueEntry(
        2,
        "The chat and verify --race need a terminal, and standard input or output is "
        "not one, or is too narrow.",
        (
            "splashpy run MODEL PROMPT answers once without a terminal.",
            "splashpy chat --plain works in lines, on any terminal.",
        ),
    ),
    "E-FILE": CatalogueEntry(
        3,
        "A file named on the command line is missing, cannot be read, or is not "
        "UTF-8 text; or the directory of --output does not exist.",
        ("Check the path; convert the file with iconv -t UTF-8.",),
    ),
    "E-NOT-FOUND": CatalogueEntry(
        3,
        "No saved conversation has this id or contains this text.",
        ("splashpy history list shows what is saved.",),
    ),
    "E-MODEL-UNKNOWN": CatalogueEntry(
        3,
        "No model has this name. The message names the nearest ones.",
        ("splashpy list --all shows every name splashpy knows.",),
    ),
    "E-MODEL-MISSING": CatalogueEntry(
        3,
        "The model is known but not on this machine.",
        ("splashpy pull MODEL fetches it.",),
    ),
    "E-MODEL-KIND": CatalogueEntry(
        3,
        "The directory or repository is not something splashpy can run: not a package, "
        "not an MLX model, not a drafter where --draft asks for one, or of an "
        "architecture that is not supported. The message names the file and the key "
        "that decided it.",
        ("splashpy help models says what splashpy can run.",),
    ),
    "E-PAIR": CatalogueEntry(
        3,
        "Target and drafter do not belong together: vocabulary, hidden size or feature "
        "layers differ. The message has both numbers.",
        (
            "--no-draft decodes without the drafter, with the same output.",
            "--draft DIR names another drafter.",
        ),
    ),
    "E-CODE": CatalogueEntry(
        3,
        "The repository ships Python that it wants executed. splashpy never does that, "
        "and there is no option to allow it.",
        ("Use a repository of the same model without custom code.",),
    ),
    "E-HASH": CatalogueEntry(
        5,
        "A file of the model is missing, cut short, or differs from its recorded "
        "digest. The message names it with the expected and the found value.",
        ("splashpy pull MODEL --force fetches and checks it again.",),
    ),
    "E-LOSSLESS": CatalogueEntry(
        5,
        "Decoding with drafts gave another text than decoding without, by more than "
        "rounding explains, or sampling with drafts does not follow the target's "
        "distribution. The message has the first differing token and the gap.",
        (
            "--no-draft decodes without drafts until the cause is found.",
            "splashpy verify MODEL --json keeps what a report needs.",
        ),
    ),
    "E-REGRESSION": CatalogueEntry(
        5,
        "A figure of splashpy bench is worse than that of the run named with "
        "--compare, by more than --max-regression and by more than twice what the "
        "repeats of either run differ. The message has both values.",
        (
            "Measure again while nothing else runs, with more --trials.",
            "--max-regression 5% lets more pass.",
        ),
    ),
    "E-DRAFT-CHECK": CatalogueEntry(
        5,
        "After a training, the engine accepts more or fewer drafted tokens on held-out "
        "prompts than the trainer counts on the same text, by more than 3 %. Training "
        "and drafting then do not compute the same thing, or the prompts are so few "
        "that rounding decides.",
        (
            "splashpy train MODEL -o DIR --resume --eval-prompts N evaluates again "
            "with more prompts.",
            "If the difference stays it is a bug: report it with what --json prints.",
        ),
    ),
    "E-VERSION": CatalogueEntry(
        1,
        "The package was written for a version of the format this splashpy does not "
        "know.",
        (
            "Update splashpy.",
            "splashpy pull MODEL --force builds the package again with this version.",
        ),
    ),
    "E-FIT": CatalogueEntry(
        4,
        "Weights, draft and state need more memory than this machine gives, or than "
        "--max-memory allows. Nothing has been read or written then. The message has "
        "the sizes, and what would fit instead.",
        (
            "--max-context N lowers what the state needs, --kv q8 halves it.",
            "--no-draft leaves the drafter out.",
            "When training: fewer --anchors or --sequences, or --frequent-tokens N.",
            "Close other applications, or choose a smaller model.",
        ),
    ),
    "E-MEMORY": CatalogueEntry(
        4,
        "A request needs more memory than is left beside the model, although states of "
        "earlier requests were given up and other requests set aside for it. The "
        "message has the sizes.",
        (
            "Ask with a shorter prompt, or for a shorter answer.",
            "--kv q8 halves what a text takes.",
            "--max-memory SIZE allows more, where the machine has it.",
        ),
    ),
    "E-CONTEXT": CatalogueEntry(
        4,
        "Prompt and answer together are longer than the context. Nothing is ever cut "
        "silently; the message has the counts.",
        (
            "Shorten the prompt, or ask for less with --max-tokens.",
            "--max-context N raises the limit up to the model's own.",
        ),
    ),
    "E-DISK": CatalogueEntry(
        4,
        "There is not enough free disk. The message says how much is needed and where.",
        (
            "splashpy rm MODEL frees space.",
            "SPLASHPY_HOME and HF_HOME move the files to another disk.",
        ),
    ),
    "E-OFFLINE": CatalogueEntry(
        6,
        "The network is needed, and --offline or HF_HUB_OFFLINE forbids it.",
        (
            "splashpy list shows what works without the network.",
            "Leave --offline out, or unset HF_HUB_OFFLINE.",
        ),
    ),
    "E-HUB": CatalogueEntry(
        6,
        "The source of the files does not answer.",
        (
            "Try again; what is installed works with --offline.",
            "Behind a proxy or a mirror, set HTTPS_PROXY or HF_ENDPOINT.",
        ),
    ),
    "E-DOWNLOAD": CatalogueEntry(
        6,
        "A transfer broke. What arrived is kept.",
        ("The same command goes on where it stopped.",),
    ),
    "E-AUTH": CatalogueEntry(
        8,
        "The repository is gated or private, or the key is wrong.",
        (
            "Accept the terms on the model's page, then hf auth login.",
            "HF_TOKEN holds the key for one command.",
        ),
    ),
    "E-PROGRAM": CatalogueEntry(
        3,
        "A program that splashpy shall start is not on the PATH.",
        ("The message names the page where it is had.",),
    ),
    "E-PORT": CatalogueEntry(
        7,
        "The port is taken, or the address is not one of this machine.",
        (
            "splashpy ps shows whether the other program is splashpy.",
            "splashpy serve --port N listens at another port.",
        ),
    ),
    "E-NO-SERVER": CatalogueEntry(
        7,
        "No server of splashpy runs on this machine, or none at that port.",
        ("splashpy serve starts one.",),
    ),
    "E-SERVER": CatalogueEntry(
        7,
        "A server does not do what it was told.",
        ("splashpy ps shows its process.",),
    ),
    "E-ENGINE-DIED": CatalogueEntry(
        9,
        "The engine process ended without being asked to. The message has the end of "
        "its log and the log's path.",
        (
            "Start the command again; the chat offers to restart the engine itself.",
            "If memory ran out, lower --max-context or close other applications.",
        ),
    ),
    "E-ENGINE-STUCK": CatalogueEntry(
        9,
        "The engine process does not answer.",
        ("Wait, or restart the engine.",),
    ),
    "E-EXTRACT": CatalogueEntry(
        1,
        "--extract was given and the answer holds no fenced code block.",
        ("Ask for a code block, or leave --extract out.",),
    ),
    "E-TEMPLATE": CatalogueEntry(
        1,
        "The model's chat template is missing, or fails on these messages. The message "
        "quotes the template's own error.",
        (
            "--raw continues a text without a template.",
            "Check the order of roles in the file of --messages.",
        ),
    ),
    "E-DB": CatalogueEntry(
        1,
        "The file of saved conversations cannot be used: it cannot be written, or a "
        "newer splashpy made it. A damaged file is moved aside, not deleted.",
        (
            "splashpy chat --no-save talks without saving.",
            "splashpy history path prints where the file is.",
        ),
    ),
    "E-CONSTRAINT": CatalogueEntry(
        2,
        "The JSON Schema, expression, list or grammar an answer shall follow is not "
        "understood, too long or too complex. The message says where.",
        (
            "Correct or simplify it; references to other documents are not read.",
            "Leave it out: the answer is free then.",
        ),
    ),
    "E-PERM": CatalogueEntry(
        1,
        "A directory or file cannot be written or read.",
        ("SPLASHPY_HOME puts splashpy's files below a directory you can write.",),
    ),
    "E-NAN": CatalogueEntry(
        1,
        "The model computed values that are not numbers. The request is given up; "
        "others go on. A training ends there.",
        (
            "When training: a smaller --learning-rate, in a new directory.",
            "Repeat the request.",
            "splashpy verify MODEL --files --full tells whether its files are damaged.",
        ),
    ),
    "E-INTERNAL": CatalogueEntry(
        1,
        "A bug in splashpy. The traceback is in the file the message names; nothing "
        "was sent anywhere.",
        ("Report it with that file and the output of splashpy -v --version.",),
    ),
}

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "failed, in a way not listed below",
    2: "wrong usage",
    3: "a model, file or conversation is not found",
    4: "does not fit: memory, disk or context",
    5: "a check failed: files, texts with drafts, a trained drafter, or a speed",
    6: "the network is needed and not available",
    7: "a server: its port is taken, or none runs",
    8: "not authorised: a gated or private repository, or a wrong key",
    9: "the engine died",
    10: "stopped by Ctrl-C, with a usable part of the result",
    130: "stopped by Ctrl-C",
    141: "the reader closed the pipe",
    143: "stopped by SIGTERM",
}
"""What the exit code of ``splashpy`` means."""
