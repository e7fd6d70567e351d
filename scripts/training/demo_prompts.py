# SPDX-License-Identifier: Apache-2.0
"""Prompts for the demo drafter that its target would not invent by itself.

Left alone, a small chat model invents questions of general advice. People also ask it
for code, sums and edits, so these prompts are put together from patterns and words,
the same ones for the same seed. None of them is one of the prompts that measure the
result.

    python scripts/training/demo_prompts.py > prompts.jsonl
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

from splashpy.bench.prompts import QUICK

COUNT = 1200
SEED = 7

_THINGS = (
    "a bicycle|coffee|a rainbow|the moon|a volcano|bread|a violin|the ocean|honey|"
    "a library|a garden|snow|a lighthouse|chess|a camera|soap|paper|a bridge|a clock|"
    "cheese|glass|a compass|a kite|a magnet|a thunderstorm|football|a battery|"
    "a waterfall|chocolate|a whale|a telescope|a market|a desert|a castle|rice|"
    "a robot|the stomach|photosynthesis|gravity|a computer|the internet|a vaccine|"
    "democracy|inflation|recycling|a solar panel|the heart|a black hole|evolution|"
    "electricity|the water cycle|an earthquake|a poem|jazz|a budget|sleep|yoga"
)
_PLACES = (
    "a beach at sunrise|a busy kitchen|a quiet street at night|a mountain village|"
    "a train station|an old bookshop|a farm in spring|a city park|a river in winter|"
    "a harbour in the rain|a school on the first day|a lake in summer|a small cafe|"
    "a museum|a snowy field|a night market|a space station|a jungle"
)
_SKILLS = (
    "play the guitar|cook rice|paint a wall|ride a horse|save money|write a letter|"
    "grow tomatoes|learn Spanish|run a marathon|take better photos|sleep better|"
    "bake bread|study for an exam|speak in public|fix a flat tire|draw a face|"
    "plan a trip|write a short story|train a puppy|make friends in a new city|"
    "prepare for a job interview|stay healthy in winter|read more books|play chess|"
    "start a small business|use less energy at home|make a paper plane|ski|knit"
)
_CODE = (
    "adds two numbers|checks whether a number is even|counts the vowels in a word|"
    "computes the factorial of a number|returns the n-th Fibonacci number|"
    "removes duplicates from a list|sorts a list of words by length|"
    "converts Celsius to Fahrenheit|computes the area of a circle|"
    "checks whether a number is prime|finds the smallest value of a dictionary|"
    "counts how often each letter occurs|merges two sorted lists|"
    "checks whether a word is a palindrome|computes the average of a list|"
    "prints a multiplication table|reads a file and counts its lines|"
    "joins words with commas|returns the last three items of a list|"
    "squares every number of a list|checks whether a year is a leap year|"
    "converts a string to upper case|splits a sentence into words|"
    "finds the common items of two lists|computes the power of a number|"
    "prints the numbers from 1 to 20|rolls two dice|validates an email address|"
    "computes the greatest common divisor|swaps two variables|"
    "returns the longest word of a sentence|counts the words in a text"
)
_LANGUAGES = "Python|Python|Python|JavaScript|Java|C"
_CONCEPTS = (
    "a while loop|a variable|a function|a class|a list|a dictionary|recursion|"
    "an if statement|an array|a string|an exception|a module|a boolean|an integer|"
    "a database|an algorithm|a stack|a queue|sorting|a compiler|an API|a tuple"
)
_GOODS = "apples|pens|tickets|eggs|shirts|bottles|books|cakes|chairs|flowers"
_NAMES = "Anna|Tom|Maria|Sam|Lucy|Peter|Nina|Omar|Ella|Ben"
_VERBS = "rewrite|summarize|translate into French|make shorter|make more formal"
_SENTENCES = (
    "The meeting starts at nine and everybody should bring a notebook.|"
    "My dog likes to sleep under the table when it rains.|"
    "We took the bus to the museum and looked at old paintings.|"
    "The garden needs water because the summer is very dry.|"
    "She bought a red coat and a pair of warm gloves for the winter.|"
    "He forgot his keys at home and had to wait outside for an hour.|"
    "The children built a small boat and let it float down the river.|"
    "I would like to order a pizza with cheese and mushrooms.|"
    "The library closes at six, so please return the books today.|"
    "Yesterday the power went out and we lit a few candles.|"
    "Our team won the game after a long and difficult season.|"
    "The new teacher speaks three languages and plays the piano."
)
_SLIPS = (
    "I recieved you're letter yesterday.|She dont like to swimm in cold watter.|"
    "Their going to the libary tomorow.|He runned to school becaus he was late.|"
    "We was happy to se the show.|The childrens played in the gardin.|"
    "I has two brother and one sistr.|It were a beutiful day in the montains."
)
_WORDS = (
    "table|river|orange|cloud|window|stone|paper|lemon|garden|horse|candle|mirror|"
    "bottle|winter|pencil|island|forest|button|engine|ticket|grape|melon|carrot"
)

_SAY: tuple[str, ...] = (
    "What is {thing}?",
    "How does {thing} work?",
    "Explain {thing} to a child.",
    "Tell me three facts about {thing}.",
    "Why is {thing} important?",
    "Write a short poem about {thing}.",
    "Write a short story about {thing}.",
    "What is the history of {thing}?",
    "Describe {thing} in one paragraph.",
    "List five words that describe {thing}.",
    "What are the advantages and disadvantages of {thing}?",
    "Describe {place}.",
    "Write a story that begins in {place}.",
    "What can you see, hear and smell in {place}?",
    "How do I {skill}?",
    "Give me five tips to {skill}.",
    "What do I need to {skill}?",
    "I want to {skill}. Where do I start?",
    "Write a plan for somebody who wants to {skill}.",
    "What are common mistakes when people {skill}?",
    "Write a {language} function that {code}.",
    "Show me how to write a {language} program that {code}.",
    "Write {language} code that {code} and explain it.",
    "What is {concept} in programming?",
    "Explain {concept} with a small {language} example.",
    "When should I use {concept}?",
    "{name} buys {small} {goods} for {price} dollars each. What is the total?",
    "What is {big} plus {small}?",
    "What is {small} times {price}?",
    "{name} has {big} {goods} and gives away {small}. How many are left?",
    "A car drives {big} miles in {small} hours. How fast is it?",
    "Solve for x: {small}x + {price} = {big}. Show the steps.",
    "What is {big} divided by {small}?",
    "A rectangle is {small} meters long and {price} meters wide. What is its area?",
    "{name} reads {small} pages a day. How many pages in {price} days?",
    "What is {price} percent of {big}00?",
    "Please {verb}: {sentence}",
    "Correct the mistakes: {slip}",
    "Turn this into a question: {sentence}",
    "Repeat this sentence three times: {sentence}",
    "Write this in the past tense: {sentence}",
    "Copy this text exactly: {sentence} {second}",
    "Sort these words by the alphabet: {words}.",
    "Put these words in a numbered list: {words}.",
    "Write a sentence with each of these words: {words}.",
    "Reverse the order of this list: {words}.",
)


def prompts(count: int = COUNT, seed: int = SEED) -> Iterator[str]:
    """Different prompts, none of them one of the quick suite's."""
    draw = random.Random(seed)
    taken = {each.text for each in QUICK}
    patterns, given = itertools.cycle(_SAY), 0
    while given < count:
        # A pattern with few fillings is soon used up; the next one takes its turn.
        text = _fill(next(patterns), draw)
        if text not in taken:
            taken.add(text)
            given += 1
            yield text


def _fill(pattern: str, draw: random.Random) -> str:
    def pick(words: str) -> str:
        return draw.choice(words.split("|"))

    return pattern.format(
        thing=pick(_THINGS),
        place=pick(_PLACES),
        skill=pick(_SKILLS),
        code=pick(_CODE),
        language=pick(_LANGUAGES),
        concept=pick(_CONCEPTS),
        goods=pick(_GOODS),
        name=pick(_NAMES),
        verb=pick(_VERBS),
        sentence=pick(_SENTENCES),
        second=pick(_SENTENCES),
        slip=pick(_SLIPS),
        words=", ".join(draw.sample(_WORDS.split("|"), 5)),
        small=draw.randint(2, 9),
        price=draw.randint(2, 12),
        big=draw.randint(13, 99),
    )


if __name__ == "__main__":
    for prompt in prompts():
        print(json.dumps({"prompt": prompt}))
