"""The attention kernels that a GPU would run, on fake tensors of a machine that has none.

Attention is the one operation of the reference transformer whose saved tensors depend on the device:
everything else saves on a GPU what it saves on a CPU. torch chooses flash attention for half precision,
memory-efficient attention for single precision without grouped heads, and plain matrix products otherwise.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

LARGEST_HEAD = 256
"""Features of a head that flash attention takes at most."""


def core_of(attention: str) -> AbstractContextManager[Any]:
    """Run attention as matrix products while the context is open if it is "math", else as torch chooses."""
    return sdpa_kernel(SDPBackend.MATH) if attention == "math" else nullcontext()


@contextmanager
def kernels_of(kernels: str, attention: str) -> Iterator[None]:
    """Run attention with the kernels of "cpu" or "cuda" while the context is open, or as matrix products."""
    if attention == "math":
        with core_of(attention):
            yield
        return
    plain = F.scaled_dot_product_attention
    if kernels == "cuda":
        F.scaled_dot_product_attention = cuda_attention  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = plain


def cuda_attention(
    q_BHSK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, *, is_causal: bool, enable_gqa: bool = False
) -> Tensor:
    """Attention by a GPU's choice of kernel. Shapes: q (B, H, S, K), k and v (B, G, S, K) -> (B, H, S, K)."""
    aten: Any = torch.ops.aten
    half = q_BHSK.dtype in (torch.bfloat16, torch.float16)
    if half and q_BHSK.shape[-1] <= LARGEST_HEAD:
        return aten._scaled_dot_product_flash_attention(q_BHSK, k_BGSK, v_BGSK, 0.0, is_causal)[0]
    if not enable_gqa:
        arguments = (q_BHSK, k_BGSK, v_BGSK, None, True, 0.0, is_causal)
        return aten._scaled_dot_product_efficient_attention(*arguments)[0]
    with sdpa_kernel(SDPBackend.MATH):
        return aten.scaled_dot_product_attention(
            q_BHSK, k_BGSK, v_BGSK, is_causal=is_causal, enable_gqa=enable_gqa
        )
