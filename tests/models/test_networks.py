from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
import torch
from scipy import sparse

from pyro_prme import (
    BagOfWordsEncoder,
    Batch,
    ClosedForm_ELBO,
    Decoder,
    TopicEncoder,
    build,
    decoder_of_depth,
    encoder_of_depth,
)
from pyro_prme.models.networks.encoders import hide_words
from pyro_prme.models.networks.layers import BatchNorm, LinearDecoder, batch_mean

DESIGNS = [(False, False), (True, False), (False, True), (True, True)]  # (batch_norm, residual)


def linear_layers(module):
    return [m for m in module.modules() if isinstance(m, torch.nn.Linear | torch.nn.Embedding)]


@pytest.mark.parametrize("depth", [2, 4, 6, 8])
@pytest.mark.parametrize(("batch_norm", "residual"), DESIGNS)
def test_the_designs_of_table_3(depth, batch_norm, residual, tokens):
    design = {"batch_norm": batch_norm, "residual": residual}
    if residual and depth == 2:
        with pytest.raises(ValueError, match="depth 2 has no residual form"):
            encoder_of_depth(depth, 10, 3, **design)
        with pytest.raises(ValueError, match="depth 2 has no residual form"):
            decoder_of_depth(depth, 5, 3, 2, **design)
        return
    encoder = encoder_of_depth(depth, 10, 3, width=7, **design)
    decoder = decoder_of_depth(depth, 5, 3, 2, width=6, **design)
    shortcuts = sum(isinstance(m, torch.nn.Linear) for m in [*encoder.stack.shortcuts, *decoder.stack.shortcuts])
    assert shortcuts == 0, "equal widths need no projection"
    # the decoder's first layer is kept as two, and the paper does not count its last
    assert len(linear_layers(encoder)) + len(linear_layers(decoder)) - 2 == depth
    assert any(isinstance(m, BatchNorm) for m in [*encoder.modules(), *decoder.modules()]) == batch_norm
    h = encoder(tokens)
    mean, variance = decoder(h, torch.randn(5, 2))
    assert h.shape == (4, 3)
    assert mean.shape == variance.shape == (4, 5)
    (mean.square().sum() + variance.sum()).backward()
    assert all(p.grad is not None for p in [*encoder.parameters(), *decoder.parameters()])


def test_other_depths_are_refused():
    with pytest.raises(ValueError, match="depth is 3"):
        encoder_of_depth(3, 10, 3)


def test_the_first_layer_equals_the_one_on_concatenated_inputs():
    decoder = Decoder(5, 3, 2, hidden=(6,), batch_norm=False)
    h, ell = torch.randn(4, 3), torch.randn(5, 2)
    rows = torch.cat([h.unsqueeze(1).expand(4, 5, 3), ell.expand(4, 5, 2)], -1)
    weight = torch.cat([decoder.from_h.weight, decoder.from_ell.weight], -1)
    out = decoder.head((rows @ weight.T + decoder.from_h.bias).relu())[..., 0]
    torch.testing.assert_close(decoder.topic_centred(h, ell)[0], out - out.mean(-1, keepdim=True))


def test_f_is_centred_over_topics_then_over_documents_then_truncated():
    decoder = Decoder(5, 3, 2, batch_norm=False, max_mean=0.5)
    h, ell = torch.randn(40, 3) * 9, torch.randn(5, 2) * 9
    mean, variance = decoder(h, ell)
    assert mean.abs().max() < 0.5
    assert 0 < variance.min() < variance.max() < 1
    raw = (mean / 0.5).atanh() * 0.5
    torch.testing.assert_close(raw.mean(0), torch.zeros(5), atol=1e-8, rtol=0)
    torch.testing.assert_close(raw.mean(1), torch.zeros(40), atol=1e-8, rtol=0)
    with pytest.raises(ValueError, match="max_mean is 0"):
        Decoder(5, 3, 2, max_mean=0.0)


def test_the_linear_decoder_is_linear_in_each_embedding_before_it_is_truncated():
    decoder = LinearDecoder(5, 3, 2, max_mean=0.5)
    h, other, ell = torch.randn(6, 3), torch.randn(6, 3), torch.randn(5, 2)
    first, second, between = (decoder.topic_centred(x, ell)[0] for x in (h, other, 0.3 * h + 0.7 * other))
    torch.testing.assert_close(between, 0.3 * first + 0.7 * second)
    torch.testing.assert_close(decoder.topic_centred(h, 2 * ell)[0], 2 * first)
    assert torch.linalg.matrix_rank(first) == 2, "as many directions as ell has"
    assert decoder(h * 100, ell)[0].abs().max() <= 0.5


@pytest.mark.parametrize("hidden", [(), (7,)])
def test_build_takes_a_decoder_without_hidden_layers_as_linear(hidden, tokens):
    model, guide = build(5, 10, 4, decoder_hidden=hidden, embedding_dim=3, form="scale")
    assert isinstance(model.decoder, Decoder if hidden else LinearDecoder)
    ClosedForm_ELBO()(model, guide)(tokens).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.decoder.parameters())


def test_bounded_functions_keep_the_row_sums_finite_as_topics_grow():
    """E sum_k Z_nk = sum_k beta p_k E exp(f_nk) is at most beta exp(max_mean + max_variance / 2)."""
    for num_topics in (100, 10_000):
        decoder = Decoder(num_topics, 3, 2, max_mean=2.0).train()
        mean, variance = decoder(torch.randn(2, 3) * 100, torch.randn(num_topics, 2) * 100)
        weights = torch.full((num_topics,), 1 / num_topics)
        assert (weights * (mean + variance / 2).exp()).sum(-1).max() <= torch.tensor(2.5).exp()


