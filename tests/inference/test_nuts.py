"""Mean field against NUTS on a tiny corpus, with V, ell, h and f held and C summed out."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, config_enumerate
from pyro.infer.autoguide.initialization import init_to_value
from pyro.ops.stats import split_gelman_rubin

from pyro_prme import PRME, Batch, Decoder
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.inference.guide import ClosedFormGuide

K, D, N = 2, 6, 5
CHAINS, WARMUP, SAMPLES = 4, 200, 500


def tiny_corpus():
    rng = np.random.default_rng(0)
    theta = np.array([[0.4, 0.3, 0.25, 0.03, 0.01, 0.01], [0.01, 0.01, 0.03, 0.25, 0.3, 0.4]])
    return Batch.from_tokens([rng.choice(D, 60, p=[w, 1 - w] @ theta).tolist() for w in (0.9, 0.1, 0.5, 0.8, 0.25)])


V, F = torch.tensor([0.5], dtype=torch.float64), 0.5 * torch.tensor([[1.0, -1.0], [0.0, 1.0]], dtype=torch.float64)
F = F.repeat(3, 1)[:N]  # (N, K), values that matter


def held_model():
    """The model with V, ell, h and f fixed."""
    decoder = Decoder(K, 2, 2, hidden=(2,), batch_norm=False)
    model = PRME(K, D, N, h_dim=2, ell_dim=2, gamma0=1.0, decoder=decoder).eval()
    return poutine.condition(model, {"V": V, "ell": torch.zeros(K, 2), "h": torch.zeros(N, 1, 2), "f": F})


def collapsed(batch):
    """The same with C summed out by hand: words from the mixture of topics."""
    with pyro.plate("topics", K, dim=-1):
        theta = pyro.sample("theta", dist.Dirichlet(torch.ones(D)))
    with pyro.plate("documents", N, dim=-2), pyro.plate("loadings", K, dim=-1):
        Z = pyro.sample("Z", dist.Gamma(5 * stick_weights(V), (-F).exp()))
    proportions = Z / Z.sum(-1, keepdim=True)
    pyro.factor("X", ((proportions @ theta).log()[batch.document, batch.word]).sum())


def test_the_collapsed_model_is_the_model_with_topics_enumerated():
    batch = tiny_corpus()
    potentials = []
    for model in (config_enumerate(held_model(), "parallel"), collapsed):
        values = {"theta": torch.full((K, D), 1 / D), "Z": torch.ones(N, K)}
        kernel = NUTS(model, max_plate_nesting=2, init_strategy=init_to_value(values=values))
        kernel.setup(1, batch)
        start = kernel.initial_params
        moved = {
            name: value + torch.linspace(-1, 1, value.numel()).reshape(value.shape) for name, value in start.items()
        }
        with torch.no_grad():
            potentials.append(float(kernel.potential_fn(moved) - kernel.potential_fn(start)))
    assert potentials[0] == pytest.approx(potentials[1], rel=1e-12)


def test_the_model_itself_runs_under_nuts():
    kernel = NUTS(config_enumerate(held_model(), "parallel"), max_plate_nesting=2, max_tree_depth=3)
    mcmc = MCMC(kernel, num_samples=3, warmup_steps=3, disable_progbar=True)
    mcmc.run(tiny_corpus())
    assert torch.isfinite(mcmc.get_samples()["theta"]).all()


@pytest.mark.slow
def test_closed_form_means_agree_with_nuts():
    batch = tiny_corpus()
    guide = ClosedFormGuide(held_model())
    for _ in range(300):
        run = guide.run(batch)
        for claim in guide.claims:
            claim.gather(run)
            claim.natural_step(1.0)
    run = guide.run(batch)
    theta, Z = run.factor("theta").mean, run.factor("Z").mean
    proportions = Z / Z.sum(-1, keepdim=True)

    pyro.enable_validation(False)  # 10,000 gradients
    chains = []
    for seed in range(CHAINS):
        kernel = NUTS(collapsed, init_strategy=init_to_value(values={"theta": theta, "Z": Z}))
        pyro.set_rng_seed(seed)
        mcmc = MCMC(kernel, num_samples=SAMPLES, warmup_steps=WARMUP, disable_progbar=True)
        mcmc.run(batch)
        draws = mcmc.get_samples()
        order = [0, 1] if (draws["theta"].mean(0) - theta).abs().sum() < 1 else [1, 0]  # labels aligned
        shares = draws["Z"] / draws["Z"].sum(-1, keepdim=True)
        chains.append((draws["theta"][:, order], shares[:, :, order]))
    nuts = [torch.stack(part) for part in zip(*chains, strict=True)]  # (chains, samples, ...)

    r_hat = max(float(split_gelman_rubin(part).max()) for part in nuts)
    distance = [
        float((part.mean((0, 1)) - ours).abs().sum(-1).max() / 2)
        for part, ours in zip(nuts, (theta, proportions), strict=True)
    ]
    print(f"R-hat {r_hat:.4f}; total variation of theta's rows {distance[0]:.4f}, of the proportions {distance[1]:.4f}")
    assert r_hat < 1.01
    assert max(distance) < 0.05
