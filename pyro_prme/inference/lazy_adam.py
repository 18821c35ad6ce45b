"""Adam for vocabulary-wide tables of which a step moves only the batch's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from pyro_prme.kernels.arithmetic import cached
from pyro_prme.kernels.threads import share_out

__all__ = ["LazyAdam"]


class LazyAdam(torch.optim.Optimizer):
    r"""Adam whose moments and weights move only in the rows that have a gradient (a sparse one, as `nn.Embedding`'s).

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
              w \leftarrow w - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \frac{m}{\sqrt v + \epsilon}

    The formula is that of `torch.optim.SparseAdam`, which looks every row up several times; here the rows pass through
    the processor once.

    Args:
        params: tables, rows first.
        lr: eta.
        betas: beta_1 and beta_2.
        eps: epsilon.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for every table with a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._move(table, table.grad, group)
        return loss

    def _move(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if not gradient.is_sparse:
            raise ValueError("LazyAdam takes sparse gradients, and this table has a dense one: set sparse=True.")
        state = self.state[table]
        if not state:
            state.update(step=0, m=torch.zeros_like(table), v=torch.zeros_like(table))
        state["step"] += 1
        first, second = group["betas"]
        rate = group["lr"] * math.sqrt(1 - second ** state["step"]) / (1 - first ** state["step"])
        if not (gradient._indices().diff() > 0).all():  # autograd forgets that it was coalesced, and to do it is slow
            gradient = gradient.coalesce()
        rows, values = gradient._indices()[0], gradient._values()
        move = _move_rows_compiled if table.device.type == "cpu" else move_rows
        move(table, state["m"], state["v"], rows, values, rate, first, second, group["eps"])


def move_rows(
    table: Tensor, m: Tensor, v: Tensor, rows: Tensor, g: Tensor, rate: float, first: float, second: float, eps: float
) -> None:
    """The step for the given rows, on any device."""
    new_m = m[rows].lerp_(g, 1 - first)
    new_v = v[rows].mul_(second).addcmul_(g, g, value=1 - second)
    m[rows], v[rows] = new_m, new_v
    table[rows] -= rate * new_m / (new_v.sqrt() + eps)


def _move_rows_compiled(table: Tensor, m: Tensor, v: Tensor, rows: Tensor, g: Tensor, *settings: float) -> None:
    arrays = [x.detach().numpy() for x in (table, m, v, rows, g.contiguous())]
    threads = torch.get_num_threads()
    share_out(_adam_rows, threads, threads, *arrays, *settings)


@cached
def _adam_rows(start, step, table, m, v, rows, g, rate, first, second, eps):
    one = table.dtype.type(1)
    first, second, rate, eps = (
        table.dtype.type(first),
        table.dtype.type(second),
        table.dtype.type(rate),
        table.dtype.type(eps),
    )
    for i in range(start, len(rows), step):
        w_row, m_row, v_row, g_row = table[rows[i]], m[rows[i]], v[rows[i]], g[i]
        for k in range(g_row.size):
            m_row[k] = first * m_row[k] + (one - first) * g_row[k]
            v_row[k] = second * v_row[k] + (one - second) * g_row[k] * g_row[k]
            w_row[k] -= rate * m_row[k] / (math.sqrt(v_row[k]) + eps)
