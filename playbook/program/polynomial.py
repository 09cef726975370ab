"""Polynomials in a model's sizes: the same code that counts bytes as integers then derives their formula.

Symbols are b (sequences of a micro-batch), s (tokens of a sequence), h (hidden), a (query heads), g
(key-value heads), k (features of a head), f (feed-forward features), V (vocabulary), N (data-parallel
ranks), t (tensor-parallel ranks), L (layers of a stage); E (experts), K (experts a token goes to), e
(features of an expert), w (features of the experts that every token goes to); rq, rkv (latent features of
queries, of keys and values), dn, dr, dv (features of a latent head: without position, with it, of a value);
c (context-parallel ranks), ep and etp (ranks that share experts out, and that split one), Ne (ranks that
share an expert's state). A symbol may have a negative power, as in 12·h/N.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Monomial = tuple[tuple[str, int], ...]
ORDER = (*"bsLVfEKew", "rq", "rkv", *"hagk", "dn", "dr", "dv", *"Nt", "Ne", "c", "ep", "etp")


class Polynomial:
    """A sum of coefficient · monomial; immutable.

    Examples
    --------
    >>> b, s, h = map(symbol, "bsh")
    >>> str(34 * b * s * h + 2 * h)
    '34·b·s·h + 2·h'
    >>> (6 * h).over("N").at({"h": 8, "N": 4})
    12
    """

    __slots__ = ("coefficients",)

    def __init__(self, coefficients: Mapping[Monomial, Any]) -> None:
        self.coefficients = {m: c for m, c in coefficients.items() if c}

    def __add__(self, other: "Polynomial | int") -> "Polynomial":
        total = dict(self.coefficients)
        for monomial, coefficient in constant(other).coefficients.items():
            total[monomial] = total.get(monomial, 0) + coefficient
        return Polynomial(total)

    __radd__ = __add__

    def __mul__(self, other: "Polynomial | int") -> "Polynomial":
        if isinstance(other, int | Fraction):
            return Polynomial({m: c * other for m, c in self.coefficients.items()})
        total: dict[Monomial, Any] = {}
        for left, a in self.coefficients.items():
            for right, b in other.coefficients.items():
                monomial = product(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return Polynomial(total)

    __rmul__ = __mul__

    def __sub__(self, other: "Polynomial | int") -> "Polynomial":
        return self + constant(other) * -1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Polynomial | int):
            return NotImplemented
        return self.coefficients == constant(other).coefficients

    def __hash__(self) -> int:
        return hash(frozenset(self.coefficients.items()))

    def __repr__(self) -> str:
        return f"Polynomial({self})"

    def __str__(self) -> str:
        """Terms in falling order of their coefficient's monomial, as in `34·b·s·h + 2·h`."""
        if not self.coefficients:
            return "0"
        ordered = sorted(self.coefficients.items(), key=lambda item: (-len(item[0]), sort_key(item[0])))
        return " + ".join(term_text(coefficient, monomial) for monomial, coefficient in ordered)

    def over(self, name: str) -> "Polynomial":
        """Divide by a symbol."""
        return self * Polynomial({((name, -1),): 1})

    def divided(self, number: int) -> "Polynomial":
        """Divide by a number, exactly."""
        return Polynomial({m: reduced(Fraction(c) / number) for m, c in self.coefficients.items()})

    def at(self, values: Mapping[str, Any]) -> Any:
        """Return the value where each symbol has the given one: a number, or an array of layouts."""
        return sum(c * monomial_at(m, values) for m, c in self.coefficients.items())

    def ratio(self, base: "Polynomial") -> Any:
        """Return c where `self` is c · base, or None if it is no multiple."""
        if not base.coefficients or set(self.coefficients) != set(base.coefficients):
            return None
        ratios = {reduced(Fraction(c) / base.coefficients[m]) for m, c in self.coefficients.items()}
        return ratios.pop() if len(ratios) == 1 else None


def scaled(size: "Polynomial | int", above: int, below: int = 1) -> "Polynomial | int":
    """Multiply a size by a fraction, exactly.

    Examples
    --------
    >>> scaled(4, 5, 2)
    10
    """
    if isinstance(size, Polynomial):
        return (size * above).divided(below)
    if size * above % below:
        raise ValueError(f"{size} x {above} / {below} is no whole number")
    return size * above // below


def symbol(name: str) -> Polynomial:
    """Return the polynomial that is one symbol."""
    return Polynomial({((name, 1),): 1})


def constant(value: "Polynomial | int") -> Polynomial:
    """Return a number as a polynomial."""
    return value if isinstance(value, Polynomial) else Polynomial({(): value})


def reduced(value: Fraction) -> int | Fraction:
    """Return a whole fraction as an int."""
    return int(value) if value.denominator == 1 else value


def product(left: Monomial, right: Monomial) -> Monomial:
    """Multiply two monomials."""
    if not left or not right:
        return left or right
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def monomial_at(monomial: Monomial, values: Mapping[str, Any]) -> Any:
    """Return a monomial's value; negative powers divide, exactly where they can."""
    above = below = 1
    for name, power in monomial:
        if power > 0:
            above = above * values[name] ** power
        else:
            below = below * values[name] ** -power
    if isinstance(above, int) and isinstance(below, int):
        return reduced(Fraction(above, below))
    return above / below


def sort_key(monomial: Monomial) -> tuple[int, ...]:
    """Order monomials as their symbols stand in `ORDER`."""
    return tuple(rank(name) for name, _ in written(monomial))


def written(monomial: Monomial) -> list[tuple[str, int]]:
    """Symbols in the order in which they are written."""
    return sorted(monomial, key=lambda item: rank(item[0]))


def rank(name: str) -> int:
    """Place of a symbol in `ORDER`; one that is not in it comes last."""
    return ORDER.index(name) if name in ORDER else len(ORDER)


def term_text(coefficient: Any, monomial: Monomial) -> str:
    """Write one term: `34·b·s·h`, `12·h/N`, `5·a·s²`."""
    above = [power_text(name, power) for name, power in written(monomial) if power > 0]
    below = [power_text(name, -power) for name, power in written(monomial) if power < 0]
    head = [] if coefficient == 1 and above else [f"{coefficient}"]
    return "·".join(head + above) + "".join(f"/{text}" for text in below)


def power_text(name: str, power: int) -> str:
    """Write a symbol with its power."""
    return name if power == 1 else name + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))
