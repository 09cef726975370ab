"""Operation ids: `m{microbatch}/{phase}/{owner}/{op}[@axis]#{k}`, the key that every source shares.

A predicted, traced or measured operation has the same id, so comparison is a join. An id is hierarchical:
without `op` it names a module (`m0/F/layers.3`) or a pipeline action (`m2/B/stage1`), the sum of what lies
below it. Row numbers, times and ranks never enter an id.
"""

import re
from dataclasses import dataclass

PHASES = ("F", "R", "B", "I", "W", "O")
AXES = ("dp", "dp_replicate", "tp", "pp", "cp", "ep")
OPTIMIZER = "m-1/O//optimizer#0"

SKIPPED_OPERATIONS = frozenset(
    """
    alias as_strided chunk detach expand lift_fresh permute reshape select slice split split_with_sizes
    squeeze t transpose unbind unsafe_split unsqueeze view _unsafe_view _reshape_alias set_ resize_ empty
    empty_like empty_strided new_empty new_empty_strided new_zeros ones_like zeros full fill_ zero_ rand
    randn randint clone contiguous copy_ _foreach_copy_ chunk_cat split_with_sizes_copy add_ lt ge __or__ sub
    index_put_ record_stream is_pinned item _local_scalar_dense wait_tensor _wrap_tensor_autograd barrier
    """.split()  # noqa: SIM905  # words of one kind on a line read better than a list
)
"""Views, empty and constant tensors, plain copies (accumulation among them), the mask by which a rank looks
up its part of a split token table, and bookkeeping: more than half of what real code runs, and no program
names them. A join counts neither side's."""

_TEXT = re.compile(
    r"m(?P<microbatch>-?\d+)/(?P<phase>[FRBIWO])/(?P<owner>[^/]*)"
    r"(?:/(?P<op>[^/@#]+)(?:@(?P<axis>[^/@#]+))?#(?P<k>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Id:
    """One operation, module or pipeline action, by its parts.

    Parameters
    ----------
    microbatch
        Number of the micro-batch; −1 for the optimizer step.
    phase
        F, R (recompute), B, O; I and W where a schedule splits B.
    owner
        Module path without wrappers, empty for the root; `stage{n}` for a pipeline action.
    op
        Name of the operation without namespace and overload; empty where the id names the owner as a whole.
    axis
        Mesh axis of a collective.
    k
        Occurrence of the operation under the same microbatch, phase and owner.
    """

    microbatch: int
    phase: str
    owner: str = ""
    op: str = ""
    axis: str | None = None
    k: int = 0

    def __str__(self) -> str:
        """Text form, as in `m0/B/layers.3.mlp/mm#1`."""
        head = f"m{self.microbatch}/{self.phase}/{self.owner}"
        if not self.op:
            return head
        return f"{head}/{self.op}{'@' + self.axis if self.axis else ''}#{self.k}"


def parse(text: str) -> Id:
    """Read an id from its text form.

    Raises
    ------
    ValueError
        If the text does not follow the grammar.

    Examples
    --------
    >>> parse("m0/F/layers.3/all_gather@dp#0").axis
    'dp'
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"id {text!r} does not read as m<microbatch>/<phase>/<owner>/<op>[@axis]#<k>")
    parts = found.groupdict()
    return Id(
        microbatch=int(parts["microbatch"]),
        phase=parts["phase"],
        owner=parts["owner"],
        op=parts["op"] or "",
        axis=parts["axis"],
        k=int(parts["k"] or 0),
    )
