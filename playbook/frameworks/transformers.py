"""Hugging Face Llama kinds under FSDP2 on CUDA: BF16 compute, flash attention, unfused norm and SwiGLU.

One layer keeps T·(16h + 4ak + 4gk + 8f + 4a + 8) bytes in BF16: each norm its FP32 input, its normalised and
its scaled output; q and k after rotation, v, the attention's output and log-sum-exps; four feed-forward
tensors. The input itself is not kept. The root is wrapped too and reshards; two cuBLAS workspaces of 32 MiB
are held for good. Layers with routed experts (Mixtral, Qwen3-MoE) are in `unfused_experts`.

Sources: transformers' Llama code; peaks of three models measured on an H200 (torch 2.11) agree within 0.5 %,
see the tests of this file.
"""

from playbook.frameworks.parts import (
    Piece,
    backward,
    block_gradient,
    block_input,
    for_weights,
    forward,
    passing,
    passing_back,
    product_backward,
    saved,
    weights,
)
from playbook.frameworks.unfused import attention, norm
from playbook.frameworks.unfused_experts import (
    FIRST_GRADIENT,
    LAST_READ,
    ROUTER_GRADIENT,
    experts,
    known_experts,
)
from playbook.frameworks.unfused_experts import ready as ready_of_experts
from playbook.frameworks.unfused_feed import feed_forward
from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import END, LAST, At, Op, rows
from playbook.program.policy import Policy, Sizes
from playbook.spec import Scenario

MIB = 2**20
LOSS_ROWS = ("_log_softmax", "nll_loss_forward")


def layer(z: Sizes, layer: int = 0) -> Block:
    """One layer, with routed experts where its number says so."""
    stream = z.value * z.T * z.h
    value, up = (
        f"{name}/{'addmm' if bias else 'mm'}#0"
        for name, bias in (("self_attn.v_proj", z.model.qkv_bias), ("mlp.up_proj", z.model.mlp_bias))
    )
    first = norm(z, "input_layernorm", value, "self_attn.q_proj/mm#1", "self_attn.v_proj/mm#0")
    ends = (up, "mlp.gate_proj/mm#1", "mlp.up_proj/mm#0")
    if z.routed(layer):
        ends = (LAST_READ, ROUTER_GRADIENT, FIRST_GRADIENT)
    second = norm(z, "post_attention_layernorm", *ends)
    heads, feed = attention(z), experts(z) if z.routed(layer) else feed_forward(z)
    last = first.backward[-1]
    own = Piece(
        tensors=(
            block_input(stream, "/add#0", "input_layernorm/mul#6" if z.value == 4 else None),
            block_gradient(stream, f"{last.owner}/{last.op}#{1 if z.value == 2 else 6}"),
            passing("middle", stream, "/add#0", "/add#1", "full"),
        )
    )
    return Block(
        name="layer",
        layered=True,
        forward=rows(
            (
                *first.forward,
                *heads.forward,
                forward("", "add"),
                *second.forward,
                *feed.forward,
                forward("", "add"),
            )
        ),
        backward=rows((*feed.backward, *second.backward, *heads.backward, *first.backward)),
        tensors=tuple(t for piece in (own, first, heads, second, feed) for t in piece.tensors),
        weights=weights(z.parameters_of(layer), ready(z, layer)),
    )


def ready(z: Sizes, layer: int = 0) -> dict[str, str]:
    """Row that completes the gradient of each parameter of a layer."""
    found = {}
    for parameter in z.parameters_of(layer):
        owner, _, kind = parameter.name.rpartition(".")
        if owner.endswith("norm"):
            found[parameter.name] = f"{owner}/sum#0"
        else:
            found[parameter.name] = f"{owner}/mm#1" if kind == "weight" else f"{owner}/sum#0"
    return {**found, **ready_of_experts()} if z.routed(layer) else found


def embedding(z: Sizes) -> Block:
    """The token table, and the rotary tables that all layers use."""
    back = "embed_tokens/embedding_dense_backward#0"
    table = Tensor(
        name="rotary tables",
        term="activations",
        bytes=2 * z.value * z.s * z.k,
        birth=At("F", END),
        fwd_end=At("F", END, LAST),
        bwd_end=At("B", END),
    )
    tied = z.model.tied
    second = passing_back("table gradient", z.value * z.V * z.h, back, back, "tp")
    return Block(
        name="embedding",
        forward=rows([forward("embed_tokens", "embedding")]),
        backward=rows([for_weights(backward("embed_tokens", "embedding_dense_backward"))]),
        tensors=(table, block_gradient(z.value * z.T * z.h, back), *((second,) if tied else ())),
        weights=(
            Weight(
                name="embed_tokens.weight",
                shape=(z.V, z.h),
                tp_dim=0,
                ready=At("B", back),
                born=At("B", "lm_head/mm#1", LAST) if tied else None,
            ),
        ),
    )


