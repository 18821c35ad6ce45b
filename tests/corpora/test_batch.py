import numpy as np
import pytest
import torch
from scipy import sparse

from pyro_prme import HDP, Batch
from pyro_prme.inference.topic_guide import PRMEGuide


def test_entries_and_tokens_describe_the_same_documents(entries, tokens):
    torch.testing.assert_close(entries.length, tokens.length)
    assert tokens.is_tokens
    assert not entries.is_tokens
    for batch in (entries, tokens):
        assert batch.words.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]
        assert torch.equal(batch.words[batch.local_word], batch.word)


def test_head_keeps_whole_documents_that_have_words(tokens):
    assert tokens.head(2).word.tolist() == [0, 1, 2, 2, 5, 3, 4, 4]
    head = tokens.head(99)
    assert head.documents.tolist() == [0, 1, 3]
    assert head.indptr.tolist() == [0, 5, 8, 15]
    assert head.word.tolist() == tokens.word.tolist()


@pytest.mark.parametrize(
    ("count", "reason"), [(-1.0, "Count -1.0"), (0.5, "Count 0.5"), (float("nan"), "Count nan"), (float("inf"), "inf")]
)
def test_a_wrong_count_is_named_with_its_document(count, reason):
    matrix = sparse.csr_matrix(np.array([[1.0, 0.0], [2.0, 3.0]]))
    matrix.data[2] = count
    with pytest.raises(ValueError, match=f"{reason}.*document 1.*whole numbers"):
        Batch.from_csr(matrix)


def test_inconsistent_parts_are_refused():
    falls_unseen = torch.tensor([0, 2**62 + 5, -(2**63) + 5, -(2**62), 1])  # differences of neighbours are positive
    with pytest.raises(ValueError, match="must not fall"):
        Batch(torch.arange(4), falls_unseen, torch.zeros(1, dtype=torch.int64), torch.ones(1))
    with pytest.raises(ValueError, match="indptr has 2 entries"):
        Batch(torch.arange(2), torch.tensor([0, 3]), torch.zeros(3, dtype=torch.int64), torch.ones(3))
    with pytest.raises(ValueError, match="one count a word"):
        Batch(torch.arange(1), torch.tensor([0, 3]), torch.zeros(2, dtype=torch.int64), torch.ones(3))
    with pytest.raises(ValueError, match="Word id -1"):
        Batch.from_tokens([[0, -1]])
    with pytest.raises(ValueError, match="no words yet"):
        _ = Batch.to_draw([3]).words


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: HDP(3, 9, 4), "word id 9.*vocab_size=9"),
        (lambda: HDP(3, 10, 3), "document 3.*num_documents=3"),
    ],
)
def test_a_batch_of_another_corpus_is_refused_and_changes_nothing(model, reason, tokens):
    guide = PRMEGuide(model())
    with pytest.raises(ValueError, match=reason):
        guide.plan(tokens)
    assert not list(guide.state_dict())
    with pytest.raises(ValueError, match=reason):
        guide(tokens)
    assert not list(guide.state_dict())


def test_a_batch_that_shows_a_part_keeps_the_rest_and_what_was_computed_of_it(entries):
    words = entries.words
    shown = entries.showing(torch.zeros_like(entries.count))
    assert shown.words is words
    assert shown.count is entries.count
    assert entries.seen is None
    assert float(shown.seen.sum()) == 0
    with pytest.raises(ValueError, match="give one for each"):
        entries.showing(torch.zeros(1))
