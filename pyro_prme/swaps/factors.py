"""What the factor models share: one program for any likelihood of whole rows X_n given Z_n and theta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.distributions import Distribution

from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.counts import sound_csr
from pyro_prme.models.networks.layers import Stack
from pyro_prme.models.topic_model import Plates
from pyro_prme.prototype import Draw, Prototype
from pyro_prme.rules import REGISTRY, Point, Rule
from pyro_prme.swaps.guides import GuidedModel

__all__ = ["FactorModel", "RowEncoder", "RowModel", "Rows", "dense", "offer", "product_refusal"]


def offer(name: str) -> Callable[[type[Rule]], type[Rule]]:
    """Class decorator: offers a rule for the sites of this name after those of the topic model.

    Its place is last, so that the topic model's own plan has no refusals to print.
    """

    def decorator(rule: type[Rule]) -> type[Rule]:
        REGISTRY[name].append(rule)
        return rule

    return decorator


offer("r")(Point)


@dataclass(frozen=True)
class Rows(Batch):
    """Rows of a real-valued matrix, as a batch whose every cell is one entry.

    Args:
        values: X, shape (B, D); None when the model draws it.
        num_columns: D.
    """

    values: Tensor | None = None
    num_columns: int = 0

    @classmethod
    def of(cls, values: Tensor, rows: Tensor | None = None) -> Rows:
        """All rows of X (N, D), or the chosen ones."""
        documents = torch.arange(len(values)) if rows is None else rows
        return cls._cells(documents, values[documents], values.shape[1])

    @classmethod
    def drawn(cls, num_rows: int, num_columns: int) -> Rows:
        """Rows whose values the model draws."""
        return cls._cells(torch.arange(num_rows), None, num_columns)

    @classmethod
    def _cells(cls, documents: Tensor, values: Tensor | None, num_columns: int) -> Rows:
        num_rows = len(documents)
        indptr = torch.arange(num_rows + 1) * num_columns
        word = torch.arange(num_columns).repeat(num_rows)
        return cls(documents, indptr, word, torch.ones(num_rows * num_columns), values, num_columns)

    def head(self, num_documents: int) -> Rows:
        return self.part(0, num_documents)

    def part(self, start: int, stop: int) -> Rows:
        values = None if self.values is None else self.values[start:stop]
        return self._cells(self.documents[start:stop], values, self.num_columns)


def dense(batch: Batch, num_words: int) -> Tensor | None:
    """The batch's counts as a table (B, D); None when the model draws them."""
    if isinstance(batch, Rows):
        return batch.values
    if batch.word is None:
        return None
    table = torch.zeros(batch.size, num_words, dtype=batch.count.dtype)
    return table.index_put_((batch.document, batch.word), batch.count, accumulate=True)


def product_refusal(
    name: str,
    sites: tuple[str, str, str],
    prototype: Prototype,
    family: type[Distribution],
    parameter: str,
    by_column: bool = False,
    also: Callable[[Draw, Any], str | None] = lambda draw, base: None,
) -> str | None:
    """Why X is not of a family whose parameter is Z times theta, or None when it is.

    Args:
        name: the site that a rule is asked for; nothing but X may depend on it.
        sites: names of Z, theta and X.
        prototype: prior draws.
        family: of X.
        parameter: its name in the family.
        by_column: theta is (D, K), else (K, D).
        also: what else is to be looked at in a draw, given the distribution of X.
    """
    loadings, factors, words = sites
    if not set(sites) <= set(prototype.names):
        return f"there are no sites {words}, {loadings} and {factors} of a factorisation."
    for draw in prototype:
        fn = draw.site(words)["fn"]
        base = getattr(fn, "base_dist", fn)
        if not isinstance(base, family):
            return f"{words} is {type(base).__name__}, not {family.__name__}."
        Z, theta, actual = draw.value(loadings), draw.value(factors), getattr(base, parameter)
        fits = theta.dim() == 2 and Z.shape[-1] == theta.shape[1 if by_column else 0]
        product = (Z @ (theta.mT if by_column else theta)).unsqueeze(-2) if fits else Z.new_zeros(0)  # (B, 1, D)
        if actual.shape != product.shape or not torch.allclose(actual, product, rtol=1e-4, atol=1e-6):
            return f"the {parameter} of {words} is not {loadings} times {factors}."
        if (reason := also(draw, base)) is not None:
            return reason
        if draw.site(words)["scale"] != draw.site(loadings)["scale"] or draw.site(words)["mask"] is not None:
            return f"{words} and {loadings} are not scaled alike."
    others = prototype.children(name) - {words}
    return f"{' and '.join(sorted(others))} also depends on {name}, beside {words}." if others else None


