"""Discrete sites: as indices, in conditions and sums, and functions of several of their members."""

from __future__ import annotations

import pyro
import torch
import torch.nn.functional as F
from pyro import distributions as dist
from pyro.ops.indexing import Vindex

from tests.conjugacy.idioms.table import TWO_MEMBERS, counts, features, idiom, labels, numbers


def _means(size: int = 3):
    with pyro.plate("classes", size):
        return pyro.sample("mu", dist.Normal(0.0, 3.0))


def _classes(size: int = 3, members: int = 4):
    with pyro.plate("members", members):
        return pyro.sample("z", dist.Categorical(torch.tensor([0.2, 0.5, 0.3])[:size]))


@idiom()
def where_on_a_condition():
    p, a = pyro.sample("p", dist.Beta(1.0, 1.0)), pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 5):
        z = pyro.sample("z", dist.Bernoulli(p))
        pyro.sample(
            "x", dist.Normal(torch.where(z == 1, torch.tensor(2.0), torch.tensor(-2.0)) + a, 1.0), obs=numbers(5)
        )


@idiom()
def where_with_both_branches_random():
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(3.0, 1.0))
    with pyro.plate("data", 5):
        z = pyro.sample("z", dist.Bernoulli(0.4))
        pyro.sample("x", dist.Normal(torch.where(z > 0.5, a, b), 1.0), obs=numbers(5))


@idiom()
def where_on_data_with_both_branches_random():
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(3.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(torch.where(labels() == 1, a, b), 1.0), obs=numbers())


@idiom(
    {
        "a": "a sum with it is raised to the power -0.5",
        "b": "a sum with it is raised to the power -0.5",
        "z": "a sum with it is raised to the power -0.5",
    }
)
def where_between_precisions():
    a, b = pyro.sample("a", dist.Gamma(1.0, 1.0)), pyro.sample("b", dist.Gamma(2.0, 0.5))
    with pyro.plate("data", 5):
        z = pyro.sample("z", dist.Bernoulli(0.4))
        pyro.sample("x", dist.Normal(0.0, torch.where(z == 1, a, b).rsqrt()), obs=numbers(5))


@idiom({"mu": "it goes through gt"})
def where_on_a_continuous_condition():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 5):
        pyro.sample("x", dist.Normal(torch.where(mu > 0, mu, 0.0), tau.rsqrt()), obs=numbers(5))


@idiom()
def two_conditions_added():
    mu, z = _means(), _classes()
    level = (z == 1).double() + (z >= 1).double() + torch.where(z == 1, 1.0, 0.0) + torch.where(z > 0, 1.0, 0.0)
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[0] * level, 1.0), obs=numbers(4))


@idiom()
def truth_values_added():
    z = _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal((z == 1).long() + (z >= 1).long() * 2.0, 1.0), obs=numbers(4))


@idiom({"z": TWO_MEMBERS})
def spike_times_slab():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("features", 3):
        z = pyro.sample("z", dist.Bernoulli(p))
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(features() @ (z * w), 1.0), obs=numbers())


@idiom()
def spike_times_slab_one_by_one():
    with pyro.plate("data", 5):
        z = pyro.sample("z", dist.Bernoulli(0.3))
        w = pyro.sample("w", dist.Normal(0.0, 2.0))
        pyro.sample("x", dist.Normal(z * w, 1.0), obs=numbers(5))


@idiom()
def one_hot_then_matmul():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(F.one_hot(z, 3).double() @ mu, 1.0), obs=numbers(4))


@idiom({"z": "one_hot is called without a number of classes"})
def one_hot_without_a_number():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(F.one_hot(z)[:, :1].double().sum(-1) * mu[0], 1.0), obs=numbers(4))


@idiom()
def one_hot_categorical():
    mu = _means()
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.OneHotCategorical(torch.ones(3) / 3))
        pyro.sample("x", dist.Normal(z @ mu, 1.0), obs=numbers(4))


@idiom({"z": "it goes through argmax"})
def argmax_of_one_hot():
    mu = _means()
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.OneHotCategorical(torch.ones(3) / 3))
        pyro.sample("x", dist.Normal(mu[z.argmax(-1)], 1.0), obs=numbers(4))


@idiom()
def vindex():
    with pyro.plate("classes", 3):
        mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 3.0).to_event(1))
    z = _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(Vindex(mu)[z, 0], 1.0), obs=numbers(4))


