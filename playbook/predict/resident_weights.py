"""Weights that one rank of an inference engine keeps: which are quantised, and how each is divided."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from playbook.spec import Layout, Model, Parameter
from playbook.spec.formats import WeightFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentWeights:
    """Weights of one rank.

    Parameters
    ----------
    form
        How projections are stored.
    quantised, other
        Elements stored that way, and elements that stay as they are: embedding, head, norms, router, biases.
    rows
        Output features with a scale of their own.
    """

    form: WeightFormat
    quantised: int
    other: int
    rows: int

    @property
    def bytes(self) -> int:
        """Bytes, scales included."""
        values = self.quantised * self.form.bits / 8 + self.other * self.form.other_bits / 8
        return math.ceil(values) + self.rows * self.form.row_scale_bytes

    @property
    def formula(self) -> str:
        """The sum in words."""
        if self.form.bits == self.form.other_bits:
            return f"{self.quantised + self.other} values x {self.form.bits / 8:g} bytes"
        scales = f" + {self.rows} scales x {self.form.row_scale_bytes} bytes" * bool(
            self.form.row_scale_bytes
        )
        return (
            f"{self.quantised} values x {self.form.bits:.4g} bits in {self.form.name}{scales}"
            f" + {self.other} x {self.form.other_bits // 8} bytes"
        )


def resident_weights(
    model: Model, form: WeightFormat, layout: Layout, stage: int = 0, stage_layers: tuple[int, ...] = ()
) -> ResidentWeights:
    """Count the weights of a rank of one stage.

    Parameters
    ----------
    model, form, layout
        What is served, how projections are stored, and who shares them.
    stage, stage_layers
        Which stage, and the layers of each; one stage with all layers by default.

    Notes
    -----
    Without expert parallelism experts are split like every projection, as vLLM does; with it a rank has
    experts / ep of them, each split over etp. Key and value projections never go below one head a rank.
    Multi-token modules are left out.
    """
    counts = stage_layers or (model.layers,)
    begin = sum(counts[:stage])
    quantised = other = rows = 0
    for weight in stage_weights(model, range(begin, begin + counts[stage]), stage, len(counts)):
        shape = rank_shape(weight, model, layout)
        if is_quantised(weight, model, form):
            quantised += math.prod(shape)
            rows += math.prod(shape[:-1])
        else:
            other += math.prod(shape)
    return ResidentWeights(form=form, quantised=quantised, other=other, rows=rows)


def stage_weights(model: Model, layers: range, stage: int, stages: int) -> Iterable[Parameter]:
    """Weights of a stage; a tied table is held by the first and by the last one."""
    if stage == 0:
        yield from model.embedding_parameters()
    blocks = {kind: model.block_parameters(kind) for kind in {model.kind_of(layer) for layer in layers}}
    for layer in layers:
        yield from blocks[model.kind_of(layer)]
    if stage == stages - 1:
        yield from model.head_parameters()
        if model.tied and stages > 1:
            yield model.embedding_parameters()[0]


def is_quantised(weight: Parameter, model: Model, form: WeightFormat) -> bool:
    """Whether a format applies to a weight: the matrices of projections, none of the router's."""
    matrix = "_proj" in weight.name and not weight.name.endswith("bias") and len(weight.shape) > 1
    return matrix and (weight.expert or model.moe is None or not form.experts_only)


def rank_shape(weight: Parameter, model: Model, layout: Layout) -> tuple[int, ...]:
    """Shape of a rank's part of a weight."""
    shape = list(weight.shape)
    tp, dim = layout.tp, weight.tp_dim
    if weight.expert:
        parted = layout.ep > 1 or layout.etp > 1
        shape[0] = math.ceil(shape[0] / layout.ep)
        tp = layout.etp if parted else tp
    if dim is None:
        return tuple(shape)
    least = model.head_dim if weight.name.startswith(("self_attn.k_proj", "self_attn.v_proj")) else 1
    shape[dim] = max(math.ceil(shape[dim] / tp), least)
    return tuple(shape)
