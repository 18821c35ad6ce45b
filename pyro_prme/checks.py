"""Checks of arguments, all with one wording: open this to see what a setting may be, or to refuse a wrong one.

Every check takes the name of the argument and its value, returns the value, and raises a ValueError such as
"batch_size is 0: it must be a whole number of at least 1." It imports nothing else of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any

__all__ = [
    "SETTINGS",
    "all_settings",
    "choice",
    "concentration",
    "flag",
    "fraction",
    "number",
    "positive",
    "refusal",
    "share_or_number",
    "size",
    "whole",
    "widths",
]

_SHOWN = 60  # characters of a wrong value in a message
_LAYERS = 1000  # most layers of a network
_MOST_STEPS = 10_000  # of gradient for a batch: a number that a foreign run may ask for
_LARGEST_SIZE = 2**31 - 1  # of a dimension of a tensor
_EXTREME = 1e10  # the largest concentration of a Gamma, Beta or Dirichlet distribution; the smallest is 1 / _EXTREME


def refusal(name: str, value: Any, allowed: str) -> ValueError:
    """The error for a value that is not what is allowed."""
    try:
        shown = repr(value)
    except Exception:  # the repr of a foreign object may itself fail
        shown = f"a {type(value).__name__}"
    shown = " ".join(shown.split())
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}... ({type(value).__name__})"
    return ValueError(f"{name} is {shown}: it must be {allowed}.")


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """The value as an int, if it is a whole number from `least` to `most`; True and False are not numbers."""
    plain = _plain(value)
    size = int(plain) if isinstance(plain, Integral) and not isinstance(plain, bool) else None
    if size is None or size < least or (most is not None and size > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise refusal(name, value, f"a whole number {limits}")
    return size


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """The value as a float, if it is a finite number within the limits; True and False are not numbers."""
    limits = [
        (above, "above {:g}", lambda x: x > above),
        (least, "of at least {:g}", lambda x: x >= least),
        (below, "below {:g}", lambda x: x < below),
        (most, "at most {:g}", lambda x: x <= most),
    ]
    given = [(words.format(limit), holds) for limit, words, holds in limits if limit is not None]
    try:
        real = _plain(value)
        x = float(real) if isinstance(real, Real) and not isinstance(real, bool) else math.nan
    except (OverflowError, ValueError):
        x = math.nan
    if not math.isfinite(x) or not all(holds(x) for _, holds in given):
        raise refusal(name, value, " ".join(["a finite number", " and ".join(words for words, _ in given)]).strip())
    return x


def positive(name: str, value: Any) -> float:
    """The value as a float, if it is a finite number above 0."""
    return number(name, value, above=0)


def size(name: str, value: Any, least: int = 1) -> int:
    """The value as an int, if it is a whole number of at least `least` that a tensor may have as a size."""
    checked = whole(name, value, least)
    if checked > _LARGEST_SIZE:
        raise refusal(name, value, f"a whole number from {least} to {_LARGEST_SIZE}")
    return checked


def concentration(name: str, value: Any) -> float:
    """The value as a float, if it is above 0 and within the limits between which bounds and scores are finite."""
    checked = positive(name, value)
    if not 1 / _EXTREME <= checked <= _EXTREME:
        raise refusal(name, value, f"a number from {1 / _EXTREME:g} to {_EXTREME:g}")
    return checked


def fraction(name: str, value: Any) -> float:
    """The value as a float, if it lies between 0 and 1 and is neither."""
    return number(name, value, above=0, below=1)


def share_or_number(name: str, value: Any, what: str = "documents") -> float:
    """The value, if it is a whole number (an int) of at least 0, or a share (a float) from 0 to 1, of something."""
    size = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not 0 <= size <= (math.inf if isinstance(value, Integral) else 1):
        raise refusal(name, value, f"a whole number of {what}, such as 5, or a share of them from 0.0 to 1.0")
    return value


def choice(name: str, value: Any, known: Iterable[str]) -> str:
    """The value, if it is one of the known strings."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise refusal(name, value, f"one of {', '.join(names)}")
    return value


def flag(name: str, value: Any) -> bool:
    """The value, if it is True or False."""
    if not isinstance(value, bool):
        raise refusal(name, value, "True or False")
    return value


def widths(name: str, value: Any) -> tuple[int, ...]:
    """The value as a tuple, if it is a sequence of at most 1,000 whole numbers of at least 1, perhaps none."""
    try:
        if isinstance(value, tuple | list) and len(value) <= _LAYERS:
            return tuple(whole(name, width) for width in value)
    except ValueError:
        pass
    raise refusal(name, value, f"a sequence of at most {_LAYERS} whole numbers of at least 1, such as (80, 80)")


def _plain(value: Any) -> Any:
    """The number within an array or a tensor of one element; anything else as it is."""
    if isinstance(value, Real) or not hasattr(value, "item"):
        return value
    try:
        return value.item()
    except (TypeError, ValueError, RuntimeError):
        return value


#: The settings of models, guides and trainers that are numbers or flags, and the check of each.
SETTINGS: Mapping[str, Callable[[str, Any], Any]] = {
    "num_topics": partial(size, least=2),
    "vocab_size": size,
    "num_documents": whole,
    "alpha": concentration,
    "beta": concentration,
    "gamma0": concentration,
    "background": partial(number, least=0, below=1),
    "embedding_dim": size,
    "h_dim": size,
    "ell_dim": size,
    "h_scale": positive,
    "ell_scale": positive,
    "encoder_hidden": widths,
    "decoder_hidden": widths,
    "batch_norm": flag,
    "residual": flag,
    "own_words": flag,
    "max_mean": positive,
    "max_variance": positive,
    "word_dropout": partial(number, least=0, most=1),
    "sweeps": whole,
    "warm_up": partial(whole, least=0),
    "burn_in": partial(whole, least=0),
    "batch_size": whole,
    "learning_rate": positive,
    "stick_rate": positive,
    "weight_decay": partial(number, least=0),
    "gradient_steps": partial(whole, least=0, most=_MOST_STEPS),
    "delay": partial(number, least=0),
    "decay": partial(number, above=0.5, most=1),
    "cooling": partial(number, least=0, most=1),
    "seed": partial(whole, least=0, most=2**64 - 1),
}


def all_settings(**given: Any) -> None:
    """Checks every setting given, each of them a key of `SETTINGS`."""
    for name, value in given.items():
        SETTINGS[name](name, value)
