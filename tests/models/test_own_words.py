"""Own words: the restaurant's formulas against enumeration, and the layer's wiring from batch to score."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from pyro import distributions as dist
from scipy import sparse

import pyro_prme as prme
from pyro_prme.answers.own_words import Layer, token_perplexities
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.equations.restaurant import log_seating, next_word, tables_of
from pyro_prme.inference.rules.topics import OwnCountsOut
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.models.own_words import OwnWordsDILN, OwnWordsHDP, OwnWordsPRME, OwnWordsShapePRME, RepeatedWords
from pyro_prme.models.simulation import simulate_corpus

C, D = 1.7, 0.35
T = torch.tensor


def partitions(items):
    """All ways to deal items out to tables."""
    if not items:
        yield []
        return
    first, *rest = items
    for found in partitions(rest):
        yield [[first], *found]
        for i, table in enumerate(found):
            yield [*found[:i], [first, *table], *found[i + 1 :]]


def probability_of_seating(tables, c=C, d=D):
    """Of customers who come in the order of their numbers, by the restaurant's own rule, one after the other."""
    at = {customer: i for i, table in enumerate(tables) for customer in table}
    sizes, total = {}, 1.0
    for n, customer in enumerate(sorted(at)):
        table = at[customer]
        weight = sizes[table] - d if table in sizes else c + d * len(sizes)
        total *= weight / (n + c)
        sizes[table] = sizes.get(table, 0) + 1
    return total


def seated(sizes, tables=None, c=C, d=D):
    """The formula's log probability of words of these sizes, one document."""
    count = torch.tensor(sizes, dtype=torch.float64)
    tables = torch.ones_like(count) if tables is None else torch.tensor(tables, dtype=torch.float64)
    before, tables_before = count.cumsum(0) - count, tables.cumsum(0) - tables
    return float(log_seating(count, tables, before, tables_before, c, d).sum())


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_probability_of_a_seating_is_that_of_the_restaurant(size):
    total = 0.0
    for tables in partitions(list(range(size))):
        for order in itertools.islice(itertools.permutations(tables), 6):
            assert math.exp(seated([len(table) for table in order])) == pytest.approx(probability_of_seating(tables))
        total += math.exp(seated([len(table) for table in tables]))
    assert total == pytest.approx(1)


def test_a_word_with_several_tables_has_all_but_one_customer_of_each_but_the_first():
    tables = [[0, 1, 2, 3], [4], [5], [6, 7]]  # a word of 6 tokens at 3 tables, and one of 2 at 1
    assert math.exp(seated([6, 2], [3, 1])) == pytest.approx(probability_of_seating(tables))
    assert seated([6, 0, 2], [3, 0, 1]) == pytest.approx(seated([6, 2], [3, 1]))


def test_what_comes_next_is_enumerated_where_each_word_has_one_table():
    """p(next | tokens so far) over all seatings of the next token, the tokens so far having one table a word."""
    base, counts = np.array([0.5, 0.3, 0.15, 0.05]), np.array([3, 0, 1, 2])
    tables, start = [], 0
    for n in counts[counts > 0]:
        tables.append(list(range(start, start + n)))
        start += n
    words = np.flatnonzero(counts)
    so_far = probability_of_seating(tables)
    by_hand = np.zeros(4)
    for i, word in enumerate(words):  # it sits down at a table, and is its word
        joined = [[*table, start] if j == i else table for j, table in enumerate(tables)]
        by_hand[word] += probability_of_seating(joined) / so_far
    by_hand += base * probability_of_seating([*tables, [start]]) / so_far  # or at a new one, whose word is any
    p = next_word(counts, counts > 0, counts.sum(), 3, base, C, D)
    np.testing.assert_allclose(p, by_hand)
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize("growth", [0.0, 0.4, 0.75, 1.0])
def test_what_comes_next_sums_to_one(growth):
    rng = np.random.default_rng(0)
    counts, base = rng.poisson(1.5, 30), rng.dirichlet(np.ones(30))
    tables = tables_of(torch.as_tensor(counts, dtype=torch.float64), growth).numpy()
    p = next_word(counts, tables, counts.sum(), tables.sum(), base, 12.0, 0.7)
    assert p.sum() == pytest.approx(1)
    assert (p > 0).all()


