"""The work of an algorithm as an expression of its problem size: `N**3`, `N*log2(N)`, `2*N**2 + 10*N`.

Parsed by Python's own parser and evaluated node by node: numbers, one variable, + - * / **, and a few functions.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scipy.optimize import brentq

LONGEST: Final = 200
"""Characters in an expression: more is no formula that anybody wrote."""

OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}

FUNCTIONS: Final[dict[str, Callable[[float], float]]] = {
    "log2": math.log2,
    "log": math.log,
    "log10": math.log10,
    "sqrt": math.sqrt,
    "cbrt": math.cbrt,
}

LARGEST_SIZE: Final = 1e18
"""Sizes are looked for below it."""


class BadExpression(ValueError):
    """An expression that is no complexity, or has no value for a size; the message names it."""


@dataclass(frozen=True)
class Complexity:
    """T_A(N): operations of a serial run as a function of the problem size.

    >>> cube = Complexity.parse("N**3")
    >>> cube.work(10.0), round(cube.size(8000.0), 6)
    (1000.0, 20.0)
    >>> Complexity.parse("N**M")
    Traceback (most recent call last):
    ...
    barograph_modeler.studies.weak.complexity.BadExpression: 'N**M' has the variables M, N, expected one
    """

    text: str
    variable: str
    _tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Complexity:
        """Raises BadExpression for anything but arithmetic in one variable."""
        if len(text) > LONGEST:
            raise BadExpression(f"the expression has {len(text)} characters, expected at most {LONGEST}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise BadExpression(f"{text!r} is no expression, expected one such as N**3 or N*log2(N)") from None
        names = sorted(_variables(tree, text))
        if len(names) != 1:
            found = f"the variables {', '.join(names)}" if names else "no variable"
            raise BadExpression(f"{text!r} has {found}, expected one")
        return cls(text, names[0], tree)

    def work(self, size: float) -> float:
        """T_A(size). Raises BadExpression where that is no finite number above 0."""
        try:
            value = _value(self._tree, size)
        except (ValueError, OverflowError, ZeroDivisionError, RecursionError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise BadExpression(f"{self.text!r} is no finite number above 0 for {self.variable} = {size:g}")
        return value

    def size(self, work: float) -> float:
        """The size from 1 up whose work this is: T_A solved, which must grow there. Raises BadExpression otherwise."""
        if self._or_zero(1.0) > work:
            raise BadExpression(f"{self.text!r} is above {work:g} for every {self.variable} from 1 up")
        high = 2.0
        while self._or_zero(high) < work:
            if high > LARGEST_SIZE or self._or_zero(2 * high) < self._or_zero(high):
                raise BadExpression(f"{self.text!r} does not reach {work:g} for any {self.variable}")
            high *= 2
        return float(brentq(lambda n: self._or_zero(n) / work - 1, high / 2, high, xtol=1e-12, rtol=1e-14))

    def _or_zero(self, size: float) -> float:
        """Work, 0 where the expression has no value above 0, such as N*log2(N) at 1."""
        try:
            return self.work(size)
        except BadExpression:
            return 0.0


def _variables(node: ast.AST, text: str) -> set[str]:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return set()
        case ast.Name(id=name) if name not in FUNCTIONS:
            return {name}
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _variables(left, text) | _variables(right, text)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _variables(operand, text)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return _variables(argument, text)
    part = ast.unparse(node)
    raise BadExpression(
        f"{text!r} contains {part!r}, expected numbers, one variable, + - * / ** and {', '.join(FUNCTIONS)}"
    )


def _value(node: ast.AST, size: float) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name():
            return size
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left, size), _value(right, size))
        case ast.UnaryOp(op=op, operand=operand):
            return -_value(operand, size) if isinstance(op, ast.USub) else _value(operand, size)
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return FUNCTIONS[name](_value(argument, size))
    raise AssertionError(ast.dump(node))  # parse let nothing else through