@idiom()
def vindex_of_two_sites():
    with pyro.plate("rows", 2, dim=-2), pyro.plate("columns", 3, dim=-1):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    z = _classes()
    with pyro.plate("data", 4):
        b = pyro.sample("b", dist.Bernoulli(0.4))
        pyro.sample("x", dist.Normal(Vindex(mu)[b.long(), z], 1.0), obs=numbers(4))


@idiom()
def one_number_from_two_sites():
    with pyro.plate("cells", 6):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    z = _classes()
    with pyro.plate("data", 4):
        b = pyro.sample("b", dist.Categorical(torch.tensor([0.4, 0.6])))
        pyro.sample("x", dist.Normal(mu[3 * b + z], 1.0), obs=numbers(4))


@idiom()
def sum_of_two_sites_compared():
    with pyro.plate("data", 4):
        a = pyro.sample("a", dist.Categorical(torch.tensor([0.4, 0.6])))
        b = pyro.sample("b", dist.Categorical(torch.tensor([0.3, 0.7])))
        pyro.sample("x", dist.Normal(torch.where(a + b == 2, 1.5, -0.5), 1.0), obs=numbers(4))


@idiom()
def enumerate_annotated():
    mu = _means()
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.ones(3) / 3), infer={"enumerate": "parallel"})
        pyro.sample("x", dist.Normal(mu[z], 1.0), obs=numbers(4))


@idiom({"z": TWO_MEMBERS})
def index_reused_outside_of_the_plate():
    mu, z = _means(), _classes()
    pyro.sample("s", dist.Normal(mu[z].sum(), 1.0), obs=torch.tensor(1.0))


@idiom({"z": TWO_MEMBERS})
def mean_of_a_site():
    z = _classes()
    pyro.sample("s", dist.Normal(z.double().mean(), 1.0), obs=torch.tensor(1.0))


@idiom()
def mean_of_a_site_in_a_rate():
    z = _classes()
    g = pyro.sample("g", dist.Gamma(2.0, 1.0))
    pyro.factor("f", -g * z.double().mean())


@idiom()
def differences():
    z = _classes()
    pyro.factor("f", (0.3 * (z[1:] - z[:-1])).sum())


@idiom({"z": TWO_MEMBERS})
def squared_differences():
    z = _classes()
    pyro.factor("f", (-0.3 * (z[1:] - z[:-1]) ** 2).sum())


@idiom({"z": TWO_MEMBERS})
def neighbours_compared():
    z = _classes()
    pyro.factor("f", (z[1:] == z[:-1]).double().sum())


@idiom({"z": TWO_MEMBERS})
def neighbouring_means():
    mu, z = _means(), _classes()
    pyro.sample("x", dist.Normal(mu[z[1:]] - mu[z[:-1]], 1.0).to_event(1), obs=numbers(3))


@idiom({"z": TWO_MEMBERS})
def one_state_after_another_within_one_site():
    z = _classes()
    A = pyro.sample("A", dist.Dirichlet(torch.ones(3, 3)).to_event(1))
    pyro.factor("f", A[z[:-1], z[1:]].log().sum())


@idiom()
def running_sum():
    z = _classes()
    pyro.factor("f", 0.1 * z.cumsum(0).sum())


@idiom({"z": "it is turned into whole numbers"})
def running_sum_as_an_index():
    mu = _means(4)
    with pyro.plate("members", 3):
        z = pyro.sample("z", dist.Bernoulli(0.5))
    with pyro.plate("data", 3):
        pyro.sample("x", dist.Normal(mu[z.cumsum(0).long()], 1.0), obs=numbers(3))


@idiom({"z": "a logsumexp over its members"})
def softmax_of_a_site():
    z = _classes()
    pyro.sample("c", dist.Categorical(logits=z.double()), obs=torch.tensor(2))


@idiom({"z": "a logsumexp over its members"})
def logsumexp_over_members():
    z = _classes()
    pyro.factor("f", 0.5 * torch.logsumexp(z.double(), 0))


@idiom()
def logsumexp_over_classes():
    with pyro.plate("classes", 3):
        g = pyro.sample("g", dist.Gamma(1.0, 1.0))
    z = _classes()
    with pyro.plate("data", 4):
        pyro.factor("f", -torch.logsumexp(torch.stack([z.double(), 2.0 - z.double()]), 0) * g[0])


