"""The weights' products put off: the gradients of plain autograd, no work twice, memory freed in between."""

import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.flop_counter import FlopCounterMode

from playbook.models.batch import make_batch
from playbook.models.put_off import Products, put_off
from playbook.models.transformer import Transformer, loss_of, seed_weights
from tests.shapes import TINY

BIASED = replace(TINY, name="biased", qkv_bias=True, output_bias=True, mlp_bias=True, qk_norm=True)


def made(spec=TINY, dtype=torch.float64):
    model = Transformer(spec)
    seed_weights(model, 3)
    return model.to(dtype)


def batch(spec=TINY, sequences=2):
    return make_batch(spec, sequences=sequences, sequence=8, seed=1, device=torch.device("cpu")).cut(1)[0]


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def backward(model, spec=TINY):
    tokens, labels = batch(spec)
    loss_of(model(tokens), labels).backward()


def assert_equal_gradients(model, plain):
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(gradients(model)[name], gradient, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("spec", [TINY, BIASED], ids=lambda spec: spec.name)
def test_at_once_it_is_the_backward_of_autograd(spec):
    plain, apart = made(spec), made(spec)
    put_off(apart)
    for model in (plain, apart):
        backward(model, spec)
        backward(model, spec)
    assert_equal_gradients(apart, plain)


@pytest.mark.parametrize("spec", [TINY, BIASED], ids=lambda spec: spec.name)
def test_put_off_the_weights_wait_and_then_get_the_same(spec):
    plain, apart = made(spec), made(spec)
    later, waiting = put_off(apart), []
    for _ in range(2):
        backward(plain, spec)
        with later.putting_off() as products:
            backward(apart, spec)
        waiting.append(products)
    assert set(gradients(apart).values()) == {None}
    for products in waiting:
        products.compute()
    assert_equal_gradients(apart, plain)


def test_a_middle_stage_gives_its_inputs_gradient_before_the_weights_have_theirs():
    plain, apart = (Transformer(replace(TINY, layers=4), [1, 2]) for _ in range(2))
    later = put_off(apart)
    found = []
    for model in (plain, apart):
        seed_weights(model, 5)
        torch.manual_seed(0)
        x_BSD, gradient_BSD = torch.randn(2, 8, 24, requires_grad=True), torch.randn(2, 8, 24)
        with later.putting_off():
            model(x_BSD).backward(gradient_BSD)
        found.append(x_BSD.grad)
    assert apart.layers["1"].mlp.up_proj.weight.grad is None
    torch.testing.assert_close(found[1], found[0])


def test_with_recompute_the_parts_are_the_same_too():
    plain, apart = made(), made()
    later = put_off(apart)
    for model in (plain, apart):
        for name, block in list(model.layers.items()):
            model.layers[name] = checkpoint_wrapper(block)
    backward(plain)
    with later.putting_off() as products:
        backward(apart)
    products.compute()
    for (_, left), (_, right) in zip(apart.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-13, atol=1e-15)


def flops(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def test_no_product_is_computed_twice():
    model = made()
    later = put_off(model)
    tokens, labels = batch()
    whole_loss, loss = (loss_of(model(tokens), labels) for _ in range(2))
    whole = flops(whole_loss.backward)
    with later.putting_off() as products:
        first = flops(loss.backward)
    # Products of the weights: 2 x 16 tokens x (2 layers x 5 472 + head 3 168) weights.
    weights = flops(products.compute)
    assert weights == 2 * 16 * (2 * 5_472 + 3_168)
    assert first + weights == whole


def test_what_only_the_inputs_gradient_needs_is_freed_before_the_weights_products():
    model = made()
    later = put_off(model)
    held = {}

    def remember(name):
        return lambda _module, _args, output: held.update({name: weakref.ref(output.untyped_storage())})

    for name in ("mlp.gate_proj", "self_attn.q_proj", "self_attn.k_proj"):
        model.layers["0"].get_submodule(name).register_forward_hook(remember(name))
    model.layers["0"].mlp.down_proj.register_forward_pre_hook(
        lambda _module, args: held.update(down=weakref.ref(args[0].untyped_storage()))
    )
    tokens, labels = batch()
    loss = loss_of(model(tokens), labels)
    assert held["mlp.gate_proj"]() is not None
    with later.putting_off() as products:
        loss.backward()
    del loss
    assert [name for name, storage in held.items() if storage() is not None] == ["down"]
    products.compute()
    assert held["down"]() is None


def test_products_leave_one_by_one():
    done, products = [], Products()
    products.extend([lambda: done.append(len(products))] * 3)
    products.compute()
    assert done == [2, 1, 0]


def test_twice_is_once_and_unwanted_is_never():
    model, plain = made(), made()
    assert put_off(model) is put_off(model)
    put_off(plain, wanted=False)
    assert "forward" not in vars(plain.lm_head)


def test_a_layer_of_another_kind_is_refused_by_name():
    with pytest.raises(TypeError, match="1 is a LayerNorm.*use Linear, RMSNorm, Embedding, or a schedule"):
        put_off(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
