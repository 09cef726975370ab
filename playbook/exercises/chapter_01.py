"""Exercises of chapter 01, memory and ZeRO, on the model, recipe, batch and ranks of a scenario."""

from playbook.lessons import Exercise
from playbook.predict import zero_states
from playbook.spec import Layout, Scenario, Workload, model
from playbook.units import counted, gb, thousands

GB = 10**9
BF16_BYTES = 2
LOSS_BYTES = 12
"""Bytes a logit of an eager loss in its backward: log-softmax, its gradient and theirs, each in FP32."""


def example() -> Scenario:
    """Llama 3.1 70B on 64 ranks, one sequence of 4 096 tokens each."""
    return Scenario(model("llama-3.1-70b"), Workload(recompute="full"), Layout(dp=64, zero=3))


def ranks_words(ranks: int) -> str:
    """Ranks as a question says them: one, or how many.

    Examples
    --------
    >>> ranks_words(1), ranks_words(64)
    ('one rank', '64 ranks')
    """
    return "one rank" if ranks == 1 else f"{thousands(ranks)} ranks"


def one_of(s: Scenario) -> str:
    """The rank asked about, among those that share the state."""
    ranks = s.layout.shard_ranks
    return "the only data-parallel rank" if ranks == 1 else f"one of {thousands(ranks)} data-parallel ranks"


def state_gb(s: Scenario, zero: int) -> float:
    """Model state of a rank under a ZeRO stage, in GB."""
    return zero_states(s.model, s.recipe, s.layout.shard_ranks)[zero].total_bytes / GB


def kept_bytes(s: Scenario) -> int:
    """Bytes per parameter that ZeRO-1 leaves whole on every rank: the weight and its gradient."""
    return s.recipe.parameter_bytes + s.recipe.gradient_bytes


def work_stage_one(s: Scenario) -> str:
    """Work out the state under ZeRO-1."""
    psi, ranks = s.model.parameters, s.layout.shard_ranks
    whole, shared = kept_bytes(s) * psi, s.recipe.optimizer_bytes * psi / ranks
    sharers = f"are shared by {thousands(ranks)}" if ranks > 1 else "have no other rank to share them"
    return (
        f"{kept_bytes(s)} B x {thousands(psi)} = {gb(whole)} stay whole; {s.recipe.optimizer_bytes} B of "
        f"optimizer state {sharers}: {gb(shared)}. Together {gb(state_gb(s, 1) * GB)}."
    )


def capacity_bytes(s: Scenario) -> int:
    """Memory of the scenario's GPU as its driver reports it."""
    return s.cluster.gpu.memory_bytes


