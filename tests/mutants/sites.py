"""The places of the Rust sources where a mistake can be made, by rule; all go into one build.

Each `if` and each guard of a match, whose condition then never or always holds; each function that
gives a bool by one expression, and each bool that has a name, as well; each statement that calls or
assigns, which is left out: an order, a check, a reference that is kept. All mistakes are in one
build, which asks at run time which one to make, and notes which places are reached.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

# The simulated device judges, the CUDA door has a suite of its own, and what is built of the
# crate for Rust is tested in Rust.
LEFT_OUT = re.compile(
    r"src/(driver/(simulated|cuda)|py/(simulated|rust)|testing|array|lease/model)|lib\.rs$"
)
MACROS = re.compile(r"\b(assert|debug_assert|tracing|println|write|unreachable|panic)\w*(::\w+)?!")
NO_STATEMENT = re.compile(
    r"\s+(let|return|use|break|continue|pub|mod|type|static|const|impl|fn|if|match|for|while|loop"
    r"|else|unsafe|where|drop|mem::forget|std::mem::forget)\b"
)
CALL = re.compile(r"\s+\*?[a-z_]\w*(::<.*>)?[\w.:&]*\(.*\)(\.\w+\(.*\))*\??;$")
ASSIGNMENT = re.compile(r"\s+(\*\w+|\w+(\.\w+)+) ([|&+-]|)= .*;$")
NAMED = re.compile(r"\n +let (?:mut )?\w+(?:: bool)? = ([^;{}\n|]*(?: && | == | != )[^;{}\n|]*);")
BOOL = re.compile(r"-> bool \{\n(\s+)([^;{}\n]+)\n\s+\}")
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(const )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)")
ASKED = "crate::mutant::is"


@dataclass(frozen=True)
class Site:
    """One mistake: what `rule` does to `text`, in a function of a file."""

    file: str
    line: int
    function: str
    rule: str
    text: str
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.file} {self.function}: {self.rule}: {self.text}"

    @property
    def area(self) -> str:
        """The folder of the sources that it is in."""
        parts = Path(self.file).parts[1:-1]
        return "/".join(parts[:2]) or "src"


def plain(source: str) -> str:
    """Blank comments and the insides of texts, so that each character keeps its place."""
    token = re.compile(
        r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\[^']+|[^'\\\n])'",
        re.DOTALL,
    )

    def blank(found: re.Match[str]) -> str:
        text = found[0]
        return (
            re.sub(r"[^\n]", " ", text) if text[0] == "/" else "0" + re.sub(r"[^\n]", "_", text[1:])
        )

    return token.sub(blank, source)


def condition(code: str, start: int) -> tuple[int, str] | None:
    """Find the end of the condition that begins at `start`: before a block or an arrow."""
    depth, at = 0, start
    while at < len(code):
        one = code[at]
        if depth == 0 and (one == "{" or code.startswith("=>", at)):
            return at, code[start:at]
        depth += (one in "([{") - (one in ")]}")
        if depth < 0 or one == ";":
            return None
        at += 1
    return None


def _is_bool(expression: str) -> bool:
    """Whether an expression compares, or joins conditions, outside all brackets."""
    depth, outside = 0, ""
    for one in expression:
        depth += (one in "([") - (one in ")]")
        outside += one if depth == 0 else ""
    return re.search(r" (&&|==|!=) ", outside) is not None


class Instrumented:
    """A file, and the same with every mistake in it, beginning with number `first`."""

    def __init__(self, file: str, source: str, first: int, without: set[str]) -> None:
        self.file, self.source, self.without = file, source, without
        self.code = plain(source)
        tests = self.code.find("#[cfg(test)]\nmod ")
        self.end = len(source) if tests < 0 else tests
        self.sites: list[Site] = []
        self._first = first
        self._edits: list[tuple[int, int, str]] = []
        self._lines = [0, *(found.end() for found in re.finditer("\n", source))]
        self._functions = [
            (found.start(), found[2], bool(found[1]))
            for found in re.finditer(FUNCTION.pattern, self.code, re.MULTILINE)
        ]
        for start, stop, rules in sorted(self._found()):
            self._edit(start, stop, rules)

    @property
    def text(self) -> str:
        text = self.source
        for start, stop, changed in sorted(self._edits, reverse=True):
            text = text[:start] + changed + text[stop:]
        return text

    def _found(self) -> Iterator[tuple[int, int, str]]:
        for found in re.finditer(r"(?<![\w#])if (?=\S)", self.code):
            ended = condition(self.code, found.end())
            if ended is None or re.search(r"\b(unsafe|match) *$|\bmatch\b", ended[1]):
                continue
            if not re.search(r"\blet\b", ended[1]):
                yield found.end(), ended[0], "holds"
            elif "||" not in ended[1]:
                yield found.end(), ended[0], "holds and binds"
        for found in BOOL.finditer(self.code):
            if " if " not in found[2]:
                yield found.start(2), found.end(2), "gives"
        for found in NAMED.finditer(self.code):
            if _is_bool(found[1]):
                yield found.start(1), found.end(1), "gives"
        before = "{"
        for start, stop in zip(self._lines, [*self._lines[1:], len(self.code)], strict=True):
            line = self.code[start:stop].rstrip()
            if not line.strip():
                continue
            begins = before[-1] in "{};" and not NO_STATEMENT.match(line)
            balanced = all(line.count(a) == line.count(b) for a, b in ("()", "[]", "{}"))
            is_one = (CALL.match(line) or ASSIGNMENT.match(line)) and not MACROS.search(line)
            if begins and balanced and is_one:
                yield start + len(line) - len(line.lstrip()), start + len(line), "statement"
            before = line

    def _edit(self, start: int, stop: int, kind: str) -> None:
        inside = [one for one in self._functions if one[0] < start]
        overlaps = any(start < other[1] and other[0] < stop for other in self._edits)
        if start >= self.end or not inside or inside[-1][2] or overlaps:
            return
        text = " ".join(self.source[start:stop].split())
        line = self.source.count("\n", 0, start) + 1
        rules = {
            "holds": ("never holds", "always holds"),
            "holds and binds": ("never holds",),
            "gives": ("never holds", "always holds"),
            "statement": ("is left out",),
        }[kind]
        sites = [Site(self.file, line, inside[-1][1], rule, text) for rule in rules]
        if any(f"{one.file}:{line}" in self.without for one in sites):
            return
        number = self._first + len(self.sites)
        self.sites += [replace(one, number=number + at) for at, one in enumerate(sites)]
        whole = self.source[start:stop].rstrip()
        space = self.source[start + len(whole) : stop]
        changed = {
            "statement": f"if !{ASKED}({number}) {{ {whole} }}",
            "holds and binds": f"!{ASKED}({number}) && {whole}",
        }.get(kind, f"!{ASKED}({number}) && ({ASKED}({number + 1}) || ({whole}))")
        self._edits.append((start, stop, changed + space))


def instrumented(root: Path, without: set[str]) -> tuple[list[Site], dict[str, str]]:
    """List the places of a tree, and its files with every mistake in them."""
    sites: list[Site] = []
    files = {}
    for path in sorted((root / "src").rglob("*.rs")):
        file = str(path.relative_to(root))
        if not LEFT_OUT.search(file):
            made = Instrumented(file, path.read_text(), len(sites) + 1, without)
            sites += made.sites
            files[file] = made.text
    return [*_distinct(sites)], files


def _distinct(sites: list[Site]) -> Iterator[Site]:
    """Number what a function has several times."""
    seen = Counter[str]()
    for one in sites:
        seen[one.name] += 1
        nth = seen[one.name]
        yield one if nth == 1 else replace(one, text=f"{one.text} ({nth})")
