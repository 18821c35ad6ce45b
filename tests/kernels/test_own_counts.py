"""Own counts out: the compiled step against plain torch, and both against the posterior by enumeration."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from pyro_prme.kernels.own_counts import ONE, Held, Kept, add_kept_, log_completion, nothing_held, own_counts_out
from pyro_prme.kernels.own_counts_torch import largest, log_completion_torch, own_counts_out_torch, unpacked


class Case(NamedTuple):
    """The arguments of a step."""

    indptr: Tensor
    word: Tensor
    count: Tensor
    topics: Tensor
    total: Tensor
    prior: Tensor
    e: Tensor


def make_case(seed: int = 0, documents: int = 12, topics: int = 7, words: int = 40, f_scale: float = 0.0) -> Case:
    """Documents, one of them empty, whose words are in gamma with responsibilities that `holding` draws."""
    rng = np.random.default_rng(seed)
    rows = [np.unique(rng.integers(words, size=rng.poisson(25)), return_counts=True) for _ in range(documents)]
    rows[3 % documents] = (np.empty(0, int), np.empty(0, int))
    indptr = np.cumsum([0, *(len(row) for row, _ in rows)])
    gamma = torch.as_tensor(0.1 + rng.gamma(0.3, 10.0, (words, topics)))
    return Case(
        torch.as_tensor(indptr),
        torch.as_tensor(np.concatenate([row for row, _ in rows])),
        torch.as_tensor(np.concatenate([count for _, count in rows]), dtype=torch.float64),
        gamma,
        1.5 * gamma.sum(0),
        torch.as_tensor(3 * rng.dirichlet(np.ones(topics), documents) + 1e-6),
        torch.as_tensor(np.exp(f_scale * rng.normal(size=(documents, topics)))),
    )


def holding(case: Case, keep: int = 4) -> tuple[Case, Held]:
    """The case with its documents' words put into gamma, every second document's doubly, and the first one's not."""
    num_topics = case.topics.shape[1]
    phi = torch.distributions.Dirichlet(torch.full((num_topics,), 0.3)).sample((len(case.word),))
    document = torch.arange(len(case.indptr) - 1).repeat_interleave(case.indptr.diff())
    held = Held(largest(phi, keep), case.count * (1.0 + document % 2) * (document > 0))
    topics = case.topics.clone()
    add_kept_(topics, case.word, held.tokens, held.kept)
    return case._replace(topics=topics, total=case.total + topics.sum(0) - case.topics.sum(0)), held


