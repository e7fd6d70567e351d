# SPDX-License-Identifier: Apache-2.0
"""Gaps in files, for models that were trained to fill them.

Such a model has three tokens of its own, for what stands before the gap, after it, and
for the gap itself; some have two more that separate files of a repository. They are
looked up by their spelling, since ids differ between vocabularies.

Other files come first and the text before the gap follows them, so that the beginning
of the prompt stays the same while somebody types, and the prefix cache has its use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splashpy.dialogue.prompt import Prompt
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import UsageError
from splashpy.protocol import Infill

NEAR = 2048  # tokens of prefix and suffix together that are read
_PREFIX_SHARE = 3 * (NEAR // 4)
_SUFFIX_SHARE = NEAR // 4
_REPOSITORY, _FILE, _UNNAMED = "repository\n", "file\n", "snippet"
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True, slots=True)
class _Spelling:
    prefix: str
    suffix: str
    middle: str
    others: tuple[str, ...] = ()
    repository: tuple[str, ...] = ()
    file: tuple[str, ...] = ()


_SPELLINGS = (
    _Spelling(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ("<|fim_pad|>",),
        ("<|repo_name|>",),
        ("<|file_sep|>",),
    ),
    _Spelling(
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        ("<fim_pad>",),
        ("<repo_name>", "<reponame>"),
        ("<file_sep>",),
    ),
    _Spelling(  # with FULLWIDTH VERTICAL LINE
        "<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁hole\uff5c>", "<\uff5cfim▁end\uff5c>"
    ),
    _Spelling("▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<EOT>",)),
    _Spelling("[PREFIX]", "[SUFFIX]", "[MIDDLE]"),
    _Spelling("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ("<fim-pad>",)),
    _Spelling("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
)


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """The tokens of one model for filling gaps; None for those it does not have."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None
    file: int | None
    others: frozenset[int]

    @property
    def ends(self) -> frozenset[int]:
        """All of them: an answer that goes on with one has filled the gap."""
        files = (self.repository, self.file)
        found = {self.prefix, self.suffix, self.middle, *self.others}
        return frozenset(found | {each for each in files if each is not None})


def find_tokens(tokenizer: Tokenizer) -> InfillTokens | None:
    """The tokens of a model; None where it was not made to fill gaps."""
    for spelling in _SPELLINGS:
        names = (spelling.prefix, spelling.suffix, spelling.middle)
        found = [tokenizer.id_of(name) for name in names]
        prefix, suffix, middle = found
        if prefix is None or suffix is None or middle is None:
            continue
        return InfillTokens(
            prefix,
            suffix,
            middle,
            _first(tokenizer, spelling.repository),
            _first(tokenizer, spelling.file),
            frozenset(
                token_id
                for name in spelling.others
                if (token_id := tokenizer.id_of(name)) is not None
            ),
        )
    return None


def build_infill(
    tokenizer: Tokenizer, tokens: InfillTokens | None, gap: Infill, context: int
) -> Prompt:
    """The prompt of a gap: other files, text before it, text after it.

    Args:
        tokenizer: of the target.
        tokens: of the target.
        gap: what is known around the gap.
        context: tokens of prompt plus answer.

    Raises:
        UsageError: the model fills no gaps.
    """
    if tokens is None:
        raise UsageError(
            "this model does not fill gaps",
            why="its tokenizer has no fill-in-the-middle tokens",
            fix=("use a model made for code completion",),
        )
    prefix = tokenizer.encode_literal(gap.prefix)
    suffix = tokenizer.encode_literal(gap.suffix)
    line = tokenizer.encode_literal(gap.line)
    extra = _extra(tokenizer, tokens, gap.extra)
    room = max(0, context - NEAR - 2 * gap.room)
    ids = [
        *_last(extra, room),
        tokens.prefix,
        *_last(prefix, _PREFIX_SHARE),
        *line,
        tokens.suffix,
        *suffix[: max(0, _SUFFIX_SHARE - (2 + len(line)))],
        tokens.middle,
    ]
    if tokenizer.adds_bos and tokenizer.bos_token_id is not None:
        ids.insert(0, tokenizer.bos_token_id)
    return Prompt(tuple(ids), tokenizer.decode(ids, skip_special_tokens=False))


def _extra(
    tokenizer: Tokenizer, tokens: InfillTokens, files: Sequence[tuple[str, str]]
) -> list[int]:
    ids: list[int] = []
    if tokens.file is None:
        for _, text in files:
            ids += tokenizer.encode_literal(_SNIPPET + text)
        return ids
    if tokens.repository is not None:
        ids += [tokens.repository, *tokenizer.encode_literal(_REPOSITORY)]
    for name, text in files:
        ids += [tokens.file, *tokenizer.encode_literal(f"{name or _UNNAMED}\n")]
        ids += tokenizer.encode_literal(text)
    return [*ids, tokens.file, *tokenizer.encode_literal(_FILE)]


def _first(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    found = (tokenizer.id_of(name) for name in names)
    return next((token_id for token_id in found if token_id is not None), None)


def _last(ids: list[int], count: int) -> list[int]:
    return ids[-count:] if count else []
