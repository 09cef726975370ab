"""AdamW for BF16 weights that keeps an FP32 master copy and FP32 moments of what it is given.

PyTorch ships no such optimizer (as of 2.13): its own update the tensors they are given, with moments of the
same dtype. What is given may be whole, a shard or a distributed tensor; master and moments are laid out like
it. With BF16 gradients that is the mixed precision of ZeRO, section 3.1: 2 + 2 + 4 + 8 bytes a parameter.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim.adamw import adamw

MASTER = "master"
"""Key of the master copy in a parameter's state; everything else there is a moment, or the step's number."""

RATES = ("lr", "beta1", "beta2", "eps", "weight_decay")
"""What the update takes of a group; a wrapper such as `ZeroRedundancyOptimizer` may put more into it."""


class MasterAdamW(torch.optim.Optimizer):
    """AdamW on FP32 masters, one parameter after the other, so that one FP32 gradient exists at a time.

    Parameters
    ----------
    params
        Parameters, or groups of them.
    lr, betas, eps, weight_decay
        As in `torch.optim.AdamW`.
    kernel
        `fused` or `foreach`, as in `torch.optim.AdamW`.

    Notes
    -----
    Not for checkpoints: `load_state_dict` of torch casts states to the dtype of their parameter.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **kernel: bool,
    ) -> None:
        rates = {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, rates)
        self.kernel = kernel
        for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
            master = parameter.detach().to(torch.float32, copy=True)
            device = parameter.device if kernel.get("fused") else "cpu"  # a fused kernel reads it there
            self.state[parameter] = {
                MASTER: master,
                "exp_avg": torch.zeros_like(master),
                "exp_avg_sq": torch.zeros_like(master),
                "step": torch.tensor(0.0, dtype=torch.float32, device=device),
            }

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the masters by AdamW and round them into the parameters; return what the closure gives."""
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for group in self.param_groups:
            rates = {name: group[name] for name in RATES}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, rates)
        return loss

    def update(self, parameter: Tensor, rates: dict[str, Any]) -> None:
        """Update one parameter; its gradient is there in FP32 until this returns."""
        state = self.state[parameter]
        gradient = laid_out_like(parameter).float()
        states = [state[MASTER]], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]]
        adamw(*states, amsgrad=False, maximize=False, **self.kernel, **rates)
        parameter.copy_(state[MASTER])


def laid_out_like(parameter: Tensor) -> Tensor:
    """Gradient of a parameter, split as that is: DTensor may leave partial sums, or the rows of all ranks."""
    gradient = parameter.grad
    assert gradient is not None
    if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
        return gradient.redistribute(placements=parameter.placements)
    return gradient