@idiom({"g": "the logarithm of a sum with it", "z": "the logarithm of a sum with it"})
def site_times_logarithm_of_a_sum_with_it():
    g = pyro.sample("g", dist.Gamma(2.0, 1.0))
    z = _classes()
    pyro.factor("f", -z.sum() * torch.log(g + z.sum()))


@idiom()
def flipped():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[z.flip(0)], 1.0), obs=numbers(4))


@idiom()
def flipped_by_keyword():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[torch.flip(z, dims=[0])], 1.0), obs=numbers(4))


@idiom({"z": "it goes through roll"})
def rolled():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[z.roll(1)], 1.0), obs=numbers(4))


@idiom({"z": TWO_MEMBERS})
def rolled_by_hand():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[torch.cat([z[-1:], z[:-1]])], 1.0), obs=numbers(4))


@idiom({"z": "it goes through sort"})
def sorted_members():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[z.sort().values], 1.0), obs=numbers(4))


@idiom({"z": "it goes through bincount"})
def counted():
    z = _classes()
    pyro.sample("n", dist.Poisson(1.0 + torch.bincount(z, minlength=3).double()).to_event(1), obs=counts(3))


@idiom()
def counted_by_one_hot():
    z = _classes()
    pyro.factor("f", (F.one_hot(z, 3).sum(0) * torch.tensor([0.1, -0.3, 0.2])).sum())


@idiom({"z": TWO_MEMBERS})
def counted_by_one_hot_squared():
    z = _classes()
    pyro.factor("f", -(F.one_hot(z, 3).sum(0).double() ** 2).sum())


@idiom({"z": "it is a mask that chooses elements"})
def boolean_mask_of_data():
    mu, z = _means(), _classes()
    pyro.factor("f", -((numbers(4)[z == 1] - mu[0]) ** 2).sum())


@idiom({"z": "it is in the mask of x0"})
def loop_with_a_mask():
    mu, z = _means(), _classes()
    for k in range(3):
        with pyro.poutine.mask(mask=(z == k)):
            pyro.sample(f"x{k}", dist.Normal(mu[k], 1.0).expand([4]), obs=numbers(4))


@idiom()
def integer_powers():
    z = _classes()
    with pyro.plate("weights", 8):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(w[(2**z).long()], 1.0), obs=numbers(4))


@idiom()
def whole_division_and_remainder():
    with pyro.plate("rows", 2, dim=-2), pyro.plate("columns", 2, dim=-1):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.ones(4) / 4))
        pyro.sample("x", dist.Normal(mu[z // 2, z % 2], 1.0), obs=numbers(4))


@idiom()
def divided_and_rounded():
    mu = _means()
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.ones(5) / 5))
        pyro.sample("x", dist.Normal(mu[(z / 2).floor().long()], 1.0), obs=numbers(4))


@idiom()
def clamped_neighbour():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[z] - mu[(z + 1).clamp(max=2)], 1.0), obs=numbers(4))


@idiom()
def scale_by_class():
    mu = _means()
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.ones(3) / 3))
        pyro.sample("x", dist.Normal(mu[0] / (1 + z), 1.0 + 2.0 * z), obs=numbers(4))


@idiom()
def noisy_or():
    with pyro.plate("data", 4):
        a = pyro.sample("a", dist.Bernoulli(0.3))
        b = pyro.sample("b", dist.Bernoulli(0.6))
        pyro.sample("x", dist.Bernoulli(1 - 0.9 * (1 - 0.5 * a) * (1 - 0.8 * b)), obs=(numbers(4) > 0).double())


@idiom({"n": "it is the number of trials of a Binomial"})
def number_of_successes_out_of_an_unknown_number():
    n = pyro.sample("n", dist.Binomial(6, 0.5))
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    pyro.sample("k", dist.Binomial(n, p, validate_args=False), obs=torch.tensor(2.0))


@idiom()
def exponentials_and_sigmoids():
    z = _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(torch.sigmoid(z.double()), (0.1 * z).exp()), obs=numbers(4))


@idiom()
def binomial_site():
    g = pyro.sample("g", dist.Gamma(2.0, 1.0))
    n = pyro.sample("n", dist.Binomial(4, 0.3))
    pyro.sample("k", dist.Poisson(g * (1.0 + n)), obs=torch.tensor(3.0))


