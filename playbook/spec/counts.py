"""What is counted from the sizes of a model: weights of its parts, layers and stages, and cached values."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from playbook.spec import parameters
from playbook.spec.moe import Mla, Moe
from playbook.spec.parameters import Parameter
from playbook.spec.rules import whole


class Counts:
    """The counting part of a `Model`, which has these sizes."""

    __slots__ = ()

    name: str
    layers: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    window: int | None
    full_layers: tuple[int, ...]
    moe: Moe | None
    mla: Mla | None
    mtp: int

    def block_parameters(self, layer: int = 0) -> tuple[Parameter, ...]:
        """Weights of one layer, in module order, names relative to the layer.

        The names are those of Hugging Face's Llama for every family, so that one layer means one thing:
        GPT-2's fused `c_attn` is listed as its three projections, and shapes are (out, in).
        """
        return parameters.layer(self, layer)

    def embedding_parameters(self) -> tuple[Parameter, ...]:
        """Weights before the first layer: the token table, and learned positions if there are any."""
        return parameters.embedding(self)

    def head_parameters(self) -> tuple[Parameter, ...]:
        """Weights after the last layer: the final norm, and the head unless it uses the embedding table."""
        return parameters.head(self)

    def mtp_parameters(self) -> tuple[Parameter, ...]:
        """Weights of one multi-token module; the token table and the head it shares are not among them."""
        return parameters.multi_token(self)

    def kind_of(self, layer: int) -> int:
        """The first layer that has the same weights as a layer: what it stands for is in `kinds`."""
        if self.moe is None or layer == 0:
            return 0
        routed = self.moe.in_layer(layer)
        return next(n for n in range(layer + 1) if self.moe.in_layer(n) == routed)

    @property
    def kinds(self) -> tuple[int, ...]:
        """The first layer of each kind that weights tell apart: dense ones, and those with experts.

        A window is no kind: it changes no weight.
        """
        if self.moe is None:
            return (0,)
        return tuple(sorted({self.kind_of(layer) for layer in range(self.layers)}))

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Tokens that a token attends to in each layer; None is all."""
        full = set(self.full_layers)
        return tuple(None if layer in full else self.window for layer in range(self.layers))

    @property
    def per_layer(self) -> tuple[int, ...]:
        """Elements of each layer."""
        size = {kind: count(self.block_parameters(kind)) for kind in self.kinds}
        return tuple(size[self.kind_of(layer)] for layer in range(self.layers))

    @property
    def layer_parameters(self) -> int:
        """Elements of one layer; of the largest where layers differ."""
        return max(count(self.block_parameters(kind)) for kind in self.kinds)

    @property
    def embedding(self) -> int:
        """Elements of the token table; an untied head has as many of its own."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Elements of the whole model without multi-token modules; a tied table counts once."""
        return sum(self.per_layer) + count(self.embedding_parameters()) + count(self.head_parameters())

    @property
    def active(self) -> int:
        """Elements that one token uses, both embedding tables counted. All of them in a dense model."""
        if self.moe is None:
            return self.parameters
        idle = self.moe.experts - self.moe.active
        layers = [layer for layer in range(self.layers) if self.moe.in_layer(layer)]
        if not layers:
            return self.parameters
        routed = count(p for p in self.block_parameters(layers[0]) if p.expert)
        return self.parameters - len(layers) * (routed // self.moe.experts) * idle

    @property
    def active_without_input_embedding(self) -> int:
        """Elements a token uses, less a token table that is only looked up (a tied one is the head)."""
        return self.active - (0 if self.tied else self.embedding)

    @property
    def non_embedding(self) -> int:
        """Elements besides the token table and a head of its own; learned positions are among them."""
        return self.parameters - self.embedding * (1 if self.tied else 2)

    @property
    def stored_parameters(self) -> int:
        """Elements of a weights file that writes out all that a module refers to.

        A tied head is stored beside its table, each multi-token module with copies of table and head, and the
        numbers that balance the experts are there too: why a file can hold more than `parameters`.
        """
        module = count(self.mtp_parameters()) + 2 * self.embedding
        copy = self.embedding if self.tied else 0
        return self.parameters + copy + self.mtp * module + self.balancing_numbers

    @property
    def qkv_features(self) -> tuple[int, int, int]:
        """Features of all query, key and value heads together; queries need not be as wide as `hidden`."""
        if self.mla is not None:
            wide = self.heads * self.head_dim
            return wide, wide, self.heads * self.mla.value_dim
        key = self.kv_heads * self.head_dim
        return self.heads * self.head_dim, key, key

    @property
    def balancing_numbers(self) -> int:
        """Numbers that balance the experts' load, moved by a rule and no parameters: one for each expert."""
        if self.moe is None or not self.moe.balancing_bias:
            return 0
        return self.moe.experts * sum(self.moe.in_layer(layer) for layer in range(self.layers))

    def stage_parameters(self, stage_layers: Sequence[int], copies: bool = False) -> tuple[int, ...]:
        """Elements of each pipeline stage; without copies their sum is `parameters`.

        The first stage has the embedding, the last the final norm and the head.

        Parameters
        ----------
        stage_layers
            Layers of each stage, in order of depth.
        copies
            Whether the copy of a tied table counts that the last of several stages holds.

        Raises
        ------
        ValueError
            If they do not add up to the model's layers.
        """
        counts = tuple(whole("stage_layers", number, least=0) for number in stage_layers)
        if sum(counts) != self.layers or not counts:
            raise ValueError(
                f"stage_layers add up to {sum(counts)} but {self.name} has {self.layers} layers; "
                f"give numbers whose sum is {self.layers}"
            )
        sizes, ends = self.per_layer, list(accumulate(counts))
        found = [sum(sizes[end - number : end]) for number, end in zip(counts, ends, strict=True)]
        found[0] += count(self.embedding_parameters())
        found[-1] += count(self.head_parameters())
        if copies and self.tied and len(found) > 1:
            found[-1] += self.embedding
        return tuple(found)

    def kv_values_per_token(self, layer: int = 0) -> int:
        """Values that the cache of one layer holds for one token, one copy.

        2 × KV heads × head dim; latent attention caches its vector and the rotary key instead. All layers of
        the families that are read cache alike, so `layer` only says whose it is.
        """
        if self.mla is not None:
            return self.mla.kv_rank + self.mla.rope_dim
        return 2 * self.kv_heads * self.head_dim

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> float:
        """Bytes that the cache takes for one token in all layers, one copy.

        The sum of `kv_values_per_token` × bytes per value; a window limits the tokens, not the bytes of one.
        """
        return sum(self.kv_values_per_token(layer) for layer in range(self.layers)) * bytes_per_value


def count(weights: Iterable[Parameter]) -> int:
    """Elements of some weights."""
    return sum(weight.numel for weight in weights)
