"""How values of a cache and of resident weights are stored: bits a value, and the scales beside them.

A block format's scale is counted with its values, a scale for each head or row apart.
"""

from dataclasses import dataclass

from playbook.spec.rules import choice


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """How keys and values are cached.

    Parameters
    ----------
    name
        What to call it.
    bits
        Bits a value, the share of a block's scale included.
    head_scale_bytes
        Bytes of a scale for each token and head, once for keys and once for values.
    latent_only
        Whether it keeps the rotary part of a latent vector in BF16, and so fits nothing else.
    source
        Where the numbers come from.
    """

    name: str
    bits: float
    head_scale_bytes: int = 0
    latent_only: bool = False
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How the weights of projections are kept on the device.

    Parameters
    ----------
    name
        What to call it.
    bits
        Bits a value, the share of its group's scale included.
    row_scale_bytes
        Bytes of a scale for each row (output feature).
    other_bits
        Bits of every value that is not quantised: embedding, head, norms, router, biases.
    experts_only
        Whether only routed experts are quantised, in a model that has them.
    source
        Where the numbers come from.
    """

    name: str
    bits: float
    row_scale_bytes: int = 0
    other_bits: int = 16
    experts_only: bool = False
    source: str


PLAIN = "size of the dtype"
MX = "OCP Microscaling Formats specification 1.0 (2023): an 8-bit scale for 32 values"
PER_HEAD = "an FP32 scale for each token and head, for keys and for values"

CACHE_FORMATS = {
    made.name: made
    for made in (
        CacheFormat(name="fp32", bits=32, source=PLAIN),
        CacheFormat(name="fp16", bits=16, source=PLAIN),
        CacheFormat(name="bf16", bits=16, source=PLAIN),
        CacheFormat(name="fp8", bits=8, source="one scale a tensor, which is no size"),
        CacheFormat(name="int8", bits=8, source="one scale a tensor, which is no size"),
        CacheFormat(name="int4", bits=4, source="one scale a tensor, which is no size"),
        CacheFormat(name="fp8-per-head", bits=8, head_scale_bytes=4, source=PER_HEAD),
        CacheFormat(name="int8-per-head", bits=8, head_scale_bytes=4, source=PER_HEAD),
        CacheFormat(name="int4-per-head", bits=4, head_scale_bytes=4, source=PER_HEAD),
        CacheFormat(name="bfp8", bits=8.5, source="block floating point: an 8-bit exponent for 16 values"),
        CacheFormat(name="q8_0", bits=8.5, source="llama.cpp: an FP16 scale for 32 values"),
        CacheFormat(name="q4_0", bits=4.5, source="llama.cpp: an FP16 scale for 32 values"),
        CacheFormat(name="mxfp8", bits=8.25, source=MX),
        CacheFormat(name="mxfp4", bits=4.25, source=MX),
        CacheFormat(name="nvfp4", bits=4.5, source="an FP8 scale for 16 values"),
        CacheFormat(
            name="fp8-ds-mla",
            bits=8.25,
            latent_only=True,
            source="vLLM's fp8_ds_mla: the latent in FP8 with an FP32 scale for 128 values, the rotary part "
            "in BF16; 656 bytes for 512 + 64 values",
        ),
    )
}

WEIGHT_FORMATS = {
    made.name: made
    for made in (
        WeightFormat(name="fp32", bits=32, other_bits=32, source=PLAIN),
        WeightFormat(name="fp16", bits=16, source=PLAIN),
        WeightFormat(name="bf16", bits=16, source=PLAIN),
        WeightFormat(name="fp8", bits=8, row_scale_bytes=4, source="an FP32 scale for each output feature"),
        WeightFormat(name="int8", bits=8, row_scale_bytes=4, source="an FP32 scale for each output feature"),
        WeightFormat(
            name="fp8-block",
            bits=8 + 32 / 128**2,
            source="DeepSeek-V3 technical report (2024), section 3.3: an FP32 scale for 128 x 128 values",
        ),
        WeightFormat(
            name="int4-g128",
            bits=4 + 20 / 128,
            source="GPTQ and AWQ checkpoints: an FP16 scale and a 4-bit zero for 128 values",
        ),
        WeightFormat(
            name="int4",
            bits=4 + 20 / 128,
            source="int4-g128 under its short name",
        ),
        WeightFormat(
            name="nf4",
            bits=4.5,
            source="Dettmers et al., QLoRA, 2023, section 3: an FP32 constant for 64 values",
        ),
        WeightFormat(
            name="nf4-double",
            bits=4 + 8 / 64 + 32 / (64 * 256),
            source="the same with constants quantised in turn: 0.127 bits a value for them",
        ),
        WeightFormat(name="mxfp4", bits=4.25, experts_only=True, source=MX),
        WeightFormat(name="nvfp4", bits=4.5, source="an FP8 scale for 16 values"),
    )
}


def cache_format(name: "str | CacheFormat") -> CacheFormat:
    """Return a cache format by name, ignoring case; the error lists them.

    Examples
    --------
    >>> cache_format("bfp8").bits / 8
    1.0625
    """
    if isinstance(name, CacheFormat):
        return name
    return CACHE_FORMATS[choice("kv_dtype", name, CACHE_FORMATS)]


def weight_format(name: "str | WeightFormat") -> WeightFormat:
    """Return a weight format by name, ignoring case; the error lists them."""
    if isinstance(name, WeightFormat):
        return name
    return WEIGHT_FORMATS[choice("weights", name, WEIGHT_FORMATS)]
