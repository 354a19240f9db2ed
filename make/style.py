"""List comments, docstrings and sentences of pages that a reader may not follow at once.

    python make/style.py [FILE or folder ...]  by default src, python, perturb and docs

It is a list to read, not a check: docs/style.md says what to look for. Exits with 0 in any case.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

LONG = 30  # words
# Code counts as one word, and so does a list in parentheses.
ASIDE = re.compile(r"``.+?``|`[^`]*`|\([^()]*\)")
# Each was the beginning, or the middle, of a comment whose reader asked "what?".
OPENING = re.compile(
    r"(?:That|Those|The ones?|Whom|Whose(?! \w+ (?:is|are)\b)|Whoever"
    r"|Of (?:what|which|whom|these|those)"
    r"|The same(?= (?:as|by|for|in|of|to|where|while|with)\b|[,.:]))\b"
)
WITHIN = re.compile(
    r"\b(?:of which|of whom|whom|whoever|those that|the ones? that|that it is of"
    r"|what is (?:there|left|had)|what (?:was|is) (?:said|asked) of|as far as it|so many"
    r"|where (?:it|there) is (?:one|none|that)|lets? go of|comes? to pass|in whose place"
    r"|is (?:no|had) matter)\b"
)
# Generated from tables or from src, or quoting wrong sentences.
LEFT_OUT = {"requirements.md", "refusals.md", "specification.md", "style.md", "_core.pyi"}
COMMENT = re.compile(r"\s*//[/!]?(?: (.*))?$")
# Lines that are no sentences: numpydoc's underlines and parameters, examples, lists of tests.
NO_TEXT = re.compile(r"-{3,}$|[\w*, ]+ : |>>>|\.\.\.|Tests: ")


def rust(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of comments, each with its line, without programs."""
    paragraph: list[str] = []
    start, inside = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = COMMENT.match(line)
        words = (found[1] or "").strip() if found else ""
        inside ^= words.startswith("```")
        is_text = words and not inside and not words.startswith(("```", "# "))
        is_text = is_text and not NO_TEXT.match(words)
        if paragraph and (not is_text or words.startswith(("- ", "* "))):
            yield start, " ".join(paragraph)
            paragraph = []
        if is_text:
            start = start if paragraph else number
            paragraph.append(words)


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, and the paragraphs of docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:")):
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        constant = node.value if isinstance(node, ast.Expr) else None
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
            # Also where numpydoc writes `name : type` or underlines a heading.
            parts = r"\n\s*\n|\n *-{3,}\n|\n(?= *[\w*, ]+ : )|(?<= : )[^\n]*\n(?= {4})"
            for paragraph in re.split(parts, constant.value):
                if not NO_TEXT.match(paragraph.strip()):
                    yield constant.lineno, " ".join(paragraph.split())


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the cells of tables, without programs."""
    text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for cell in line.strip("|").split(" | ") if line.startswith("|") else [line]:
            if not NO_TEXT.match(cell.strip()):
                yield number, cell


READERS = {".rs": rust, ".py": python, ".pyi": python, ".md": markdown}


def doubtful(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences to read again, each with the reason."""
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\[])", text):
        words = len(ASIDE.sub("x", sentence).split())
        if OPENING.match(sentence):
            yield "no noun", sentence
        elif found := WITHIN.search(sentence):
            yield repr(found[0]), sentence
        elif words > LONG:
            yield f"{words} words", sentence


def main() -> None:
    """Print the list, a sentence in a line, and how many there are."""
    asked = [Path(one) for one in sys.argv[1:] or ("src", "python", "perturb/src", "docs")]
    count = 0
    for place in asked:
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.suffix not in READERS or file.name in LEFT_OUT:
                continue
            for line, text in READERS[file.suffix](file.read_text(encoding="utf-8")):
                for why, sentence in doubtful(text):
                    count += 1
                    sys.stdout.write(f"{file}:{line}: {why}: {sentence[:240]}\n")
    sys.stdout.write(f"{count} sentences to read again\n")


if __name__ == "__main__":
    main()
