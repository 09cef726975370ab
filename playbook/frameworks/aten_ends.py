"""Both ends of the reference transformer as PyTorch runs them: tables, last norm, head and loss."""

from dataclasses import replace

from playbook.frameworks.aten import WIDE, linear_backward, linear_forward, norm_backward, norm_forward
from playbook.frameworks.lines import GRADIENT, INPUT, Line, Made, block
from playbook.program.block import Block, Junction, Tensor
from playbook.program.op import LAST, START, At, Size
from playbook.program.policy import Sizes

EMBED = "embed_tokens"
OF_HEAD, OF_EMBEDDING = "table gradient of head", "table gradient of embedding"


def embedding(z: Sizes) -> Block:
    """The token table, and the rotary tables that all layers share."""
    stream, table = z.value * z.T * z.h, z.value * z.V * z.h
    # Layers release the rotary tables as they go back; the last of them is done when this block's turn comes.
    held, weight = (GRADIENT, "cosine table", "sine table"), (f"{EMBED}.weight",)
    look_back = Line(owner=EMBED, op="embedding_dense_backward", holds=held, completes=weight)
    backward = [look_back]
    if z.model.tied:
        own = (Made(OF_EMBEDDING, table, "tp"),)
        both = Line(owner=EMBED, op="add", holds=(OF_EMBEDDING,), completes=weight)
        backward = [replace(look_back, makes=own, completes=(), for_weights=True), both]
    rows = (f"{EMBED}/embedding#0", f"{EMBED}/embedding_dense_backward#0")
    found = block(
        "embedding",
        [Line(owner=EMBED, op="embedding"), *rotary(z)],
        backward,
        stream=stream,
        parameters=z.embedding_parameters,
        junctions=(Junction(leave=EMBED, output_rows=rows, bytes=stream),),
    )
    return replace(found, tensors=(*found.tensors, head_share(table))) if z.model.tied else found


def head_share(table: Size) -> Tensor:
    """The head's part of a tied table's gradient, which waits for the embedding's."""
    return Tensor(
        name=OF_HEAD,
        term="temporary",
        bytes=table,
        birth=At("W", "lm_head/mm#0", LAST, otherwise=START),
        bwd_end=At("B", f"{EMBED}/add#0"),
        region="tp",
    )


def rotary(z: Sizes) -> list[Line]:
    """Cosines and sines of all positions, worked out in FP64."""
    angles, table = 8 * z.s * z.k, z.value * z.s * z.k

    def line(op: str, made: str = "", size: Size = 0, *holds: str) -> Line:
        makes = (Made(made, size, "whole"),) if made else ()
        return Line(owner="", op=op, makes=makes, holds=holds, region="whole")

    return [
        *(line(op) for op in ("arange", "div", "neg", "pow", "arange")),
        line("mul", "angles", angles),
        line("cos", "cosines", angles, "angles"),
        line("_to_copy", "cosine table", table, "cosines"),
        line("sin", "sines", angles, "angles"),
        line("_to_copy", "sine table", table, "sines", "angles"),
    ]


def head(z: Sizes) -> Block:
    """The last norm, the head, and the mean cross entropy over all tokens."""
    stream, flops = z.value * z.T * z.h, 2 * z.T * z.h * z.V
    product, back = ("lm_head/mm#0", "lm_head/mm#1")
    half = z.value < WIDE
    given, through = "dlogits" if half else "dwide", Made("dn", stream, "gathered")
    found = block(
        "head",
        [
            *norm_forward(z, "norm", INPUT, "n", z.T * z.h, z.T, "full"),
            linear_forward("lm_head", logits("logits", z.value * z.T * z.V), ("n",), flops, "tp", bias=False),
            *loss_forward(z),
        ],
        [
            *loss_backward(z),
            *linear_backward("lm_head", "n", given, through, flops, "tp", bias=False),
            *norm_backward(z, "norm", INPUT, "dn", None, z.T * z.h, z.T, "full"),
        ],
        stream=stream,
        parameters=z.head_parameters,
        junctions=(
            Junction(enter="lm_head", input_rows=(product, back), bytes=stream),
            Junction(leave="lm_head", output_rows=(product, None), gathers=True, bytes=z.value * z.T * z.V),
        ),
    )
    loss = ("/_to_copy#0", "/_to_copy#0") if half else ("/_log_softmax#0", "/_log_softmax_backward_data#0")
    return replace(found, loss=loss)


def logits(name: str, size: Size) -> Made:
    """A tensor of the loss, which every tensor-parallel rank holds whole."""
    return Made(name, size, "whole", "logits")


def loss_forward(z: Sizes) -> list[Line]:
    """Cross entropy in FP32, divided by the number of micro-batches."""
    half, size = z.value < WIDE, WIDE * z.T * z.V
    wide = "wide" if half else "logits"
    cast = [Line(owner="", op="_to_copy", makes=(logits(wide, size),), holds=("logits",), region="whole")]
    return [
        *(cast if half else []),
        Line(
            owner="", op="_log_softmax", makes=(logits("log-softmax", size),), holds=(wide,), region="whole"
        ),
        Line(owner="", op="nll_loss_forward", holds=(wide, "log-softmax"), region="whole"),
        Line(owner="", op="div", region="whole"),
    ]


def loss_backward(z: Sizes) -> list[Line]:
    """Backward of the loss, to the gradient of the logits."""
    half, size = z.value < WIDE, WIDE * z.T * z.V

    def line(op: str, made: str = "", size: Size = size, *holds: str) -> Line:
        makes = (logits(made, size),) if made else ()
        return Line(owner="", op=op, makes=makes, holds=holds, region="whole")

    return [
        line("div"),
        line("nll_loss_backward", "dlog-softmax"),
        line("_log_softmax_backward_data", "dwide", size, "dlog-softmax", "log-softmax"),
        *([line("_to_copy", "dlogits", z.value * z.T * z.V, "dwide")] if half else []),
    ]