@pytest.mark.parametrize("kind", ["words", "topics"])
def test_a_document_has_the_same_answer_alone_in_a_batch_and_in_any_order(kind, tokens):
    theta = torch.rand(10, 5)
    encoder = BagOfWordsEncoder(10, 3, (7,)) if kind == "words" else TopicEncoder(5, 3, (7,))
    decoder = Decoder(5, 3, 2)
    ell = torch.randn(5, 2)

    def answer(batch):
        h = encoder(batch, theta[batch.words] if kind == "topics" else None)
        return torch.cat([h, *decoder(h, ell)], -1)

    for _ in range(3):
        answer(tokens)  # running statistics move
    encoder.eval()
    decoder.eval()
    documents = [[0, 1, 2, 2, 5], [3, 4, 4], [], [7, 8, 9, 9, 9, 1, 2]]
    together = answer(tokens)
    torch.testing.assert_close(together, answer(tokens), rtol=0, atol=0)
    for n in (3, 0, 2, 1):
        torch.testing.assert_close(answer(Batch.from_tokens([documents[n]]))[0], together[n], rtol=1e-12, atol=1e-12)
    turned = answer(Batch.from_tokens(documents[::-1]))
    torch.testing.assert_close(turned.flip(0), together, rtol=1e-12, atol=1e-12)


def test_a_single_document_trains():
    encoder = TopicEncoder(5, 3, (7,))
    batch = Batch.from_tokens([[0, 1]])
    assert torch.isfinite(encoder(batch, torch.rand(2, 5))).all()


def test_word_dropout_hides_tokens_in_training_only(tokens):
    many = Batch.from_csr(sparse.csr_matrix(np.full((4000, 2), 3)))
    kept = hide_words(many, 0.5).reshape(4000, 2).sum(1) / 6
    # the hidden share is uniform on (0, 1/2), the number hidden binomial given it
    assert abs(kept.mean() - 0.75) < 4 * kept.std() / 4000**0.5
    variance = 1 / 48 + (0.75 - (0.75**2 + 1 / 48)) / 6
    assert kept.var() == pytest.approx(variance, rel=0.1)
    encoder = BagOfWordsEncoder(10, 3, batch_norm=False)
    assert not torch.equal(encoder(tokens), encoder(tokens))
    encoder.eval()
    assert torch.equal(encoder(tokens), encoder(tokens))
    with pytest.raises(ValueError, match=r"word_dropout is 1\.5"):
        BagOfWordsEncoder(10, 3, word_dropout=1.5)


def test_the_variance_never_reaches_zero(float32):
    assert Decoder(5, 3, 2).bound_variance(torch.tensor(-200.0)) >= 0.9e-4


def test_residual_projects_where_widths_differ():
    encoder = BagOfWordsEncoder(10, 3, (7, 5, 5), residual=True)
    assert [type(s) for s in encoder.stack.shortcuts] == [torch.nn.Linear, torch.nn.Identity]


@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_of_the_word_table_is_that_of_the_dense_product(sparse, tokens):
    encoder = BagOfWordsEncoder(12, 3, (), word_dropout=0.0)  # words 10 and 11 are in no document
    encoder.words.sparse = sparse
    table = encoder.words.weight.detach().clone().requires_grad_()
    share = torch.zeros(tokens.size, 12).index_put_((tokens.document, tokens.word), tokens.count, accumulate=True)
    share = share / tokens.length.clamp(min=1).unsqueeze(-1)
    torch.testing.assert_close(encoder(tokens), share @ table + encoder.bias)
    weight = torch.randn(tokens.size, 3)
    (encoder(tokens) * weight).sum().backward()
    (share @ table * weight).sum().backward()
    gradient = encoder.words.weight.grad
    assert gradient.is_sparse == sparse
    torch.testing.assert_close(gradient.to_dense() if sparse else gradient, table.grad)
    assert not sparse or gradient._values().shape == (10 - 1, 3)  # word 6 is in none either


def test_a_mean_over_a_larger_batch_holds_within_its_block_and_thread_alone():
    decoder = LinearDecoder(4, 3, 2).train()
    h, ell = torch.randn(6, 3), torch.randn(4, 2)

    def moved() -> torch.Tensor:  # what the running mean takes up of a batch
        before = decoder.running_mean.clone()
        decoder(h, ell)
        return (decoder.running_mean - (1 - decoder.momentum) * before) / decoder.momentum

    own, given = moved(), torch.arange(4.0)
    with ThreadPoolExecutor(1) as other, batch_mean(lambda rows: given):
        torch.testing.assert_close(moved(), given)
        torch.testing.assert_close(other.submit(moved).result(), own)
    torch.testing.assert_close(moved(), own)
    with suppress(ZeroDivisionError), batch_mean(lambda rows: given):
        1 / 0  # noqa: B018
    torch.testing.assert_close(moved(), own)


def test_recentring_weighs_batches_by_their_documents():
    model, _ = build(4, 6, 9, embedding_dim=3)
    h, ell = torch.randn(9, 3), torch.randn(4, 3)
    with torch.no_grad():
        model.recentre([h], ell)
        whole = model.decoder.running_mean.clone()
        model.recentre([h[:2], h[2:]], ell)
    assert float(whole.abs().max()) > 0
    torch.testing.assert_close(model.decoder.running_mean, whole)