def test_tables_lie_between_presence_and_counts():
    n = torch.arange(40.0)
    assert torch.equal(tables_of(n, 0.0), n.clamp(max=1))
    assert torch.equal(tables_of(n, 1.0), n)
    found = tables_of(n, 0.5)
    assert found[:8].tolist() == [0, 1, 1, 2, 2, 2, 2, 3]
    assert bool((found.diff() >= 0).all() and (found <= n).all())


def test_each_token_is_predicted_from_all_others_of_its_document():
    document, times = T([0, 0, 0, 2, 2]), T([3.0, 1.0, 5.0, 2.0, 1.0], dtype=torch.float64)
    base = T([0.2, 0.1, 0.05, 0.3, 0.01], dtype=torch.float64)
    tables = partial(tables_of, growth=0.75)
    law = RepeatedWords(document, tables(times), 4.0, 0.6)
    found = law.log_left_out(times, base.log(), tables((times - 1).clamp(min=0)))
    for entry in range(5):
        rest = times.clone()
        rest[entry] -= 1
        own = document == document[entry]
        t = tables(rest)
        p = next_word(rest[entry], t[entry], rest[own].sum(), t[own].sum(), base[entry], 4.0, 0.6)
        assert float(found[entry]) == pytest.approx(float(times[entry] * p.log()))


def test_the_density_reads_each_document_on_its_own():
    document = T([0, 0, 1, 3, 3, 3])
    times, tables = T([2.0, 3.0, 4.0, 1.0, 1.0, 6.0]).double(), T([1.0, 2.0, 1.0, 1.0, 1.0, 3.0]).double()
    found = RepeatedWords(document, tables, C, D).log_prob(times)
    for n in (0, 1, 3):
        own = document == n
        expected = seated(times[own].tolist(), tables[own].tolist())
        assert float(found[own].sum()) == pytest.approx(expected)


def test_draws_have_the_tables_of_the_restaurant():
    torch.manual_seed(0)
    document = torch.arange(3000).repeat_interleave(3)
    sizes = RepeatedWords(document, None, C, D).sample().reshape(-1, 3)
    assert bool((sizes.sum(1) == 3).all())
    found = {tuple(s): n / 3000 for s, n in zip(*np.unique(sizes.numpy(), axis=0, return_counts=True), strict=True)}
    one, two = (1 - D) / (1 + C), (C + D) / (1 + C)
    expected = {
        (3, 0, 0): one * (2 - D) / (2 + C),
        (2, 1, 0): one * (C + D) / (2 + C) + two * (1 - D) / (2 + C),
        (1, 2, 0): two * (1 - D) / (2 + C),
        (1, 1, 1): two * (C + 2 * D) / (2 + C),
    }
    for size, p in expected.items():
        assert found[size] == pytest.approx(p, abs=4 * math.sqrt(p / 3000))


def test_counting_has_an_entry_for_each_different_word():
    batch = Batch.from_tokens([[3, 1, 3, 3], [], [0, 0]])
    found = batch.counting(partial(tables_of, growth=0.0))
    assert (found.word.tolist(), found.times.tolist(), found.count.tolist()) == ([1, 3, 0], [1, 3, 2], [1, 1, 1])
    assert (found.indptr.tolist(), found.length.tolist(), found.document.tolist()) == (
        [0, 2, 2, 3],
        [2, 0, 1],
        [0, 0, 2],
    )
    assert found.words[found.local_word].tolist() == [1, 3, 0]
    assert found.part(1, 3).times.tolist() == [2]


WORDS = tuple(f"w{d:02d}" for d in range(20))


