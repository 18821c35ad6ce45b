"""Fits that the workers' tests run, in one process or under torchrun: python -m tests.inference.together OUT BATCH"""

import copy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

import pyro_prme as prme
from pyro_prme.inference.data import Data, Tensors
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.rules.topics import OwnCountsOut
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.inference.workers import Workers, working_together
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.networks.layers import Decoder


def mixture(x: Tensor, rows: Tensor) -> None:
    with pyro.plate("parts", 3):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("rows", 90, subsample=rows):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mu[z], tau[z].rsqrt()), obs=x)


def regression(x: Tensor, y: Tensor, rows: Tensor) -> None:
    """One site without a closed form beside one with it, and a parameter of Pyro's store."""
    slope = pyro.param("slope", torch.tensor(0.1))
    level = pyro.sample("level", dist.Normal(0.0, 3.0))
    with pyro.plate("rows", 90, subsample=rows):
        pyro.sample("y", dist.Normal(level + slope * x, 1.0), obs=y)


def case(kind: str) -> tuple[ClosedFormGuide, Data]:
    """A guide whose networks have neither batch norm nor dropout, and its data."""
    torch.manual_seed(0)
    if kind == "mixture":
        return ClosedFormGuide(mixture), Tensors(torch.randn(90) + 4 * torch.arange(90).remainder(3))
    if kind == "regression":
        x = torch.randn(90)
        return ClosedFormGuide(regression), Tensors(x, 2 * x + torch.randn(90))
    corpus = prme.load_corpus("kjv")[:90].restrict(min_df=5)
    sizes = 6, corpus.vocab_size, 90
    if kind == "diln":
        return PRMEGuide(prme.DILN(*sizes)), Counts(corpus.counts)
    decoder = Decoder(6, 4, 4, (5,), batch_norm=False)
    encoder: nn.Module = TopicEncoder(6, 4, (5,), batch_norm=False, word_dropout=0.0)
    program = (prme.PRME if kind == "scale" else prme.ShapePRME)(*sizes, h_dim=4, ell_dim=4, decoder=decoder)
    topics = OwnCountsOut("profiled") if kind == "own" else None
    return PRMEGuide(program, encoder, topics=topics), Counts(corpus.counts)


CASES = ("shape", "scale", "own", "diln", "mixture", "regression")
EPOCHS = 3


class Ended(Exception):
    """Stands for the end of all processes."""


def state_within(trainer: Trainer) -> dict[str, Any]:
    """What the first worker would write in the middle of the second epoch, as all of them read it."""
    states: list[Any] = []

    def between(trainer: Trainer) -> None:
        if len(trainer.history) == 1:
            states.append(copy.deepcopy(trainer.state_dict()))
            raise Ended

    with suppress(Ended):
        trainer.fit(EPOCHS, between=between)
    if trainer.workers.size > 1:
        torch.distributed.broadcast_object_list(states)
    return states[0]


def fitted(kind: str, mode: str, batch_size: int, workers: Workers, interrupted: bool = False) -> dict[str, Any]:
    """The state after some epochs, and their bounds."""
    pyro.clear_param_store()
    guide, data = case(kind)
    options = TrainOptions(mode=mode, batch_size=batch_size, seed=3)
    trainer = Trainer(guide, data, options, workers=workers)
    if interrupted:
        before = state_within(trainer)
        guide, data = case(kind)
        trainer = Trainer(guide, data, options, workers=workers, start=None)
        trainer.load_state_dict(before)
    history = trainer.fit(EPOCHS - len(trainer.history))
    state = trainer.state_dict()
    return {
        "state": {**state["guide"], **{f"model.{key}": value for key, value in state["model"].items()}},
        "store": {name: value.detach().clone() for name, value in pyro.get_param_store().items() if "$$$" not in name},
        "bounds": [record["bound"] for record in history],
    }


def disagreement(workers: Workers) -> str:
    """What workers that differ are told."""
    workers.agree({"version": "1", "corpus": "abc"})
    try:
        workers.agree({"version": "1", "corpus": f"of {workers.rank}"})
    except ValueError as error:
        return str(error)
    return "nothing"


def running(workers: Workers) -> list[float]:
    """Running mean and variance of a batch norm that has 1 + rank and 3 + rank."""
    norm = nn.BatchNorm1d(1)
    norm.running_mean.fill_(1.0 + workers.rank)  # type: ignore[union-attr]
    norm.running_var.fill_(3.0 + workers.rank)  # type: ignore[union-attr]
    workers.average_running([nn.Sequential(norm)])
    return [float(norm.running_mean), float(norm.running_var)]  # type: ignore[arg-type]


def main(out: Path, batch_size: int) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    with working_together(minutes=2) as workers:
        found: dict[Any, Any] = {(k, m): fitted(k, m, batch_size, workers) for k in CASES for m in ("batch", "online")}
        for mode in ("batch", "online"):
            found["interrupted", mode] = fitted("own", mode, batch_size, workers, interrupted=True)
        found["agree"], found["running"] = disagreement(workers), running(workers)
        if workers.leads:
            torch.save(found, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
