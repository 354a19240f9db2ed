"""The changes: each turns one expression or statement of a function into a wrong one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

_COMPARISONS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
# What a run does not reach, and the texts for people.
_SKIPPED = ("annotation", "returns", "decorator_list", "type_comment")


@dataclass(frozen=True)
class Change:
    """One change to one file: the place of that number, what it was and what it becomes.

    `body` is the lines of the function: a default is evaluated when none of its tests runs.
    """

    function: str
    line: int
    body: range
    before: str
    after: str
    source: str
    number: int

    @property
    def text(self) -> str:
        """The whole file with the change."""
        tree = ast.parse(self.source)
        _break(_places(tree)[self.number][0])
        return ast.unparse(ast.fix_missing_locations(tree))


def changes(source: str) -> list[Change]:
    """List every change to a file, each by itself."""
    made = []
    for number, (node, shown, function) in enumerate(_places(ast.parse(source))):
        before, fields = _shown(shown), vars(node)
        kept = {
            key: value[:] if isinstance(value, list) else value for key, value in fields.items()
        }
        _break(node)
        body = range(function.lineno, function.end_lineno + 1)
        change = (function.name, node.lineno, body, before, _shown(shown), source, number)
        made.append(Change(*change))
        fields.update(kept)
    return made


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).split("\n")[0][:120]


def _places(tree: ast.AST) -> list[tuple[ast.AST, ast.AST, ast.FunctionDef]]:
    """Find what can be changed, what shows it, and its function: a number is shown by its place."""
    found: list[tuple[ast.AST, ast.AST, ast.FunctionDef]] = []

    def walk(node: ast.AST, function: ast.FunctionDef | None) -> None:
        for name, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                if name in _SKIPPED or not isinstance(one, ast.AST):
                    continue
                if isinstance(one, ast.JoinedStr) or _is_for_types(one):
                    continue
                inside = one if isinstance(one, ast.FunctionDef) else function
                if inside and _can_break(one):
                    found.append((one, node if isinstance(one, ast.Constant) else one, inside))
                walk(one, inside)

    walk(tree, None)
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _can_break(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[one, *_]):
            return type(one) in _COMPARISONS
        case ast.BinOp(op=op):
            return type(op) in _ARITHMETIC
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.Return(value=value):
            return value is not None and not isinstance(value, (ast.Constant, ast.JoinedStr))
        case ast.Expr(value=ast.Call()) | ast.UnaryOp(op=ast.Not()):
            return True
    return isinstance(node, (ast.BoolOp, ast.If, ast.IfExp, ast.While, ast.Raise))


def _break(node: ast.AST) -> None:
    match node:
        case ast.Compare(ops=[one, *_]):
            node.ops[0] = _COMPARISONS[type(one)]()
        case ast.BinOp(op=op):
            node.op = _ARITHMETIC[type(op)]()
        case ast.Constant(value=value):
            node.value = not value if isinstance(value, bool) else value + 1
        case ast.Return() | ast.Expr():
            node.value = ast.Constant(None)
        case ast.UnaryOp():  # `not x` becomes `+bool(x)`
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Raise():
            node.exc, node.cause = ast.Name("KeyError", ast.Load()), None
