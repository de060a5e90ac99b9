"""The work of an algorithm as an expression of its problem size: `N**3`, `N*log2(N)`, `2*N**2 + 10*N`.

Parsed by `ast`: numbers, one variable, + - * / **, and a few functions. Nothing is evaluated as Python.
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
"""Characters in an expression."""

Term = Callable[[float], float]
"""The value of an expression as a function of size."""

OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}

FUNCTIONS: Final[dict[str, Term]] = {
    "log2": math.log2,
    "log": math.log,
    "log10": math.log10,
    "sqrt": math.sqrt,
    "cbrt": math.cbrt,
}

LARGEST_SIZE: Final = 1e18
"""Upper end of the search for a size."""


class BadExpression(ValueError):
    """An expression that is no complexity or has no value for a size. The text names it."""


@dataclass(frozen=True)
class Complexity:
    """T_A(N): operations of a serial run as a function of the problem size.

    >>> cube = Complexity.parse("N**3")
    >>> cube.work(10.0), round(cube.size(8000.0), 6)
    (1000.0, 20.0)
    >>> Complexity.parse("N**M")
    Traceback (most recent call last):
    ...
    barograph_lab.studies.weak.complexity.BadExpression: 'N**M' has the variables M, N, expected one
    """

    text: str
    variable: str
    _work: Term

    @classmethod
    def parse(cls, text: str) -> Complexity:
        """Raises BadExpression for anything but arithmetic in one variable."""
        if len(text) > LONGEST:
            raise BadExpression(f"the expression has {len(text)} characters, expected at most {LONGEST}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise BadExpression(f"{text!r} is no expression, expected one such as N**3 or N*log2(N)") from None
        variables: set[str] = set()
        work = _compiled(tree, text, variables)
        if len(variables) != 1:
            found = f"the variables {', '.join(sorted(variables))}" if variables else "no variable"
            raise BadExpression(f"{text!r} has {found}, expected one")
        return cls(text, variables.pop(), work)

    def work(self, size: float) -> float:
        """T_A(size). Raises BadExpression if that is no finite number above 0."""
        try:
            value = self._work(size)
        except (ValueError, OverflowError, ZeroDivisionError, RecursionError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise BadExpression(f"{self.text!r} is no finite number above 0 for {self.variable} = {size:g}")
        return value

    def size(self, work: float) -> float:
        """The size >= 1 with this work, T_A inverted. T_A must grow there. Raises BadExpression otherwise."""
        if self._or_zero(1.0) > work:
            raise BadExpression(f"{self.text!r} is above {work:g} for every {self.variable} from 1 up")
        high = 2.0
        while self._or_zero(high) < work:
            if high > LARGEST_SIZE or self._or_zero(2 * high) < self._or_zero(high):
                raise BadExpression(f"{self.text!r} does not reach {work:g} for any {self.variable}")
            high *= 2
        return float(brentq(lambda n: self._or_zero(n) / work - 1, high / 2, high, xtol=1e-12, rtol=1e-14))

    def _or_zero(self, size: float) -> float:
        """Work, or 0 if the expression has no value above 0, such as N*log2(N) at 1."""
        try:
            return self.work(size)
        except BadExpression:
            return 0.0


def _compiled(node: ast.AST, text: str, variables: set[str]) -> Term:
    """The expression as a function of its variable. Adds the variable names to `variables`."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return lambda size: float(number)
        case ast.Name(id=name) if name not in FUNCTIONS:
            variables.add(name)
            return lambda size: size
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            combine = OPERATORS[type(op)]
            first, second = _compiled(left, text, variables), _compiled(right, text, variables)
            return lambda size: combine(first(size), second(size))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            positive = _compiled(operand, text, variables)
            return (lambda size: -positive(size)) if isinstance(op, ast.USub) else positive
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            function, inner = FUNCTIONS[name], _compiled(argument, text, variables)
            return lambda size: function(inner(size))
    part = ast.unparse(node)
    raise BadExpression(
        f"{text!r} contains {part!r}, expected numbers, one variable, + - * / ** and {', '.join(FUNCTIONS)}"
    )
