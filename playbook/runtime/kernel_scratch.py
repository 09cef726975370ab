"""What some operations allocate and free inside: no tensor shows it, to Python or to fake tensors.

Two kernels of attention as matrix products do so with as much as scores have, so they may decide a peak:

- `_safe_softmax` looks for rows that are masked throughout, by one byte a score and one a row (aten/src/ATen/
  native/transformers/attention.cpp of torch 2.11);
- on CUDA `_softmax_backward_data` first multiplies gradient and probabilities into a tensor of their size
  (`softmax_backward_cuda_out`, aten/src/ATen/native/cuda/SoftMax.cu).

An H200 showed both, to the byte: a twin whose peak stood there was 8.7 % above a formula that left them out.
"""

from typing import Any

from torch import Tensor


def scratch_bytes(op: str, result: Any, kernels: str) -> int:
    """Bytes that an operation takes beside its results while it runs.

    Parameters
    ----------
    op
        Its name, as in "aten::_safe_softmax".
    result
        What it returned.
    kernels
        "cpu" or "cuda".
    """
    if not isinstance(result, Tensor):
        return 0
    if op == "aten::_safe_softmax":
        return result.numel() + result.numel() // result.shape[-1]
    if op == "aten::_softmax_backward_data" and kernels == "cuda":
        return result.numel() * result.element_size()
    return 0
