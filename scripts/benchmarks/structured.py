# SPDX-License-Identifier: Apache-2.0
"""Answers of the demo pair that follow made-up JSON Schemas.

Every schema is answered three times at temperature 0: without drafts, with drafts that
know nothing of the schema, and with drafts that follow it. All three must be the same
text, and it must be valid by a JSON Schema validator. Acceptance lengths (tokens a pass
of the target, its own counted; everything is drafted) say what drafting inside the
schema is worth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Any

import jsonschema
import measure
import mlx.core as mx
from demo_pair import open_demo

from splashpy.bench.session import Session
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.drafter import Drafter, DraftSampling, Proposal
from splashpy.drafting.lookup import LookupDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import TokensCommitted
from splashpy.host.model import resolve_request
from splashpy.protocol import Constraint, Generate, Sampling

SEED = 7
MAX_TOKENS = 400
WORDS = ("name", "age", "city", "colour", "price", "tags", "size", "note", "kind")
THINGS = ("a person", "a book", "a town", "a recipe", "a machine", "an animal")


class Unaware(CombinedDrafter):
    """Drafts as if the answer were free."""

    def propose(
        self, state: Any, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        return super().propose(state, anchor, limit, replace(sampling, grammar=None))


@dataclass(frozen=True, slots=True)
class Answer:
    """What one way of drafting gave: tokens, passes of the target, whole or cut."""

    token_ids: tuple[int, ...]
    passes: int
    complete: bool

    @property
    def tau(self) -> float:
        """Tokens a pass after the first."""
        return (len(self.token_ids) - 1) / max(self.passes - 1, 1)


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=1)
    parser.add_argument("--draft", metavar="DIR", help="another drafter")
    parser.add_argument(
        "--schemas", type=int, default=200, help="how many [%(default)s]"
    )
    options = parser.parse_args()
    session = open_demo(options.draft)
    if not isinstance(session.drafter, CombinedDrafter):
        raise SystemExit("error: no drafter\nfix:   --draft DIR")
    network = session.drafter.drafter
    arms: dict[str, Drafter] = {
        "plain": session.plain,
        "rows": Unaware(LookupDrafter(), network),
        "drafts": CombinedDrafter(LookupDrafter(), network),
    }
    random = Random(SEED)
    taus: dict[str, list[float]] = {name: [] for name in arms}
    different = invalid = cut = 0
    for number in range(options.schemas):
        schema = an_object(random, depth=random.choice((1, 1, 2)))
        command = request(random, schema)
        answers = {name: answer(session, command, each) for name, each in arms.items()}
        plain = answers["plain"]
        different += any(each.token_ids != plain.token_ids for each in answers.values())
        cut += not plain.complete
        invalid += not is_valid(
            session.speech.tokenizer.decode(plain.token_ids), schema
        )
        for name, each in answers.items():
            taus[name].append(each.tau)
        if number % 20 == 19:
            measure.note(f"{number + 1} of {options.schemas} schemas")
    report(options.json, taus, different, invalid, cut)
    if different or invalid:
        raise SystemExit("error: a text changed, or is not valid")


def report(
    as_json: bool,  # noqa: FBT001
    taus: dict[str, list[float]],
    different: int,
    invalid: int,
    cut: int,
) -> None:
    tau = {name: fmean(values) for name, values in taus.items()}
    document = {
        "schema": "splashpy.bench_structured/1",
        "schemas": len(taus["plain"]),
        "tau": tau,
        "ratios": {"drafts_vs_rows": tau["drafts"] / tau["rows"]},
        "texts_that_differ": different,
        "texts_not_valid": invalid,
        "texts_cut": cut,
    }
    rows = [["", "tau"]]
    names = {"rows": "schema on verify rows only", "drafts": "drafts follow it, too"}
    rows += [[names[name], f"{tau[name]:.2f}"] for name in names]
    rows += [
        [name.replace("_", " "), str(document[name])]
        for name in ("texts_that_differ", "texts_not_valid", "texts_cut")
    ]
    measure.report(document, rows, as_json=as_json)


def request(random: Random, schema: dict[str, Any]) -> Generate:
    text = f"Describe {random.choice(THINGS)} as JSON."
    return Generate(
        id="structured",
        messages=({"role": "user", "content": text},),
        constraint=Constraint(kind="json_schema", text=json.dumps(schema)),
        sampling=Sampling(temperature=0.0),
        max_tokens=MAX_TOKENS,
    )


def answer(session: Session, command: Generate, drafter: Drafter) -> Answer:
    prompt = session.speech.prompt(command)
    wish = resolve_request(command, prompt, session.speech)
    cycles = [
        event
        for event in generate(
            wish, session.target, drafter, None, cancelled=lambda: False
        )
        if isinstance(event, TokensCommitted)
    ]
    token_ids = tuple(token for cycle in cycles for token in cycle.token_ids)
    return Answer(token_ids, len(cycles), len(token_ids) < MAX_TOKENS)


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def an_object(random: Random, depth: int) -> dict[str, Any]:
    """A schema of an object whose every property is required."""
    names = random.sample(WORDS, random.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: a_value(random, depth - 1) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def a_value(random: Random, depth: int) -> dict[str, Any]:
    """A schema of anything whose text is short."""
    kinds: Sequence[Callable[[], dict[str, Any]]] = (
        lambda: {"type": "boolean"},
        lambda: {"type": "integer", "minimum": 0, "maximum": random.randint(1, 5000)},
        lambda: {"type": "string", "maxLength": random.randint(1, 12)},
        lambda: {"enum": random.sample(WORDS, 3)},
        lambda: {"const": random.choice(WORDS)},
        lambda: {"type": ["string", "null"], "maxLength": 8},
        lambda: {
            "type": "array",
            "items": a_value(random, 0),
            "minItems": random.randint(0, 2),
            "maxItems": random.randint(2, 4),
        },
        lambda: an_object(random, depth),
    )
    return random.choice(kinds if depth else kinds[:-2])()


if __name__ == "__main__":
    main()
