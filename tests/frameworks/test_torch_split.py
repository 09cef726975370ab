"""What PyTorch's own split backward keeps, against the real one on real tensors."""

import weakref
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from playbook.models.checkpointed import checkpoint  # noqa: E402
from playbook.models.transformer import Transformer, loss_of  # noqa: E402
from playbook.predict.stages import context, lay  # noqa: E402
from playbook.program.order import Turn  # noqa: E402
from playbook.program.summary import summarise  # noqa: E402
from tests.shapes import SMALL, scenario_of  # noqa: E402

DEEP = replace(SMALL, layers=6)
SEQUENCE, HIDDEN, HEAD_DIM = 32, 64, 16


class Alive(TorchDispatchMode):
    """Counts the bytes of storages that operations made and that are still there."""

    def __init__(self):
        super().__init__()
        self.seen = {}
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor)
        self.most = max(self.most, self.bytes)
        return result

    def note(self, tensor):
        storage = tensor.untyped_storage()
        self.seen[storage._cdata] = (weakref.ref(storage), storage.nbytes())

    @property
    def bytes(self):
        return sum(size for ref, size in self.seen.values() if ref() is not None)


@pytest.fixture
def measured():
    """Bytes after F, after I, and after W of the middle one of three stages, weights left out."""
    torch.manual_seed(0)
    stage = Transformer(DEEP, layers=[2, 3])
    weights = list(stage.parameters())
    alive = Alive()
    given = torch.randn(1, SEQUENCE, HIDDEN, requires_grad=True)
    returned = torch.randn(1, SEQUENCE, HIDDEN)
    for tensor in (given, returned):
        alive.note(tensor)
    own = {weight.untyped_storage()._cdata for weight in weights}
    levels = []

    def level():
        for key in own:
            alive.seen.pop(key, None)
        levels.append(alive.bytes)

    with alive:
        outputs = (stage(given),)
        level()
        state = ([given], stage_backward_input(list(outputs), [returned], [given], iter(weights))[1], outputs)
        level()
        stage_backward_weight(iter(weights), state[1])
        del state, outputs, given, returned, tensor
        level()
    return levels


def test_as_much_is_alive_between_the_parts_as_in_pytorch(measured):
    s = scenario_of("torch", DEEP, pp=3, schedule="zb-h1", recipe="fp32", kernels="cpu")
    stage = lay(s, 1, context(s))
    ahead, passing = (summarise(stage, letter).change.sum() for letter in "FI")
    # Input and gradient of the output lie in rooms that are there before; the latter is kept until W.
    given = given_back = 4 * SEQUENCE * HIDDEN
    assert measured[0] == ahead + given + given_back
    assert measured[1] == ahead + passing + given + given_back


def test_after_w_only_gradients_of_weights_are_left(measured):
    layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64
    assert measured[2] == 4 * 2 * layer


def test_each_weight_of_a_checkpoint_adds_a_copy_of_what_its_layer_saves():
    torch.manual_seed(0)
    stage = Transformer(DEEP, layers=[2, 3])
    checkpoint([stage], "full")
    weights, alive = list(stage.parameters()), Alive()
    own = {weight.untyped_storage()._cdata for weight in weights}
    for weight in weights:
        weight.grad = torch.zeros_like(weight)  # as from an earlier micro-batch
    given, returned = torch.randn(1, SEQUENCE, HIDDEN, requires_grad=True), torch.randn(1, SEQUENCE, HIDDEN)
    alive.note(given)
    alive.note(returned)
    with alive:
        outputs = (stage(given),)
        groups = stage_backward_input(list(outputs), [returned], [given], iter(weights))[1]
        before = alive.bytes - sum(alive.seen[key][1] for key in own & alive.seen.keys())
        alive.most = 0
        stage_backward_weight(iter(weights), groups)
    s = scenario_of("torch", DEEP, pp=3, schedule="zb-h1", recipe="fp32", kernels="cpu", recompute="full")
    stage = lay(s, 1, context(s))
    ahead, passing = (summarise(stage, letter).change.sum() for letter in "FI")
    assert before == ahead + passing + 2 * 4 * SEQUENCE * HIDDEN
    later = Turn(False, False, False, False)
    # Seen are the weights, and the sums of gradients of all but the last call, before which it peaks.
    shown = sum(2 * weight.nbytes for weight in weights) - weights[-1].nbytes
    assert alive.most == before + shown + summarise(stage, "W", later).peak


def test_what_the_loss_saved_goes_with_i():
    torch.manual_seed(0)
    stage = Transformer(DEEP, layers=[4, 5])
    weights = list(stage.parameters())
    given, labels = torch.randn(1, SEQUENCE, HIDDEN, requires_grad=True), torch.zeros(1, SEQUENCE).long()
    alive = Alive()
    alive.note(given)
    with alive:
        loss = loss_of(stage(given), labels)
        groups = stage_backward_input([loss], None, [given], iter(weights))[1]
    assert groups
    for held in (*weights, labels):
        alive.seen.pop(held.untyped_storage()._cdata, None)
    s = scenario_of("torch", DEEP, pp=3, schedule="zb-h1", recipe="fp32", kernels="cpu")
    last = lay(s, 2, context(s))
    kept = sum(summarise(last, letter).change.sum() for letter in "FI")
    # Beside the input, whose room is there before, a few single numbers are alive.
    assert alive.bytes == pytest.approx(kept + 4 * SEQUENCE * HIDDEN, abs=16)
