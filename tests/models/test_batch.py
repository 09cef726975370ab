import pytest
import torch

from playbook.models.batch import make_batch
from playbook.spec import model

TOY = model("toy-15m")


def batch(seed=0, sequences=8):
    return make_batch(TOY, sequences=sequences, sequence=5, seed=seed, device=torch.device("cpu"))


def test_labels_are_the_tokens_one_further():
    made = batch()
    assert made.tokens.shape == made.labels.shape == (8, 5)
    assert torch.equal(made.tokens[:, 1:], made.labels[:, :-1])


def test_the_seed_decides_the_tokens():
    assert torch.equal(batch(seed=3).tokens, batch(seed=3).tokens)
    assert not torch.equal(batch(seed=3).tokens, batch(seed=4).tokens)


def test_the_ranks_shares_make_the_batch():
    shares = [batch().share(rank, 4).tokens for rank in range(4)]
    assert [share.shape[0] for share in shares] == [2, 2, 2, 2]
    assert torch.equal(torch.cat(shares), batch().tokens)


@pytest.mark.parametrize("microbatches", [1, 2, 4])
def test_micro_batches_make_the_share(microbatches):
    cut = batch().cut(microbatches)
    assert len(cut) == microbatches
    assert torch.equal(torch.cat([tokens for tokens, _ in cut]), batch().tokens)
    assert torch.equal(torch.cat([labels for _, labels in cut]), batch().labels)