@idiom()
def binomial_site_with_an_unknown_probability():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    n = pyro.sample("n", dist.Binomial(4, p))
    pyro.sample("x", dist.Normal(n, 1.0), obs=torch.tensor(3.0))


@idiom()
def a_class_without_probability():
    mu = _means()
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.0, 0.5])))
        pyro.sample("x", dist.Normal(mu[z], 1.0), obs=numbers(4))


@idiom()
def transitions_that_cannot_be():
    A = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    z = 0
    for t in range(3):
        z = pyro.sample(f"z{t}", dist.Categorical(A[z]))
        pyro.sample(f"x{t}", dist.Normal(z, 1.0), obs=numbers(3)[t])


@idiom()
def a_certain_coin():
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Bernoulli(torch.tensor([0.0, 1.0, 0.5, 0.5])))
        pyro.sample("x", dist.Normal(z, 1.0), obs=numbers(4))


@idiom()
def a_single_class():
    mu = _means(1)
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.ones(1)))
        pyro.sample("x", dist.Normal(mu[z], 1.0), obs=numbers(4))


@idiom()
def vectorised_markov():
    mu = _means(2)
    A = pyro.sample("A", dist.Dirichlet(torch.ones(2, 2)).to_event(1))
    z = None
    with pyro.plate("series", 2):
        for t in pyro.markov(range(3)):
            z = pyro.sample(f"z{t}", dist.Categorical(torch.ones(2) / 2 if z is None else A[z]))
            pyro.sample(f"x{t}", dist.Normal(mu[z], 1.0), obs=features(2)[:, t])


@idiom()
def second_order_markov():
    A = pyro.sample("A", dist.Dirichlet(torch.ones(2, 2, 2)).to_event(2))
    first = second = torch.tensor(0)
    for t in pyro.markov(range(3), history=2):
        first, second = second, pyro.sample(f"z{t}", dist.Categorical(A[first, second]))
        pyro.sample(f"x{t}", dist.Normal(second.double(), 1.0), obs=numbers(3)[t])


@idiom({"z": "the model reads its value (__int__)"})
def a_dictionary_of_means():
    mu, z = _means(), _classes()
    table = [mu[0], mu[1], mu[2]]
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(torch.stack([table[int(k)] for k in z]), 1.0), obs=numbers(4))


@idiom()
def a_class_at_each_of_two_places():
    mu, z = _means(), _classes()
    with pyro.plate("data", 4):
        pyro.sample("x", dist.Normal(mu[z], 1.0), obs=numbers(4))
        pyro.sample("y", dist.Normal(mu[z] * z, 2.0), obs=numbers(4, seed=9))


@idiom()
def cases_by_a_sum_of_indicators():
    a, b = pyro.sample("a", dist.Normal(0.0, 2.0)), pyro.sample("b", dist.Normal(1.0, 2.0))
    z = _classes()
    with pyro.plate("data", 4):
        loc = (z == 0) * a + (z == 1) * b + (z == 2) * (a - b)
        pyro.sample("x", dist.Normal(loc, 1.0), obs=numbers(4))


@idiom()
def two_sites_multiplied():
    with pyro.plate("data", 4):
        a = pyro.sample("a", dist.Bernoulli(0.4))
        b = pyro.sample("b", dist.Bernoulli(0.7))
        pyro.sample("x", dist.Normal(a * b - (a != b).double(), 1.0), obs=numbers(4))


@idiom({"z": TWO_MEMBERS})
def all_pairs():
    with pyro.plate("members", 3):
        z = pyro.sample("z", dist.Bernoulli(0.4))
    same = (z.unsqueeze(0) == z.unsqueeze(1)).double()
    pyro.sample("edges", dist.Bernoulli(0.2 + 0.6 * same).to_event(2), obs=torch.eye(3))


@idiom()
def all_pairs_of_two_sites():
    with pyro.plate("rows", 3):
        r = pyro.sample("r", dist.Categorical(torch.ones(2) / 2))
    with pyro.plate("columns", 2):
        c = pyro.sample("c", dist.Categorical(torch.ones(2) / 2))
    with pyro.plate("blocks", 4):
        p = pyro.sample("p", dist.Beta(1.0, 1.0))
    p = p.reshape(2, 2)
    pyro.sample("edges", dist.Bernoulli(p[r.unsqueeze(-1), c]).to_event(2), obs=(features(3, 2) > 0).double())