def fewest_ranks(s: Scenario) -> int:
    """Fewest ranks whose shares of the state under ZeRO-3 are within a GPU's memory."""
    return -(-s.recipe.state_bytes * s.model.parameters // capacity_bytes(s))


def work_fewest(s: Scenario) -> str:
    """Work out the fewest ranks."""
    every = s.recipe.state_bytes * s.model.parameters
    exact = every / capacity_bytes(s)
    return (
        f"{s.recipe.state_bytes} B x {thousands(s.model.parameters)} = {gb(every)}; divided by the "
        f"{gb(capacity_bytes(s))} that the driver reports: {exact:.2f}, so {ranks_words(fewest_ranks(s))}. "
        f"That is state alone: no "
        "activation, no gathered layer, no logits."
    )


def tokens(s: Scenario) -> int:
    """Tokens of a micro-batch."""
    return s.workload.micro_batch * s.workload.sequence


def inputs_gb(s: Scenario) -> float:
    """What full recomputation keeps of one micro-batch, in GB: the input of every layer."""
    return s.recipe.compute_bytes * tokens(s) * s.model.hidden * s.model.layers / GB


def work_inputs(s: Scenario) -> str:
    """Work out the layer inputs."""
    each = s.recipe.compute_bytes * tokens(s) * s.model.hidden
    return (
        f"One input: {s.recipe.compute_bytes} B x {thousands(tokens(s))} tokens x "
        f"{thousands(s.model.hidden)} = {gb(each)}; for {counted(s.model.layers, 'layer')} that is "
        f"{gb(inputs_gb(s) * GB)}. It does not depend on the ranks."
    )


def logits_gb(s: Scenario) -> float:
    """What an eager loss holds at the peak of its backward, in GB."""
    return LOSS_BYTES * tokens(s) * s.model.vocabulary / GB


def work_logits(s: Scenario) -> str:
    """Work out the loss."""
    return (
        f"3 tensors x 4 B x {thousands(tokens(s))} tokens x {thousands(s.model.vocabulary)} = "
        f"{gb(logits_gb(s) * GB)}: more than the BF16 logits alone by a factor of 6."
    )


def whole_gradients_gb(s: Scenario) -> float:
    """Gradients that are accumulated whole, in GB."""
    return s.recipe.gradient_bytes * s.model.parameters / GB


def work_gradients(s: Scenario) -> str:
    """Work out gradients without a reduction."""
    ranks = s.layout.shard_ranks
    whole = whole_gradients_gb(s) * GB
    each = f"{s.recipe.gradient_bytes} B x {thousands(s.model.parameters)} = {gb(whole)}"
    if ranks == 1:
        return f"{each} on the only rank, before the reduction and after it: there is nobody to share with."
    return (
        f"{each} on every rank, instead of {gb(whole / ranks)}, one of {thousands(ranks)} shares: "
        f"what is not reduced cannot be shared out."
    )


EXERCISES = (
    Exercise(
        id="01.1",
        example=example,
        question=lambda s: (
            f"{s.model.name}, {s.recipe.name}, {ranks_words(s.layout.shard_ranks)}. How many GB (10⁹ bytes) "
            f"of model state does a rank hold under ZeRO-1?"
        ),
        solution=lambda s: state_gb(s, 1),
        working=work_stage_one,
        unit="GB",
        hint="Which of weight, gradient and optimizer state does the first stage share out?",
        mistakes=(
            ("That is without sharding.", lambda s: state_gb(s, 0)),
            ("That is ZeRO-2: it shares the gradients too.", lambda s: state_gb(s, 2)),
            ("That is ZeRO-3: it shares everything.", lambda s: state_gb(s, 3)),
            (
                "That is in GiB (2³⁰ bytes); the question asks for GB (10⁹).",
                lambda s: state_gb(s, 1) * GB / 2**30,
            ),
        ),
    ),
    Exercise(
        id="01.2",
        example=example,
        question=lambda s: (
            f"ZeRO-3 with {s.recipe.name}: on how many {s.cluster.gpu.name.upper()} "
            f"({gb(capacity_bytes(s))} each) does the model state of {s.model.name} fit, and nothing else? "
            f"(the fewest)"
        ),
        solution=fewest_ranks,
        working=work_fewest,
        tolerance=1e-9,
        hint="All state is shared: divide it by the memory of one GPU, and round up.",
        mistakes=(
            (
                "That counts the weights alone; gradients and optimizer state are shared too, but not gone.",
                lambda s: -(-s.recipe.parameter_bytes * s.model.parameters // capacity_bytes(s)),
            ),
            (
                "That rounds down: the last GPU would overflow.",
                lambda s: s.recipe.state_bytes * s.model.parameters // capacity_bytes(s),
            ),
        ),
    ),
    Exercise(
        id="01.3",
        example=example,
        question=lambda s: (
            f"Full recomputation keeps the input of every layer. How many GB is that for one micro-batch of "
            f"{s.workload.micro_batch} x {thousands(s.workload.sequence)} tokens through the "
            f"{counted(s.model.layers, 'layer')} of {s.model.name} (hidden size "
            f"{thousands(s.model.hidden)}), on {one_of(s)}?"
        ),
        solution=inputs_gb,
        working=work_inputs,
        unit="GB",
        hint="Tokens times features times the bytes of one value, for every layer. Do ranks share it?",
        mistakes=(
            (
                "That is one layer's input; there are as many as layers.",
                lambda s: inputs_gb(s) / s.model.layers,
            ),
            (
                "Data-parallel ranks each have their own tokens: activations are not divided among them.",
                lambda s: inputs_gb(s) / s.layout.shard_ranks,
            ),
            (
                "That counts 4 bytes a value; forward runs in BF16.",
                lambda s: inputs_gb(s) * 4 / s.recipe.compute_bytes,
            ),
        ),
    ),
    Exercise(
        id="01.4",
        example=example,
        question=lambda s: (
            f"The loss of {thousands(tokens(s))} tokens over a vocabulary of "
            f"{thousands(s.model.vocabulary)}, computed in FP32: in its backward the log-softmax, "
            f"its gradient and the gradient of the FP32 "
            f"logits are there at once. How many GB?"
        ),
        solution=logits_gb,
        working=work_logits,
        unit="GB",
        hint="Three tensors of tokens x vocabulary, in FP32.",
        mistakes=(
            (
                "That is the BF16 logits alone, 2 bytes each.",
                lambda s: logits_gb(s) * BF16_BYTES / LOSS_BYTES,
            ),
            ("That is one FP32 tensor; three are there.", lambda s: logits_gb(s) / 3),
        ),
    ),
    Exercise(
        id="01.5",
        example=example,
        question=lambda s: (
            f"Gradients of {s.model.name} are accumulated over several micro-batches and reduced only in "
            f"the last. How many GB of gradients ({s.recipe.gradient_bytes} bytes each) does {one_of(s)} "
            f"hold until then, although parameters are sharded?"
        ),
        solution=whole_gradients_gb,
        working=work_gradients,
        unit="GB",
        hint="Before the reduction, whose part of a gradient is on which rank?",
        mistakes=(
            (
                "That is its share after the reduction; before, every rank has its own sum for all.",
                lambda s: whole_gradients_gb(s) / s.layout.shard_ranks,
            ),
        ),
    ),
)