class RowEncoder(nn.Module):
    """g on a whole row, on the scale of sign(x) ln(1 + |x|).

    Args:
        num_columns: D.
        size: number of outputs.
        hidden: widths of the hidden layers.
    """

    topics_site: str | None = None

    def __init__(self, num_columns: int, size: int, hidden: tuple[int, ...] = (50,)) -> None:
        super().__init__()
        self.stack = Stack([num_columns, *hidden], batch_norm=False)
        self.head = nn.Linear([num_columns, *hidden][-1], size)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch, topics: Tensor | None = None) -> Tensor:
        """Shape (B, size)."""
        values = dense(batch, self.stack.layers[0].in_features)  # type: ignore[arg-type]
        assert values is not None
        return self.head(self.stack(values.sign() * values.abs().log1p()))


class FactorModel(GuidedModel):
    r"""The paper's loadings with a likelihood of rows.

    .. math:: X_n \sim p(X_n \mid Z_n, \theta), \quad Z_{nk} = f_n(\vartheta_k)

    This is the paper's section 2 with its likelihood left open. A subclass overrides `sample_rows`, and a prior where
    it wants another. Sites and shapes are those of `PRME` but for C, which is gone, and X (B, 1 | D).
    """

    def sample_factors(self, plates: Plates) -> Any:
        """theta, shape (K, D), and the likelihood's own parameter."""
        return self.sample_table(plates), self.sample_noise()

    def sample_table(self, plates: Plates) -> Tensor:
        """theta, shape (K, D)."""
        return super().sample_factors(plates)

    def likelihood(self, Z: Tensor, theta: Any, plates: Plates, batch: Batch) -> Tensor:
        """X given loadings and factors, shape (B, 1, D)."""
        theta, noise = theta
        with plates.documents:
            return self.sample_rows(Z, theta, noise, batch)

    def by_topic(self, theta: Tensor) -> Tensor:
        """The site theta as factors, shape (K, D)."""
        return theta

    def sample_noise(self) -> Tensor | None:
        """The likelihood's own parameter, such as a precision; None where it has none."""
        return None

    def sample_rows(self, Z: Tensor, theta: Tensor, noise: Tensor | None, batch: Batch) -> Tensor:
        """X given loadings (B, K), factors (K, D) and the likelihood's own parameter."""
        raise NotImplementedError

    def to_draw(self, num_rows: int) -> Batch:
        """A batch of rows whose values the model draws."""
        return Batch.to_draw([0] * num_rows)

    def batch_of(self, values: Any, rows: Any = None) -> Batch:
        """A batch of the rows, or the chosen ones, of a table (N, D): a tensor, an array or a sparse matrix."""
        table, chosen = self.checked(values, rows)
        return Batch.from_csr(sparse.csr_matrix(table), chosen)

    def checked(self, values: Any, rows: Any) -> tuple[Any, np.ndarray]:
        """A table as an array or a sparse matrix, and the chosen rows; or one sentence why not."""
        table = sound_csr(values) if sparse.issparse(values) else np.asarray(values)
        if table.ndim != 2 or table.shape[1] != self.vocab_size:
            raise ValueError(
                f"The table has shape {tuple(table.shape)}: it must have the model's {self.vocab_size} columns."
            )
        if (
            not np.issubdtype(table.dtype, np.number)
            or not np.isfinite(table.data if sparse.issparse(table) else table).all()
        ):
            raise ValueError("The table holds what is not a finite number: fill it or leave such rows out.")
        chosen = np.arange(table.shape[0]) if rows is None else np.asarray(rows)
        if (
            chosen.ndim != 1
            or not np.issubdtype(chosen.dtype, np.integer)
            or not np.isin(chosen, np.arange(table.shape[0])).all()
        ):
            raise ValueError(f"rows must be numbers of rows, from 0 to {table.shape[0] - 1}.")
        return table, chosen

    def make_network(self, size: int) -> nn.Module:
        """A network that reads whole rows, so that likelihoods are compared with the same ones.

        The topic model's own g (`PRMEGuide(model)`) reads shares of words and hides some of them; it serves Poisson
        rows as well. Which is better depends on the data: with it new rows were less likely by one to two nats where
        size tells much (12 columns, 4 factors, beta = 20), and more likely by a half to one (bars of 16 pixels, 8
        factors, beta = 4).
        """
        return RowEncoder(self.vocab_size, size)


class RowModel(FactorModel):
    """A factor model of real-valued rows: its batches are `Rows`."""

    def to_draw(self, num_rows: int) -> Batch:
        return Rows.drawn(num_rows, self.vocab_size)

    def batch_of(self, values: Any, rows: Any = None) -> Batch:
        table, chosen = self.checked(values, rows)
        dense_table = table.toarray() if sparse.issparse(table) else table
        return Rows.of(torch.as_tensor(dense_table, dtype=torch.get_default_dtype()), torch.as_tensor(chosen))

    def check(self, batch: Batch) -> None:
        super().check(batch)
        if not isinstance(batch, Rows) or batch.num_columns != self.vocab_size:
            raise ValueError(
                f"The batch is not of rows of {self.vocab_size} columns: make it with `model.batch_of(X)`."
            )
