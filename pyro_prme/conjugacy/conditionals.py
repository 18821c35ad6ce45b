r"""Complete conditionals: the derivative of F in a site's statistics, at the drawn values of all other sites.

The logarithm of a sum is not linear in statistics. An auxiliary draw replaces it by something that is, exactly:

.. math::
    c \ln \sum_m s_m \to \sum_m n_m \ln s_m, \qquad n \sim \mathrm{Multinomial}(c, s / \textstyle\sum_m s_m)

    -c \ln \sum_m s_m \to -u \sum_m s_m, \qquad u \sim \mathrm{Gamma}(c, \textstyle\sum_m s_m)

They are drawn anew for each site that is updated, from the values as they are then, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from pyro_prme.conjugacy.compiled import CompiledBound, CompiledTerm, Message, dense
from pyro_prme.conjugacy.contraction import contract
from pyro_prme.conjugacy.families import Statistics
from pyro_prme.conjugacy.indices import Indices, laid_along
from pyro_prme.conjugacy.program import Program

__all__ = ["conditional", "without_augmentation"]

Weights = Sequence[tuple[Tensor, Indices]]

_WHOLE = 1e-6  # how far a count may be from a whole number


@torch.no_grad()
def conditional(program: Program, name: str, points: Mapping[str, Statistics]) -> dict[str, Tensor]:
    """Natural parameters of a site's complete conditional; that of its own weight, not divided by it.

    Args:
        program: of the model.
        name: of the site.
        points: the statistics of all closed sites at their values.
    """
    messages = (m for term in program.terms_of(name) for m in _messages(term, name, points, ()))
    empty = program.families[name].empty()
    return {key: part.to(empty[key].dtype) for key, part in program.gathered(name, messages, empty).items()}


def without_augmentation(program: Program, points: Mapping[str, Statistics]) -> dict[str, str]:
    """Sites in the logarithm of a sum that counts a number of times that is not whole, with the reason."""
    found: dict[str, str] = {}
    for _, terms in program.parts.values():
        for term in terms:
            for bound in term.bounds:
                weight = _weight(term, bound, points, ())
                if bool(((weight - weight.round()).abs() > _WHOLE)[weight > 0].any()):
                    inside = {name for parts, _ in bound.logs for t in parts for name in t.names}
                    found |= dict.fromkeys(
                        inside, "the logarithm of a sum with it counts a number of times that is not whole"
                    )
    return found


def _messages(term: CompiledTerm, name: str, points: Mapping[str, Statistics], weights: Weights) -> Iterator[Message]:
    """Derivatives of a term, times further weights, in the statistics of a site."""
    if not term.bounds:
        yield from term.slopes(name, points, weights)
        return
    bound = term.bounds[0]
    if any(operand.name == name for operand in term.operands):  # then the sum does not have it: it is a number
        yield from term.slopes(name, points, (*weights, (bound.from_below(points), bound.indices)))
        return
    weight = _weight(term, bound, points, weights)
    if bool((weight > 0).any()):
        for (inner, own), counts in zip(bound.logs, _allocated(weight.clamp(min=0), bound, points), strict=True):
            for part in inner:
                if name in part.names:
                    yield from _messages(part, name, points, ((counts, (*own, *bound.indices)),))
    if bool((weight < 0).any()):
        size = weight.clamp(max=0).neg()
        drawn = torch._standard_gamma(size.clamp(min=torch.finfo(size.dtype).tiny)) / bound.from_below(points).exp()
        u = torch.where(size > 0, drawn, torch.zeros_like(drawn))
        for part in bound.upper or ():
            if name in part.names:
                yield from _messages(part, name, points, ((-u, bound.indices),))


def _weight(term: CompiledTerm, bound: CompiledBound, points: Mapping[str, Statistics], weights: Weights) -> Tensor:
    """How often the logarithm counts, laid along the bound's indices."""
    operands = [*term.taken(points), *weights]
    carried = {i for _, own in operands for i in own}
    kept = tuple(i for i in bound.indices if i in carried)
    times = contract(operands, kept) if operands else torch.ones(())
    return laid_along(term.coefficient * times, kept, bound.indices).expand([i.size for i in bound.indices])


def _allocated(weight: Tensor, bound: CompiledBound, points: Mapping[str, Statistics]) -> list[Tensor]:
    """Of each group of summands, how many of the counts each of them takes, laid along its own indices and the rest."""
    whole = weight.round()
    logs = []
    for terms, own in bound.logs:
        laid = dense(terms, (*own, *bound.indices), points)
        logs.append(laid.reshape(-1, *[i.size for i in bound.indices]))
    counts = multinomial(whole, torch.cat(logs).softmax(0))
    parts = counts.split([len(part) for part in logs])
    return [
        part.reshape([i.size for i in (*own, *bound.indices)]) for part, (_, own) in zip(parts, bound.logs, strict=True)
    ]


def multinomial(count: Tensor, probs: Tensor) -> Tensor:
    """Counts among the first dimension of `probs`, one draw for each of the others.

    Args:
        count: whole numbers.
        probs: of the shape of `count` behind the first dimension, along which it adds up to one.
    """
    if bool((count <= 1).all()):
        chosen = torch.distributions.Categorical(probs.movedim(0, -1), validate_args=False).sample()
        hot = torch.nn.functional.one_hot(chosen, len(probs)).movedim(-1, 0)
        return hot.to(probs.dtype) * count
    left, share, out = count.to(probs.dtype), torch.ones_like(probs[0]), []
    for p in probs[:-1]:
        taken = torch.binomial(left, (p / share.clamp(min=torch.finfo(p.dtype).tiny)).clamp(0, 1))
        out.append(taken)
        left, share = left - taken, (share - p).clamp(min=0)
    return torch.stack([*out, left])
