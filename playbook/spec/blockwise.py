"""Values stored in few bits with a scale a block: 8-bit optimizer states, 4-bit frozen weights."""

from dataclasses import dataclass
from fractions import Fraction

from playbook.spec.rules import settle, whole

BYTE_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockwise:
    """A blockwise quantisation.

    Parameters
    ----------
    bits
        Of one value.
    block
        Values that share a scale.
    scale_bytes
        Of one scale.
    outer_block
        Scales that share a scale of their own in FP32 (double quantisation); 0 where there is none.
    least
        Tensors of fewer values stay as they are.
    """

    bits: int
    block: int
    scale_bytes: int = 4
    outer_block: int = 0
    least: int = 0

    def __post_init__(self) -> None:
        for name in ("bits", "block", "scale_bytes"):
            settle(self, **{name: whole(f"quantisation {name}", getattr(self, name))})

    @property
    def bytes_each(self) -> Fraction:
        """Bytes of a value with its part of the scales.

        Examples
        --------
        >>> float(NF4.bytes_each)
        0.515869140625
        """
        outer = Fraction(4, self.outer_block) if self.outer_block else Fraction(0)
        return Fraction(self.bits, BYTE_BITS) + (self.scale_bytes + outer) / self.block

    def bytes_of(self, numel: int) -> int:
        """Bytes of a tensor: packed values, a scale a block begun, and an FP32 scale an outer block begun."""
        scales = -(-numel // self.block)
        outer = 4 * -(-scales // self.outer_block) if self.outer_block else 0
        return -(-numel * self.bits // BYTE_BITS) + self.scale_bytes * scales + outer


NF4 = Blockwise(bits=4, block=64, scale_bytes=1, outer_block=256)
"""Dettmers et al., QLoRA, 2023, section 3: blocks of 64, their scales in 8 bits in blocks of 256."""


def adam_states(block: int = 256) -> Blockwise:
    """One moment of 8-bit Adam; tensors below 4 096 values keep 32 bits.

    Source: Dettmers et al., 8-bit Optimizers via Block-wise Quantization, 2022 (blocks of 2 048); the
    documentation of bitsandbytes: `min_8bit_size=4096`, blocks of 256 in later versions.
    """
    return Blockwise(bits=8, block=block, least=4096)