def head(z: Sizes) -> Block:
    """The last norm, the head, and the loss on FP32 logits."""
    stream, product = z.value * z.T * z.h, "lm_head/mm#0"
    last = norm(z, "norm", product, "lm_head/mm#1", product)
    flops = 2 * z.T * z.h * z.V
    ready_at = {p.name: "norm/sum#0" if "norm" in p.name else "lm_head/mm#1" for p in z.head_parameters}
    return Block(
        name="head",
        forward=rows((*last.forward, forward("lm_head", "mm", flops, "tp"), *loss_forward(z))),
        backward=rows((*loss_backward(z), *product_backward("lm_head", flops, "tp"), *last.backward)),
        tensors=(
            block_input(stream, "norm/mul#0", "norm/mul#6" if z.value == 4 else None),
            *last.tensors,
            *loss_tensors(z),
        ),
        weights=weights(z.head_parameters, ready_at),
    )


def loss_forward(z: Sizes) -> list[Op]:
    """Rows of the loss: an FP32 copy of the logits, log-softmax, the mean."""
    widen = [forward("", "_to_copy")] if z.value == 2 else []
    return [*widen, *(forward("", name) for name in LOSS_ROWS)]


def loss_backward(z: Sizes) -> list[Op]:
    """Rows of the loss's backward."""
    narrow = [backward("", "_to_copy")] if z.value == 2 else []
    return [backward("", "nll_loss_backward"), backward("", "_log_softmax_backward_data"), *narrow]


def loss_tensors(z: Sizes) -> list[Tensor]:
    """Logits and their copies: the log-softmax is kept, the others go when forward returns."""
    numel, out = z.T * z.V, "/_log_softmax_backward_data#0"
    tensors = [
        passing("logits", z.value * numel, "lm_head/mm#0", END, "whole", term="logits"),
        log_softmax(4 * numel, out),
        passing_back("loss gradient", 4 * numel, "/nll_loss_backward#0", out, "whole", term="logits"),
    ]
    if z.value == 2:
        tensors += [
            passing("wide logits", 4 * numel, "/_to_copy#0", END, "whole", term="logits"),
            passing_back("wide logits gradient", 4 * numel, out, "/_to_copy#0", "whole", term="logits"),
            passing_back("logits gradient", 2 * numel, "/_to_copy#0", "lm_head/mm#1", "whole", term="logits"),
        ]
    else:
        tensors.append(
            passing_back("logits gradient", 4 * numel, out, "lm_head/mm#1", "whole", term="logits")
        )
    return tensors


def log_softmax(size: object, out: str) -> Tensor:
    """The log-softmax's output, kept for backward."""
    kept = saved("log-softmax", size, "/_log_softmax#0", "/nll_loss_forward#0", out, "whole")  # type: ignore[arg-type]
    return Tensor(
        name=kept.name,
        term="logits",
        bytes=kept.bytes,
        birth=kept.birth,
        fwd_end=kept.fwd_end,
        bwd_end=kept.bwd_end,
    )


def refuse(s: Scenario) -> None:
    """Refuse what Hugging Face models under FSDP2 do not do, or this accounting does not know."""
    layout, mixed = s.layout, s.workload.recipe == "fsdp2-mixed"
    wrong = [
        (layout.tp > 1, f"tp={layout.tp}", without_tp(s)),
        (layout.cp > 1, f"cp={layout.cp}", "use cp=1"),
        (layout.ep > 1, f"ep={layout.ep}", "use ep=1"),
        (layout.pp > 1, f"pp={layout.pp}", "use pp=1"),
        (layout.zero in (1, 2), f"zero={layout.zero}", "use zero=3, or zero=3 with reshard=False"),
        (layout.zero == 0 and layout.dp > 1, f"zero=0 with dp={layout.dp}", "use zero=3"),
        (
            mixed and layout.zero == 0,
            "recipe='fsdp2-mixed' with zero=0",
            "use zero=3, or recipe='fp32' or 'bf16'",
        ),
    ]
    for given, what, works in wrong:
        if given:
            raise ValueError(f"{what}: framework 'transformers' is Hugging Face models under FSDP2; {works}")
    refuse_code(s, "transformers")


def without_tp(s: Scenario) -> str:
    """Say what works where there is no tensor parallelism."""
    return f"use tp=1{' with sequence_parallel=False' if s.layout.sequence_parallel else ''}"


def refuse_code(s: Scenario, name: str) -> None:
    """Refuse models and kernels whose code is not written down here, for a framework that runs it."""
    work = s.workload
    odd = [part for part in s.model.unlike_llama if not (part == "routed experts" and known_experts(s.model))]
    odd += ["fused projections"] if s.model.family == "phi3" else []
    wrong = [
        (work.attention != "flash", f"attention={work.attention!r}", "use attention='flash'"),
        (work.kernels != "cuda", f"kernels={work.kernels!r}", "use kernels='cuda'"),
        (work.recompute == "selective", "recompute='selective'", "use recompute='full' or 'none'"),
        (
            bool(odd),
            f"model {s.model.name} has {', '.join(odd)}",
            "use a dense kind of Llama, Qwen or Mistral, a Mixtral or Qwen3-MoE",
        ),
    ]
    for given, what, works in wrong:
        if given:
            raise ValueError(
                f"{what}: not in the Hugging Face code that framework {name!r} is read from; {works}"
            )


POLICY = Policy(
    name="transformers",
    embedding=embedding,
    layer=layer,
    head=head,
    workspace_bytes=64 * MIB,
    refuse=refuse,
)
