"""The local step: the coordinate-ascent sweeps over q(C_n) and q(Z_n), compiled.

Open this to see, or to call, the inner loop of inference. For each document of a batch it alternates eq. update_c and
eq. update_z until the document's own stopping test is met, and stores no responsibility. On the CPU it is numba, on
`torch.get_num_threads()` threads; on any other device :mod:`pyro_prme.kernels.local_torch` has the same contract.

The numbers do not depend on the number of threads: one thread alone handles a document, and one thread alone sums the
statistics of a word, in document order. The threads are Python's own (the compiled code releases the GIL): they work
from any caller, sleep when done, and so leave the cores to torch's.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pyro_prme.kernels.buffers import Buffers
from pyro_prme.kernels.local_numba import run

__all__ = ["LocalStep", "local_step"]

_memory = Buffers()  # for tables of the batch's words


class LocalStep(NamedTuple):
    """What a local step returns, for B documents, K topics, E entries and W distinct words."""

    counts: Tensor  # (B, K) n_nk = sum_m c_m phi_nm(k)
    concentration: Tensor  # (B, K) beta p_k + n_nk
    rate: Tensor  # (B, K) E[exp(-f_nk)] + M_n / epsilon_n
    epsilon: Tensor  # (B,)
    elog_loadings: Tensor  # (B, K) the E ln Z_nk, or ln E Z_nk, that formed phi: of q(Z) before its last update
    log_normalizer: Tensor  # (E,) ln sum_k exp(elog_loadings_nk + elog_theta_mk)
    statistics: Tensor  # (W, K) sum over a word's entries of c_m phi_m(k)
    sweeps: Tensor  # (B,) int64


def local_step(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    elog_theta: Tensor,
    prior_concentration: Tensor,
    expected_exp_neg_f: Tensor,
    *,
    max_sweeps: int = 20,
    tolerance: float = 1e-3,
    start: tuple[Tensor, Tensor] | None = None,
    by_mean: bool = False,
    normalised: bool = True,
) -> LocalStep:
    r"""The fixed point of q(C_n) and q(Z_n) for every document of a batch (eq. update_c, eq. update_z).

    .. math::
        \phi_{nm}(k) &\propto \exp(E \ln Z_{nk} + E \ln \theta_{k, x_m}), \qquad n_{nk} = \sum_m c_m \phi_{nm}(k) \\
        q(Z_{nk}) &= \mathrm{Gamma}(\beta p_k + n_{nk},\ \mathrm{rate} = E e^{-f_{nk}} + M_n / \epsilon_n)

    A document stops when :math:`\sum_k |\Delta a_{nk}| < \mathrm{tolerance}\, M_n`, or after `max_sweeps` pairs of
    updates. The step ends on the update of Z; `counts`, `log_normalizer` and `statistics` are those of the last phi.
    No gradient flows through it.

    Differs from the paper: epsilon is solved, not recomputed. Given a, it is the only positive root of
    :math:`\sum_k a_k e_k \epsilon / (e_k \epsilon + M) = \sum_k \beta p_k` with :math:`e_k = E e^{-f_k}`.

    Without `normalised` the loadings are not divided by their sum, as under Poisson counts: :math:`M_n / \epsilon_n` is
    left out of the rate, for which `expected_exp_neg_f` then stands as it is, and epsilon is infinite.

    With `by_mean`, :math:`\ln E Z_{nk}` stands in the place of :math:`E \ln Z_{nk}`; the update of Z is the same.

    Args:
        indptr: (B + 1,) int64; the entries of document n are `indptr[n]:indptr[n + 1]`.
        word: (E,) int64, rows of `elog_theta`; a word may be repeated within a document.
        count: (E,) how often the word occurs.
        elog_theta: (W, K) E ln theta of the batch's distinct words; its dtype is that of the result.
        prior_concentration: (K,), (1, K) or (B, K) beta p_k, positive.
        expected_exp_neg_f: (K,), (1, K) or (B, K) E[exp(-f_nk)], positive; ones for an HDP.
        max_sweeps: the most pairs of updates; at least one.
        tolerance: of the stopping test; 0 runs all of `max_sweeps`.
        start: (concentration, rate) of q(Z), each (B, K); otherwise concentration = beta p_k + M_n / K.
        by_mean, normalised: see above.

    Returns:
        A :class:`LocalStep`. A document without tokens has q(Z) equal to its prior, epsilon = E sum_k Z_k, no sweep.
    """
    _check(indptr, word, count, elog_theta, prior_concentration, expected_exp_neg_f, start)
    dtype, (num_words, num_topics), num_documents = elog_theta.dtype, elog_theta.shape, len(indptr) - 1
    indptr, word = (x.detach().to(torch.int64).contiguous() for x in (indptr, word))
    floats = (elog_theta, count, prior_concentration, expected_exp_neg_f, *(start or ()))
    elog_theta, count, prior, e, *q_z = (x.detach().to(dtype).contiguous() for x in floats)
    prior, e = prior.reshape(-1, num_topics), e.reshape(-1, num_topics)
    max_sweeps = max(1, int(max_sweeps))
    if elog_theta.device.type != "cpu":
        from pyro_prme.kernels.local_torch import local_step_torch

        return local_step_torch(
            indptr, word, count, elog_theta, prior, e, max_sweeps, float(tolerance), q_z, by_mean, normalised
        )

    concentration, rate = q_z or [elog_theta.new_empty(0, num_topics)] * 2
    shape = (num_documents, num_topics)
    result = LocalStep(
        counts=elog_theta.new_empty(shape),
        concentration=elog_theta.new_empty(shape),
        rate=elog_theta.new_empty(shape),
        epsilon=elog_theta.new_empty(num_documents),
        elog_loadings=elog_theta.new_empty(shape),
        log_normalizer=elog_theta.new_empty(len(word)),
        statistics=_memory.empty((num_words, num_topics), elog_theta),
        sweeps=torch.empty(num_documents, dtype=torch.int64),
    )
    run(
        indptr.numpy(),
        word.numpy(),
        count.numpy(),
        elog_theta.numpy(),
        prior.numpy(),
        e.numpy(),
        start=(concentration.numpy(), rate.numpy()),
        max_sweeps=max_sweeps,
        tolerance=float(tolerance),
        by_mean=bool(by_mean),
        normalised=bool(normalised),
        threads=torch.get_num_threads(),
        table=_memory.empty((num_words, num_topics), elog_theta).numpy(),
        result=tuple(x.numpy() for x in result),
    )
    return result


def _check(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    elog_theta: Tensor,
    prior_concentration: Tensor,
    expected_exp_neg_f: Tensor,
    start: tuple[Tensor, Tensor] | None,
) -> None:
    """Raise a ValueError of one sentence if the arguments of the local step do not fit together."""
    if elog_theta.ndim != 2 or elog_theta.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"elog_theta must be (W, K) float32 or float64, got {_form(elog_theta)}")
    tensors = (indptr, word, count, prior_concentration, expected_exp_neg_f, *(start or ()))
    if any(x.device != elog_theta.device for x in tensors):
        raise ValueError(f"all tensors must be on the device of elog_theta, {elog_theta.device}")
    num_topics = elog_theta.shape[1]
    for name, x in (("indptr", indptr), ("word", word)):
        if x.ndim != 1 or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise ValueError(f"{name} must be a vector of integers, got {_form(x)}")
    if count.shape != word.shape:
        raise ValueError(f"count must have one number for each of the {len(word)} words, got {_form(count)}")
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(word) or (indptr.diff() < 0).any():
        raise ValueError(f"indptr must increase from 0 to the number of entries {len(word)}")
    if len(word) and not 0 <= int(word.min()) <= int(word.max()) < len(elog_theta):
        raise ValueError(f"word must index the {len(elog_theta)} rows of elog_theta, got {word.min()} to {word.max()}")
    if len(word) and not count.min() >= 0:
        raise ValueError("count must not be negative")
    full = (len(indptr) - 1, num_topics)
    for name, x in (("prior_concentration", prior_concentration), ("expected_exp_neg_f", expected_exp_neg_f)):
        if x.shape not in ((num_topics,), (1, num_topics), full):
            raise ValueError(f"{name} must be (K,), (1, K) or (B, K) with B, K = {full}, got {_form(x)}")
        if x.numel() and not x.min() > 0:
            raise ValueError(f"{name} must be positive")
    if start is not None and len(start) != 2:
        raise ValueError("start must be a pair (concentration, rate)")
    for name, x in zip(("concentration", "rate"), start or (), strict=False):
        if x.shape != full:
            raise ValueError(f"the {name} of start must be (B, K) = {full}, got {_form(x)}")


def _form(x: Tensor) -> str:
    return f"{tuple(x.shape)} {x.dtype}"
