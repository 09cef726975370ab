import pytest
import torch

from playbook.models.master_adamw import MASTER, MasterAdamW

KERNELS = ({"fused": True}, {"foreach": True, "fused": False}, {"foreach": False, "fused": False})


def weights(dtype=torch.bfloat16):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape).to(torch.bfloat16).to(dtype)) for shape in ((4, 3), (5,))]


def give_gradients(parameters, step):
    for index, parameter in enumerate(parameters):
        torch.manual_seed(10 * step + index)
        parameter.grad = torch.randn(parameter.shape).to(torch.bfloat16).to(parameter.dtype)


@pytest.mark.parametrize("kernel", KERNELS)
def test_masters_are_what_adamw_in_fp32_gives_and_weights_are_masters_rounded(kernel):
    rounded, wide = weights(), weights(torch.float32)
    ours = MasterAdamW(rounded, lr=1e-2, **kernel)
    theirs = torch.optim.AdamW(wide, lr=1e-2, **kernel)
    for step in range(3):
        give_gradients(rounded, step)
        give_gradients(wide, step)
        ours.step()
        theirs.step()
    for narrow, full in zip(rounded, wide, strict=True):
        torch.testing.assert_close(ours.state[narrow][MASTER], full.detach(), rtol=0, atol=0)
        torch.testing.assert_close(narrow.detach(), full.detach().to(torch.bfloat16), rtol=0, atol=0)


def test_steps_too_small_for_bf16_add_up_in_the_master():
    # Below 1, BF16 has steps of 2^-8; where gradients stay the same, AdamW's updates are lr each.
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = MasterAdamW([weight], lr=1e-3, weight_decay=0.0)
    seen = []
    for _ in range(4):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        seen.append(weight[0].item())
    assert seen == [1.0, 0.99609375, 0.99609375, 0.99609375]
    assert optimizer.state[weight][MASTER][0].item() == pytest.approx(1 - 4e-3, abs=1e-6)


def test_state_is_a_master_and_two_moments_in_fp32_from_the_start():
    (table, _) = parameters = weights()
    state = MasterAdamW(parameters).state[table]
    assert {name: (value.dtype, tuple(value.shape)) for name, value in state.items()} == {
        "master": (torch.float32, (4, 3)),
        "exp_avg": (torch.float32, (4, 3)),
        "exp_avg_sq": (torch.float32, (4, 3)),
        "step": (torch.float32, ()),
    }


def test_a_parameter_without_gradient_stays():
    first, second = weights()
    second.grad = torch.ones_like(second)
    before = first.detach().clone()
    MasterAdamW([{"params": [first]}, {"params": [second], "lr": 1.0}]).step()
    assert torch.equal(first, before)
    assert not torch.equal(second, weights()[1])


def test_masters_of_wide_parameters_are_copies():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = MasterAdamW([parameter])
    assert optimizer.state[parameter][MASTER].data_ptr() != parameter.data_ptr()


def test_a_closure_computes_the_gradients_and_its_loss_comes_back():
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))

    def closure():
        loss = (3 * weight).sum()
        loss.backward()
        return loss.item()

    assert MasterAdamW([weight]).step(closure) == 6.0
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]
