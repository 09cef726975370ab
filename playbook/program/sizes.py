"""A model's sizes as templates read them: numbers, or symbols from which formulas follow."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from playbook.program.op import Size
from playbook.program.polynomial import Polynomial, symbol
from playbook.spec import Mla, Model, Moe, Parameter, Recipe, Workload

SYMBOLS = {
    "hidden": "h",
    "heads": "a",
    "kv_heads": "g",
    "head_dim": "k",
    "ffn": "f",
    "vocabulary": "V",
}
STRUCTURE = (
    *("gated", "norm", "tied", "qkv_bias", "output_bias", "mlp_bias", "qk_norm", "positions", "layers"),
    *("sinks", "sandwich", "post_norm", "activation", "scalars", "family"),
)
MOE_SYMBOLS = {"experts": "E", "active": "K", "ffn": "e", "shared_ffn": "w"}
MLA_SYMBOLS = {
    "query_rank": "rq",
    "kv_rank": "rkv",
    "nope_dim": "dn",
    "rope_dim": "dr",
    "value_dim": "dv",
}


class ModelSymbols:
    """A model's stand-in whose sizes are symbols, so that the model's own code gives the shapes as
    polynomials."""

    hidden: Polynomial
    heads: Polynomial
    kv_heads: Polynomial
    head_dim: Polynomial
    ffn: Polynomial
    vocabulary: Polynomial
    gated: bool
    norm: str
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool | str
    positions: int
    layers: int
    sinks: bool
    sandwich: bool
    post_norm: bool
    activation: str
    family: str
    moe: Any
    mla: Any
    scalars: int
    grouped: bool

    def __init__(self, model: Model) -> None:
        for field, name in SYMBOLS.items():
            setattr(self, field, symbol(name))
        for field in STRUCTURE:
            setattr(self, field, getattr(model, field))
        self.grouped = model.heads != model.kv_heads
        self.moe, self.mla = stand_in(model.moe, MOE_SYMBOLS), stand_in(model.mla, MLA_SYMBOLS)

    block_parameters = Model.block_parameters
    embedding_parameters = Model.embedding_parameters
    head_parameters = Model.head_parameters


def stand_in(part: Moe | Mla | None, symbols: Mapping[str, str]) -> Any:
    """A part of a model with symbols for its sizes; what it does not have stays 0 or None."""
    if part is None:
        return None
    values = {name: getattr(part, name) for name in part.__dataclass_fields__}
    values |= {name: symbol(letter) for name, letter in symbols.items() if values[name]}
    if isinstance(part, Moe):
        values["in_layer"] = part.in_layer
    return SimpleNamespace(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of one micro-batch of a model, as numbers or as symbols, before any axis divides them.

    Parameters
    ----------
    b, s
        Sequences of a micro-batch, tokens of a sequence.
    h, a, g, k, f, V
        Hidden features, query heads, key-value heads, features of a head, feed-forward features, vocabulary.
    value
        Bytes of one value in forward and backward.
    model
        For what is no size: flags, names and shapes of the parameters.
    attention, kernels
        As in the workload.
    windows
        Tokens that a token attends to in each layer, where they are fewer than the sequence; else None.
    E, K, e, w
        Experts of a layer, those that a token is routed to, features of one, features of those that every
        token uses; 0 where there are none.
    loss, loss_rows
        As in the workload: the kind of loss, and the rows of logits that a chunked one holds at a time.
    frozen
        Whether adapters are trained, so that the head's weight has no gradient.
    rq, rkv, dn, dr, dv
        Latent attention: features of the latent queries and of the latent keys and values; features of a
        query or key head without and with rotary positions, of a value head; 0 where there is none.
    """

    b: Size
    s: Size
    h: Size
    a: Size
    g: Size
    k: Size
    f: Size
    V: Size
    value: int
    model: Model | ModelSymbols
    attention: str = "flash"
    kernels: str = "cuda"
    loss: str = "eager"
    loss_rows: int = 0
    frozen: bool = False
    windows: tuple[int | None, ...] = ()
    E: Size = 0
    K: Size = 0
    e: Size = 0
    w: Size = 0
    rq: Size = 0
    rkv: Size = 0
    dn: Size = 0
    dr: Size = 0
    dv: Size = 0

    @classmethod
    def of(cls, model: Model, workload: Workload, recipe: Recipe, symbolic: bool = False) -> "Sizes":
        """Return the sizes of a model and a workload, in numbers or symbols."""
        shape = ModelSymbols(model) if symbolic else model
        return cls(
            b=symbol("b") if symbolic else workload.micro_batch,
            s=symbol("s") if symbolic else workload.sequence,
            value=recipe.compute_bytes,
            model=shape,
            attention=workload.attention,
            kernels=workload.kernels,
            loss=workload.loss,
            loss_rows=min(workload.loss_chunk, workload.micro_batch * workload.sequence),
            frozen=workload.lora is not None,
            windows=tuple(narrower(window, workload.sequence) for window in model.windows),
            **{name: getattr(shape, field) for field, name in SYMBOLS.items()},
            **{name: getattr(shape.moe, field, 0) or 0 for field, name in MOE_SYMBOLS.items()},
            **{name: getattr(shape.mla, field, 0) or 0 for field, name in MLA_SYMBOLS.items()},
        )

    @property
    def T(self) -> Size:  # noqa: N802  # the field's symbol
        """Tokens of a micro-batch."""
        return self.b * self.s

    @property
    def n(self) -> Size:
        """Routed tokens of a micro-batch: each of its tokens as often as it goes to an expert."""
        return self.T * self.K

    @property
    def query_dim(self) -> Size:
        """Features of a query or key head."""
        return self.k if self.model.mla is None else self.dn + self.dr

    @property
    def value_dim(self) -> Size:
        """Features of a value head."""
        return self.k if self.model.mla is None else self.dv

    def keys(self, layer: int = 0) -> Size:
        """Tokens that a token attends to in a layer: its window, or the sequence."""
        window = self.windows[layer] if layer < len(self.windows) else None
        return self.s if window is None else window

    def routed(self, layer: int = 0) -> bool:
        """Whether a layer has routed experts in place of a dense feed-forward part."""
        return self.model.moe is not None and self.model.moe.in_layer(layer)

    @property
    def layer_parameters(self) -> tuple[Parameter, ...]:
        """Parameters of the first layer."""
        return self.parameters_of(0)

    def parameters_of(self, layer: int) -> tuple[Parameter, ...]:
        """Parameters of a layer."""
        return self.model.block_parameters(layer)

    @property
    def embedding_parameters(self) -> tuple[Parameter, ...]:
        """Parameters before the first layer."""
        return self.model.embedding_parameters()

    @property
    def head_parameters(self) -> tuple[Parameter, ...]:
        """Parameters after the last layer."""
        return self.model.head_parameters()


def narrower(window: int | None, sequence: int) -> int | None:
    """A window, or None where it is no narrower than the sequence."""
    return None if window is None or window >= sequence else window