def documents(repeat=True, num=60):
    """Two topics out of four in each document; a word that occurs is repeated."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(4), np.full(5, 0.2))
    rows = [rng.multinomial(8, topics[rng.choice(4, 2, replace=False)].mean(0)) for _ in range(num)]
    rows = [row * rng.integers(1, 5, 20) if repeat else np.minimum(row, 1) for row in rows]
    return Corpus(np.stack(rows), WORDS)


def fitted(cls, rule, epochs=3, **numbers):
    guide = PRMEGuide(cls(6, 20, 60, **numbers), topics=rule)
    trainer = prme.Trainer(guide, Counts(documents().counts), prme.TrainOptions(batch_size=20))
    trainer.fit(epochs)
    return trainer


@pytest.mark.parametrize("cls", [OwnWordsHDP, OwnWordsDILN, OwnWordsPRME, OwnWordsShapePRME])
def test_topics_hold_the_tables_and_both_numbers_are_learned(cls):
    trainer = fitted(cls, OwnCountsOut("completion"))
    tables = tables_of(T(documents().counts.data), 0.75).sum()
    assert float((trainer.guide.topics.gamma - 0.2).sum()) == pytest.approx(float(tables), rel=1e-5)
    plan = trainer.guide.plan()
    for name in ("own_discount", "own_concentration"):
        assert plan[name].update == "point mass, moved by the completion of documents"
    before = cls(6, 20, 60)
    for name in ("own_discount", "own_concentration"):
        assert abs(float(trainer.guide.posterior(name).mean) - getattr(before, name)) > 1e-3


def test_the_score_is_the_log_probability_of_each_token_given_all_others():
    trainer = fitted(OwnWordsHDP, OwnCountsOut("completion"))
    rows = np.arange(3)
    run = trainer.guide.run(*trainer.data.batch(rows))
    terms, found = run.terms(), run.local["Z"]
    values = {name: float(run.values()[name].detach()) for name in ("own_discount", "own_concentration")}
    p = found.step.log_normalizer.exp().double()
    total = 0.0
    for n in rows:
        own = found.batch.document == int(n)
        times, base = found.batch.times[own], p[own]
        for e in range(len(times)):
            rest = times.clone()
            rest[e] -= 1
            t = tables_of(rest, 0.75)
            given = rest.sum(), t.sum(), base[e], values["own_concentration"], values["own_discount"]
            total += float(times[e] * next_word(rest[e], t[e], *given).log())
    assert float((terms["R"] + terms["X"]).detach()) == pytest.approx(60 / 3 * total, rel=1e-5)


def test_the_numbers_move_by_the_completion_of_hidden_tokens():
    trainer = fitted(OwnWordsHDP, OwnCountsOut("completion"))
    guide, (batch,) = trainer.guide, trainer.data.batch(np.arange(30))
    run = guide.run(batch)  # of documents that the topics are not known to hold
    torch.manual_seed(1)
    found = guide.claim("own_discount").objective(run)["R"]
    torch.manual_seed(1)
    prepared = guide.model.prepare(batch)
    seen = torch.binomial(prepared.times, torch.rand(30)[prepared.document])
    values = {name: float(run.values()[name].detach()) for name in ("own_discount", "own_concentration")}
    shown = np.zeros((30, 20))
    shown[prepared.document, prepared.word] = seen
    p = prme.Posterior(guide).proportions(shown).values @ prme.Posterior(guide).topics().values
    total = 0.0
    for n, d, s, times in zip(prepared.document, prepared.word, seen, prepared.times, strict=True):
        t = tables_of(torch.as_tensor(shown[n]), 0.75)
        given = shown[n].sum(), float(t.sum()), p[n, d], values["own_concentration"], values["own_discount"]
        total += float((times - s) * np.log(next_word(float(s), float(t[d]), *given)))
    assert float(found.detach()) == pytest.approx(60 / 30 * total, rel=0.01)
    points = [claim.free for claim in guide.claims if set(claim.sites) & values.keys()]
    assert all(float(slope.abs()) > 0 for slope in torch.autograd.grad(found, points))


def test_with_dirichlet_topics_the_layer_learns_by_its_own_likelihood():
    trainer = fitted(OwnWordsHDP, None, growth=0.0)
    run = trainer.guide.run(*trainer.data.batch(np.arange(60)))
    counts = sparse.csr_matrix(documents().counts)
    values = [float(run.values()[name].detach()) for name in ("own_concentration", "own_discount")]
    by_hand = sum(seated(counts[n].data.tolist(), None, *values) for n in range(60))
    assert float(run.terms()["R"].detach()) == pytest.approx(by_hand, rel=1e-5)
    assert trainer.guide.plan()["own_discount"].update == "point mass on the site's own scale"


@pytest.mark.slow
def test_discount_and_concentration_are_recovered():
    """From documents of a vocabulary in which two tables hardly ever have the same word."""
    model = OwnWordsHDP(2, 3000, 300, gamma0=5.0, own_discount=0.5, own_concentration=8.0)
    counts, _ = simulate_corpus(model, [60] * 300)
    guide = PRMEGuide(OwnWordsHDP(2, 3000, 300, gamma0=5.0, growth=0.0))
    prme.Trainer(guide, Counts(counts), prme.TrainOptions(batch_size=100), start="random").fit(60)
    assert float(guide.posterior("own_discount").mean) == pytest.approx(0.5, abs=0.04)
    assert float(guide.posterior("own_concentration").mean) == pytest.approx(8.0, abs=1.2)


def test_documents_that_repeat_nothing_have_the_topics_of_the_plain_model():
    found = []
    for cls, numbers in ((prme.HDP, {}), (OwnWordsHDP, {"own_discount": 0.5, "own_concentration": 9.0})):
        guide = PRMEGuide(cls(6, 20, 60, **numbers), topics=OwnCountsOut())
        prme.Trainer(guide, Counts(documents(repeat=False).counts), prme.TrainOptions(batch_size=20)).fit(4)
        found.append(guide.topics.gamma)
    assert torch.equal(*found)


def test_scores_by_kind_of_word_by_hand():
    split = documents().split_tokens(0.5, seed=1)
    observed, held = split.observed.counts.toarray(), split.held_out.counts.toarray()
    rng = np.random.default_rng(0)
    pi, theta = rng.dirichlet(np.ones(3), len(observed)), rng.dirichlet(np.ones(20), 3)
    entries = sparse.csr_matrix(split.observed.counts)
    tables = np.minimum(observed, 1)
    p = pi @ theta
    N, T_ = observed.sum(1, keepdims=True), tables.sum(1, keepdims=True)
    q = (observed - 0.6 * tables + (5 + 0.6 * T_) * p) / (N + 5)
    layers = (None, Layer(np.ones(entries.nnz), 5.0, 0.6))
    for probability, layer in zip((p, q), layers, strict=True):
        found = token_perplexities(pi, theta, split, layer)
        for kind, where in (("all", observed >= 0), ("repeated", observed > 0), ("new", observed == 0)):
            mean = (held * np.log(probability))[where].sum() / held[where].sum()
            assert getattr(found, kind) == pytest.approx(np.exp(-mean))
        assert found.repeated_share == pytest.approx(held[observed > 0].sum() / held.sum())


def test_the_estimator_scores_by_topics_alone_and_by_the_layer():
    corpus = documents()
    plain, own = (
        prme.PRMETopicModel(5, own_words=wish, max_iter=15, random_state=0).fit(corpus).posterior_
        for wish in (False, True)
    )
    split = corpus.split_tokens(0.5, seed=0)
    assert plain.token_perplexities(split).all == pytest.approx(plain.perplexity(split))
    found = own.token_perplexities(split)
    p = own.proportions(split.observed).values @ own.topics().values
    assert own.perplexity(split) == pytest.approx(
        np.exp(-(split.held_out.counts.toarray() * np.log(p)).sum() / split.held_out.counts.sum())
    )
    assert found.all < plain.perplexity(split)
    assert found.repeated < found.all < found.new
    assert own.model.beta == 10
    assert prme.PRMETopicModel(5, own_words=True, beta=2.0)._settings_of(prme.build)["beta"] == 2


def test_numbers_may_be_given_and_are_refused_out_of_range():
    model = OwnWordsHDP(3, 20, 60, own_discount=0.3, own_concentration=dist.Gamma(T(2.0), T(1.0)))
    assert set(model.priors) == {"own_concentration"}
    for wrong, sentence in (
        ({"own_discount": 1.0}, "own_discount is 1.0: it must be a finite number above 0 and below 1"),
        ({"own_concentration": 0.0}, "own_concentration is 0.0"),
        ({"growth": 1.5}, "growth is 1.5: it must be a finite number at least 0 and at most 1|growth is 1.5"),
    ):
        with pytest.raises(ValueError, match=sentence):
            OwnWordsHDP(3, 20, 60, **wrong)