@pytest.mark.parametrize("f_scale", [0.0, 1.0])
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("topics", "keep"), [(7, 3), (7, 0), (37, 5)])  # 37 topics: more than two groups of lanes
def test_compiled_and_plain_agree(f_scale, warm, threads, topics, keep, monkeypatch):
    case, held = holding(make_case(f_scale=f_scale, topics=topics))
    case = case._replace(count=case.count * (torch.arange(len(case.count)) % 5 > 0))  # some words are not seen
    monkeypatch.setattr("pyro_prme.kernels.own_counts._SMALL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = own_counts_out(*case, held=held, warm=warm, max_sweeps=6, tolerance=0.05, keep=keep)
    plain = own_counts_out_torch(*case, held, warm, 6, 0.05, keep)
    assert torch.equal(found.sweeps, plain.sweeps)
    assert topics > 7 or len(found.sweeps.unique()) > 2
    for name in ("counts", "concentration", "rate", "epsilon", "log_predictive"):
        torch.testing.assert_close(getattr(found, name), getattr(plain, name), rtol=1e-4, atol=1e-4)
    for kept in (found.kept, plain.kept):
        assert kept.shares.shape == (len(case.count), keep)
        assert bool((kept.shares.sum(-1) == (ONE if keep else 0)).all())
    torch.testing.assert_close(unpacked(found.kept, topics), unpacked(plain.kept, topics), rtol=0, atol=2 / ONE)


def test_float32_gives_the_numbers_of_float64():
    case, held = holding(make_case())
    wide = own_counts_out(*case, held=held)
    case = Case(*(x.float() if x.is_floating_point() else x for x in case))
    narrow = own_counts_out(*case, held=held._replace(tokens=held.tokens.float()))
    assert narrow.counts.dtype == torch.float32
    torch.testing.assert_close(narrow.counts.double(), wide.counts, rtol=1e-3, atol=1e-2)


def test_a_document_is_explained_as_if_the_topics_had_never_seen_it():
    without = make_case()
    case, held = holding(without)
    lonely = own_counts_out(*case, held=held, warm=False, tolerance=0)
    for n in range(1, len(case.indptr) - 1):  # take document n out of the topics by hand
        entries = slice(int(case.indptr[n]), int(case.indptr[n + 1]))
        topics = case.topics.clone()
        add_kept_(topics, case.word[entries], -held.tokens[entries], Kept(*(x[entries] for x in held.kept)))
        total = case.total + topics.sum(0) - case.topics.sum(0)
        alone = own_counts_out(*case._replace(topics=topics, total=total), tolerance=0)
        torch.testing.assert_close(lonely.counts[n], alone.counts[n], rtol=1e-5, atol=1e-5)
    seen = own_counts_out(*case, warm=False, tolerance=0)
    assert float((seen.counts - lonely.counts).abs().max()) > 0.5


def enumerated(documents: list[list[int]], a: np.ndarray, gamma0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All topics of all tokens, (S, tokens), and the probability of each given the words, with Z and theta integrated.

    gamma0 is (K, words).
    """
    tokens = [(n, w) for n, document in enumerate(documents) for w in document]
    states = np.array(list(itertools.product(range(len(a)), repeat=len(tokens))))
    logs = []
    for state in states:
        n_nk, m_kw = np.tile(a, (len(documents), 1)), gamma0.copy()
        for (n, w), k in zip(tokens, state, strict=True):
            n_nk[n, k] += 1
            m_kw[k, w] += 1
        logs.append(sum(map(math.lgamma, (*n_nk.flat, *m_kw.flat))) - sum(map(math.lgamma, m_kw.sum(1))))
    weights = np.exp(np.array(logs) - max(logs))
    return states, weights / weights.sum()


def in_full(kept: Kept, num_topics: int) -> np.ndarray:
    return unpacked(kept, num_topics).numpy()


@pytest.mark.parametrize("count", [0.0, 1.0])
def test_one_word_has_its_exact_posterior_given_the_topics_of_the_others(count):
    """With and without its own count in the topics; and its probability is the exact one."""
    documents, a = [[0, 1, 2], [3, 0, 1], [2]], np.array([0.7, 0.4, 1.3])
    gamma0 = np.random.default_rng(0).uniform(0.1, 1.0, (3, 4))
    states, weights = enumerated(documents, a, gamma0)
    others = np.array([0, 2, 1, 1, 0, 2])
    same = (states[:, :6] == others).all(1)
    exact = weights[same] / weights[same].sum()
    topics = torch.as_tensor(gamma0.T.copy())
    kept = largest(torch.eye(3)[torch.as_tensor([*others, 1])].double(), 1)
    add_kept_(topics, torch.tensor([0, 1, 2, 3, 0, 1, 2]), torch.tensor([1.0] * 6 + [count]), kept)
    held = Held(Kept(*(x[6:] for x in kept)), torch.tensor([count]))
    given = torch.tensor([0, 1]), torch.tensor([2]), torch.ones(1), topics, topics.sum(0), torch.as_tensor(a)
    found = own_counts_out(*given, torch.ones(3), held=held, keep=3)
    np.testing.assert_allclose(in_full(found.kept, 3)[0], exact, atol=2 / ONE)
    m = gamma0.copy()
    np.add.at(m, (others, [0, 1, 2, 3, 0, 1]), 1)
    assert float(found.log_predictive.exp()) == pytest.approx((a / a.sum() * m[:, 2] / m.sum(1)).sum(), rel=1e-12)


def test_the_update_of_a_word_is_the_exact_conditional_given_certain_topics_of_the_rest_of_its_document():
    """Topics that are known leave the loadings alone to be integrated out."""
    words, state, a = [0, 1, 2, 3], [1, 0, 2, 2], np.array([0.7, 0.4, 1.3])
    gamma0 = 1e9 * np.random.default_rng(0).dirichlet(np.ones(4), 3)
    states, weights = enumerated([words], a, gamma0)
    same = (states[:, 1:] == state[1:]).all(1)
    exact = weights[same] / weights[same].sum()
    topics = torch.as_tensor(gamma0.T.copy())
    held = Held(largest(torch.eye(3)[state].double(), 1), torch.full((4,), 1e-9))  # where the sweep starts
    given = torch.tensor([0, 4]), torch.tensor(words), torch.ones(4), topics, topics.sum(0), torch.as_tensor(a)
    one = given[2].clone()
    found = own_counts_out(*given[:2], one, *given[3:], torch.ones(3), held=held, max_sweeps=1, keep=3)
    np.testing.assert_allclose(in_full(found.kept, 3)[0], exact, atol=1e-4)


def test_the_fixed_point_is_near_the_exact_posterior():
    """The next word of each document, and topics of the words, of a corpus small enough to be enumerated."""
    documents, a = [[0, 1, 2], [3, 0], [2, 3, 4]], np.array([1.5, 1.0])
    gamma0 = np.array([[2.0, 1.5, 0.5, 0.5, 0.5], [0.5, 0.5, 1.0, 1.5, 2.0]])
    states, weights = enumerated(documents, a, gamma0)
    marginal = np.stack([(weights[:, None] * (states == k)).sum(0) for k in range(2)], -1)
    indptr, word, ones = torch.tensor([0, 3, 5, 8]), torch.tensor([w for d in documents for w in d]), torch.ones(8)
    topics, held = torch.as_tensor(gamma0.T.copy()), nothing_held(8)
    for _ in range(200):
        given = indptr, word, ones, topics, topics.sum(0), torch.as_tensor(a), torch.ones(2)
        found = own_counts_out(*given, held=held, tolerance=0)
        topics = torch.as_tensor(gamma0.T.copy())
        add_kept_(topics, word, ones, found.kept)
        held = Held(found.kept, ones)
    np.testing.assert_allclose(in_full(found.kept, 2), marginal, atol=0.1)
    exact = np.zeros((3, 5))
    for state, weight in zip(states, weights, strict=True):
        m, n = gamma0.copy(), np.tile(a, (3, 1))
        np.add.at(m, (state, word.numpy()), 1)
        np.add.at(n, (np.repeat(range(3), [3, 2, 3]), state), 1)
        exact += weight * (n / n.sum(1, keepdims=True)) @ (m / m.sum(1, keepdims=True))
    proportions = found.concentration / found.concentration.sum(1, keepdim=True)
    np.testing.assert_allclose(proportions @ (topics / topics.sum(0)).mT, exact, atol=0.02)


def test_completion_is_that_of_plain_torch_with_its_gradient():
    case, held = holding(make_case())
    proportions = torch.distributions.Dirichlet(torch.ones(7)).sample((12,)).requires_grad_()
    given = *case[:2], case.count * (torch.arange(len(case.count)) % 3 > 0), case.topics, case.total, proportions, held
    values = [one(*given) for one in (log_completion, log_completion_torch)]
    gradients = [torch.autograd.grad((torch.arange(12) * value).sum(), proportions)[0] for value in values]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*gradients)
    assert float(values[0][3].detach()) == 0
    without = log_completion(*given[:-1])
    assert bool((without >= values[0] - 1e-9)[1:].sum() > 8)  # own words make a document look likelier


def test_only_the_largest_responsibilities_are_kept():
    phi = torch.tensor([[0.1, 0.5, 0.0, 0.4], [1.0, 0.0, 0.0, 0.0]])
    assert in_full(largest(phi, 2), 4)[0] == pytest.approx([0, 5 / 9, 0, 4 / 9], abs=2 / ONE)
    case = make_case()
    two, all_of_them = (own_counts_out(*case, keep=keep, tolerance=0) for keep in (2, 99))
    full = in_full(all_of_them.kept, 7)
    top = np.sort(full, 1)[:, -2:].sum(1)
    np.testing.assert_allclose(np.sort(in_full(two.kept, 7), 1)[:, -1], full.max(1) / top, atol=6 / ONE)


def test_too_many_topics_are_refused():
    case = make_case(topics=3)
    wide = case._replace(topics=case.topics[:, :1].expand(-1, ONE + 1))
    with pytest.raises(ValueError, match="holds at most 32767"):
        own_counts_out(*wide)
