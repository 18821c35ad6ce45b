r"""Loadings and factors of a Poisson factorisation by compiled sweeps.

.. math::
    q(Z_{nk}) &= \mathrm{Gamma}\Big(c_{nk} + \sum_d X_{nd} \phi_{ndk},\; r_{nk} + \sum_d E[\theta_{kd}]\Big), \qquad
    \phi_{ndk} \propto \exp(E \ln Z_{nk} + E \ln \theta_{kd}) \\
    \theta_k &\sim \mathrm{Dir}\Big(\gamma_{0} + \sum_n X_{nd} \phi_{ndk}\Big), \quad\text{or}\quad
    \theta_{kd} \sim \mathrm{Gamma}\Big(a + \sum_n X_{nd}\phi_{ndk},\; b + \sum_n E[Z_{nk}]\Big)

with c, r, a, b and gamma0 what everything else in the model asks for. It is eq. update_z with the slope M / epsilon
replaced by the factors' totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.conjugacy.families import Dirichlet
from pyro_prme.conjugacy.program import Program, site_terms
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.inference.claims import SolvedClaim
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.poisson.form import poisson_form
from pyro_prme.kernels import LocalStep, local_step

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run

__all__ = ["CountedRows", "PoissonFactors"]

_SWEEPS = 50  # of a row, if nothing else is asked for
_TOLERANCE = 1e-4  # a row stops when its counts move by less than this share of them, if nothing else is asked for


class CountedRows(NamedTuple):
    """What a run found for the rows of a batch.

    Args:
        step: of the compiled sweeps.
        elog_factors: E ln theta of the batch's columns, (W, K).
        columns: those of them that have counts, rising, (W,).
        entries: the counts that are not zero, (E,).
        weight: of a row.
    """

    step: LocalStep
    elog_factors: Tensor
    columns: Tensor
    entries: Tensor
    weight: float


class PoissonFactors(SolvedClaim):
    """q(Z), solved in each run, and q(theta), which is kept.

    Args:
        structure: of the model.
        words: name of the observed site.
        roles: names of the loadings and of the topics, which are the factors here.
        by_column: whether the factors are laid out (D, K).
    """

    natural_log: Tensor
    natural_x: Tensor

    def __init__(self, structure: Structure, words: str, roles: Mapping[str, str], by_column: bool) -> None:
        super().__init__()
        self.roles, self.by_column = {**roles, "words": words}, by_column
        self.loadings, self.factors, self.words = roles["loadings"], roles["topics"], words
        self.sites, self.covered = (self.loadings, self.factors), (words,)
        family = structure.families[self.factors]
        self.normalised = isinstance(family, Dirichlet)
        self._keys = tuple(family.empty())
        for key, value in family.start(structure.value(self.factors).clamp(min=1e-6)).items():
            self.register_buffer(f"natural_{key}", value.clone())
        self._pending: dict[str, Tensor] = {}
        self.natural_prior = self._prior_of(structure.rebuilt_without(self.covered), structure)

    def _prior_of(self, program: Program, structure: Structure) -> dict[str, Tensor]:
        """What everything but the counts asks of the factors, where all else is as in the prototype's trace."""
        at = {name: family.at_point(structure.value(name)) for name, family in program.families.items()}
        return program.target(self.factors, at, self.natural())

    def title(self, name: str) -> str:
        if name == self.loadings:
            return "closed form, Gamma, for each batch (compiled)"
        return f"closed form, {'Dirichlet' if self.normalised else 'Gamma'}, natural steps (compiled)"

    def factor(self, name: str, run: Run) -> Distribution:
        return run.factors.posterior(name)

    def natural(self) -> dict[str, Tensor]:
        """Natural parameters of the factors."""
        return {key: getattr(self, f"natural_{key}") for key in self._keys}

    @torch.no_grad()
    def set_natural(self, natural: Mapping[str, Tensor]) -> None:
        """Replaces the natural parameters of the factors."""
        for key in self._keys:
            setattr(self, f"natural_{key}", natural[key].detach().reshape(getattr(self, f"natural_{key}").shape))

    @torch.no_grad()
    def restart(self, generator: torch.Generator) -> None:
        """Factors near their prior's mean, each cell times an exponential draw."""
        prior = self.natural_prior
        noise = torch.empty_like(prior["log"]).exponential_(generator=generator)
        if self.normalised:
            noise = noise / noise.sum(-1, keepdim=True)
            self.set_natural({"log": prior["log"] + 100 * noise})
        else:
            mean = (prior["log"] + 1) / -prior["x"]
            self.set_natural({"log": noise, "x": -1 / mean})

    @property
    def table_shape(self) -> tuple[int, int]:
        """D and K."""
        num_columns, num_factors = self._by_column(self.natural_log).shape
        return num_columns, num_factors

    @torch.no_grad()
    def begin_from(self, centres: Tensor, weight: float, noise: Tensor) -> None:
        """Factors round centres, worth so many counts.

        Args:
            centres: shape (K, D), rows that sum to one.
            weight: counts behind each centre.
            noise: counts, added to each cell, (K, D).
        """
        counts = (weight * centres + noise).to(self.natural_log.dtype)
        prior = self.natural_prior
        start = {"log": prior["log"] + (counts.mT if self.by_column else counts).reshape(prior["log"].shape)}
        if not self.normalised:  # centres sum to one, and loadings are of the size of a row's count
            start["x"] = prior["x"] - weight
        self.set_natural(start)

    # The E-step.

    def _column_logs(self, columns: Tensor) -> Tensor:
        """E ln theta of some columns, (W, K)."""
        whole = self._by_column(self.natural_log) + 1
        if self.normalised:
            return whole[columns].digamma() - whole.sum(0).digamma()
        return whole[columns].digamma() - (-self._by_column(self.natural_x)[columns]).log()

    def _by_column(self, table: Tensor) -> Tensor:
        """A table of the factors as (D, K)."""
        flat = table.reshape([n for n in table.shape if n != 1] if table.dim() > 2 else table.shape)
        return flat if self.by_column else flat.mT

    def tokens(self) -> Tensor:
        """Counts of each factor in the data, as q(theta) has them, (K,)."""
        return self._by_column(self.natural_log - self.natural_prior["log"]).double().sum(0)

    def mean_rows(self, columns: Tensor) -> Tensor:
        """E theta of some columns as shares of each factor's total, (W, K)."""
        mean = self._by_column(self.natural_log) + 1
        if not self.normalised:
            mean = mean / -self._by_column(self.natural_x)
        return mean[columns] / mean.sum(0)

    def totals(self) -> Tensor:
        """The sum over columns of E theta, (K,)."""
        if self.normalised:
            return torch.ones_like(self._by_column(self.natural_log)[0])
        mean = (self.natural_log + 1) / -self.natural_x
        return self._by_column(mean).sum(0)

    @torch.no_grad()
    def solve(
        self,
        sites: Mapping[str, Site],
        factors: Factors,
        options: RunOptions,
        args: Sequence[Any] = (),
    ) -> dict[str, CountedRows]:
        name = self.loadings
        factors.natural[self.factors] = self.natural()
        family: Any = factors.program.families[name]
        held, before = options.held.get(name), options.started.get(name)
        prior = factors.program.target(name, factors.statistics(), family.empty())
        rows = (-1, self.totals().numel())
        concentration, rate = (prior["log"] + 1).reshape(rows), (-prior["x"]).reshape(rows) + self.totals()
        if held is None:
            held = self._sweeps(sites, concentration, rate, options, before)
        a = concentration + held.step.counts
        factors.natural[name] = {
            "log": (a - 1).reshape(family.shape),
            "x": -rate.expand_as(a).reshape(family.shape),
        }
        return {name: held}

    def _sweeps(
        self,
        sites: Mapping[str, Site],
        concentration: Tensor,
        rate: Tensor,
        options: RunOptions,
        before: CountedRows | None,
    ) -> CountedRows:
        form = poisson_form(site_terms(sites[self.words])[1])
        table = form.counts.round()
        row, column = table.nonzero(as_tuple=True)
        count = table[row, column].to(concentration.dtype)
        indptr = torch.zeros(len(table) + 1, dtype=torch.int64)
        indptr[1:] = torch.bincount(row, minlength=len(table)).cumsum(0)
        columns, local = column.unique(return_inverse=True)
        elog = self._column_logs(columns)
        step = local_step(
            *(indptr, local, count, elog, concentration, rate),
            max_sweeps=options.sweeps or _SWEEPS,
            tolerance=_TOLERANCE if options.word_tolerance is None else options.word_tolerance,
            start=None if before is None else (before.step.concentration, before.step.rate),
            normalised=False,
        )
        step = step._replace(statistics=step.statistics.clone())  # its memory is used again
        return CountedRows(step, elog, columns, count, form.weight)

    # The bound: the terms of Z and theta are the engine's.

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        return {self.words: self._counts_term(run)} if self.words in names else {}

    def objective(self, run: Run) -> dict[str, Tensor]:
        return {self.words: torch.zeros(())}

    @torch.no_grad()
    def _counts_term(self, run: Run) -> Tensor:
        r"""The expected log likelihood under the shares phi, with their entropy.

        .. math::
            \sum_{nd} X_{nd} \sum_k \phi_{ndk} (E \ln Z_{nk} + E \ln \theta_{kd} - \ln \phi_{ndk})
            - \sum_{nk} E[Z_{nk}] \sum_d E[\theta_{kd}] - \sum_{nd} \ln X_{nd}!
        """
        found: CountedRows = run.local[self.loadings]
        step, statistics = found.step, run.factors.statistics()[self.loadings]
        entropy = (
            (found.entries * step.log_normalizer).sum()
            - (step.counts * step.elog_loadings).sum()
            - (step.statistics * found.elog_factors).sum()
        )
        elog = (step.counts * statistics["log"].reshape(step.counts.shape)).sum()
        elog = elog + (step.statistics * self._column_logs(found.columns)).sum()
        whole = (statistics["x"].reshape(step.counts.shape) * self.totals()).sum()
        return found.weight * (entropy + elog - whole - (found.entries + 1).lgamma().sum())

    # Natural steps.

    def messages(self, run: Run) -> dict[str, Tensor]:
        """What the counts of a run add to the natural parameters of the factors."""
        found: CountedRows = run.local[self.loadings]
        shares = torch.zeros_like(self._by_column(self.natural_log))
        shares[found.columns] = found.weight * found.step.statistics
        if self.normalised:
            return {"log": shares.mT}
        means = run.factors.statistics()[self.loadings]["x"].reshape(found.step.counts.shape).sum(0)
        whole = -found.weight * means.expand_as(shares)
        return {key: x if self.by_column else x.mT for key, x in (("log", shares), ("x", whole))}

    @torch.no_grad()
    def gather(self, run: Run, share: float = 1.0) -> None:
        statistics = run.factors.statistics()
        self.natural_prior = run.factors.program.target(self.factors, statistics, self.natural())
        for key, message in self.messages(run).items():
            laid = share * message.reshape(self.natural_prior[key].shape)
            self._pending[key] = laid if key not in self._pending else self._pending[key] + laid

    def pending_parts(self) -> dict[str, Tensor]:
        return dict(self._pending)

    def restore_pending(self, parts: Mapping[str, Tensor]) -> None:
        self._pending = dict(parts)

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        if not self._pending:
            return
        old, prior = self.natural(), self.natural_prior
        self.set_natural({key: old[key].lerp(prior[key] + self._pending[key], rate) for key in old})
        self._pending = {}
