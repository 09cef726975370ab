"""FLOPs of one token by named conventions: which of them a figure uses decides what it can be compared with.

Two FLOPs a multiply-add. "6N" counts 2 a weight forward and 4 backward; N may be the weights that a token
multiplies, those with the input table, or those without both tables. The attention core's two products are
counted apart, over the whole score matrix or its causal half. Recomputation is never counted.

Sources: Kaplan et al., Scaling Laws for Neural Language Models, 2020, table 1 (N without tables); Hoffmann et
al., Training Compute-Optimal Large Language Models, 2022, appendix F (tables counted); Chowdhery et al.,
PaLM, 2022, appendix B (6N + 12·L·H·Q·T, the whole matrix); Dao, FlashAttention-2, 2023, section 4 (causal
half).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from playbook.spec import Model
from playbook.spec.rules import whole

TRAINING = 3
"""Forward, and backward of twice its products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsPerToken:
    """Model FLOPs of one token, an average over the tokens of a sequence.

    Parameters
    ----------
    sequence
        Tokens of the sequence.
    weights
        Weights that a token uses (N), norms and biases among them; its lookup in the token table is left out,
        a tied table counts, as the head.
    weights_with_table, weights_without_tables
        The same with the input table, and without both tables.
    attention
        FLOPs of the attention core, forward, over the whole score matrix, or the band that windows leave.
    attention_causal
        The same over what a causal mask leaves: A/2, more of it where windows cut the rest.
    """

    sequence: int
    weights: int
    weights_with_table: int
    weights_without_tables: int
    attention: int
    attention_causal: int

    def forward(self, causal: bool = True) -> int:
        """FLOPs forward: 2N + attention."""
        return 2 * self.weights + (self.attention_causal if causal else self.attention)

    def training(self, causal: bool = True) -> int:
        """FLOPs of a training step: 6N + three times attention."""
        return TRAINING * self.forward(causal)

    def conventions(self) -> Iterator[tuple[str, str, int]]:
        """Yield a name, the formula and the FLOPs of each convention; A is `attention`, C its causal part."""
        yield "forward", "2N", 2 * self.weights
        yield "forward_attention_whole", "2N + A", self.forward(causal=False)
        yield "forward_attention_causal", "2N + C", self.forward()
        yield "training", "6N", 2 * TRAINING * self.weights
        yield "training_with_table", "6(N + input table)", 2 * TRAINING * self.weights_with_table
        yield "training_without_tables", "6(N − head)", 2 * TRAINING * self.weights_without_tables
        yield "training_attention_whole", "6N + 3A", self.training(causal=False)
        yield "training_attention_causal", "6N + 3C", self.training()


def flops_per_token(model: Model, sequence: int | None = None) -> FlopsPerToken:
    """Count the model FLOPs of one token; of routed experts those that it uses.

    Parameters
    ----------
    model
        The model; multi-token modules are left out.
    sequence
        Tokens of a sequence; 4 096, or the longest of a model made for less, if left out.

    Raises
    ------
    ValueError
        If the sequence is no positive number.

    Examples
    --------
    >>> from playbook.spec import model
    >>> flops_per_token(model("llama-3.1-8b"), 8192).training(causal=False)
    57914449920
    """
    s = whole("sequence", min(4096, model.max_sequence) if sequence is None else sequence)
    tables = model.embedding if model.tied else 2 * model.embedding
    core = [core_flops(model, s, window) for window in model.windows]
    return FlopsPerToken(
        sequence=s,
        weights=model.active_without_input_embedding,
        weights_with_table=model.active,
        weights_without_tables=model.active - tables,
        attention=sum(whole_matrix for whole_matrix, _ in core),
        attention_causal=sum(half for _, half in core),
    )


def core_flops(model: Model, sequence: int, window: int | None) -> tuple[int, int]:
    """FLOPs of one layer's attention core for one token: the whole matrix, and its causal half.

    Scores take 2 × keys × features of all query heads, values as much with their features. A window of w
    tokens has a band of w keys a token, of which the causal part leaves out the triangle at the start; chunks
    are short sequences.
    """
    values = model.heads * (model.mla.value_dim if model.mla else model.head_dim)
    each = 2 * (model.heads * model.head_dim + values)
    keys = sequence if window is None else min(window, sequence)
    half = each * keys // 2
    if window is None or model.chunked or keys == sequence:
        return each * keys, half
    return each * keys, each * keys - half * keys // sequence
