"""Options of `playbook schedule` that say what actions and messages cost, and how messages are sent."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from playbook.spec import Link
from playbook.spec.rules import not_negative

COSTS = {
    "forward": ("1", "Cost of a chunk's forward, in any unit; or one a stage, as 1,1,2."),
    "backward_input": ("1", "Cost of its backward for the input, same unit; or one a stage."),
    "backward_weight": ("1", "Cost of its backward for the weights, same unit; or one a stage."),
    "backward": (None, "Cost of a fused backward; the sum of the two if left out."),
    "overlap": (None, "Cost of a forward and a backward at once, the longer or more; their sum if left out."),
    "recompute": ("0", "Added to each backward that needs activations."),
    "comm": ("0", "Delay between ranks, same unit, occupying neither; or one a border between stages."),
    "message_bytes": ("0", "Bytes of a message, for --latency and --bandwidth; or one a border."),
}
LINK = {
    "latency": "Seconds a message, instead of --comm; or one a border. Costs are then seconds.",
    "bandwidth": "Bytes a second of the link, with --latency; or one a border.",
}
WAYS = {
    "blocking_send": "A sender's rank is occupied until its message has arrived.",
    "deferred_receives": "A message travels only when its receiver is free for it.",
    "one_queue": "Each rank serves all its sends and receives in order, one at a time.",
}


def with_costs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it is called with the arguments of `simulate` in their place."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    names = [parameter.name for parameter in own if parameter.name != "options"]

    def call(**given: Any) -> None:
        command(**{name: given.pop(name) for name in names}, options=simulate_options(given))

    texts = {name: (default, words) for name, (default, words) in COSTS.items()}
    texts |= {name: (None, words) for name, words in LINK.items()}
    parameters = [parameter for parameter in own if parameter.name in names]
    parameters += [_parameter(name, str | None, *told) for name, told in texts.items()]
    slow = "A slow rank, as 2:1.5 for a rank 2 that takes half as long again; may be given again."
    parameters.append(_parameter("straggler", list[str] | None, None, slow, "RANK:FACTOR"))
    parameters += [_parameter(name, bool, False, words) for name, words in WAYS.items()]
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameter(
    name: str, kind: Any, default: Any, text: str, metavar: str | None = None
) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=metavar)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def simulate_options(given: dict[str, Any]) -> dict[str, Any]:
    """Turn the texts of the options into arguments of `simulate`."""
    found: dict[str, Any] = {name: read_cost(name, given[name]) for name in COSTS if given[name] is not None}
    link = read_link(given["latency"], given["bandwidth"])
    if link is None and found["message_bytes"] != 0:
        raise ValueError(
            f"message_bytes={given['message_bytes']} but no link; give --latency and --bandwidth too"
        )
    if given["one_queue"] and given["blocking_send"]:
        raise ValueError("--one-queue sends beside the computation; leave it or --blocking-send out")
    found["stragglers"] = read_stragglers(given["straggler"] or [])
    found["receive"] = "deferred" if given["deferred_receives"] else "early"
    return found | {"link": link, "blocking_send": given["blocking_send"], "queue": given["one_queue"]}


def read_cost(name: str, text: str) -> float | list[float]:
    """Read a number, or one a stage with commas.

    Raises
    ------
    ValueError
        If it is neither, or negative.
    """
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{name}={text!r} must be a number, or one for each with commas, such as 1,1,2"
        ) from None
    if name != "overlap":  # its least is not 0: `simulate` knows it
        values = [not_negative(name, value) for value in values]
    return values[0] if len(values) == 1 else values


def read_link(latency: str | None, bandwidth: str | None) -> Link | list[Link] | None:
    """Read the link or, where one of the two is given for every border, the links."""
    if latency is None and bandwidth is None:
        return None
    if latency is None or bandwidth is None:
        lacks = "latency" if latency is None else "bandwidth"
        raise ValueError(f"a link has both; give --{lacks} too, or --comm alone")
    seconds, rate = read_cost("latency", latency), read_cost("bandwidth", bandwidth)
    if isinstance(seconds, float) and isinstance(rate, float):
        return Link(latency_s=seconds, bandwidth_bytes_per_s=rate)
    count = len(seconds) if isinstance(seconds, list) else len(rate) if isinstance(rate, list) else 1
    many = [each if isinstance(each, list) else [each] * count for each in (seconds, rate)]
    if len(many[0]) != len(many[1]):
        raise ValueError(f"latency has {len(many[0])} values and bandwidth {len(many[1])}; give as many")
    return [Link(latency_s=s, bandwidth_bytes_per_s=r) for s, r in zip(*many, strict=True)]


def read_stragglers(texts: list[str]) -> dict[int, float]:
    """Read RANK:FACTOR, several with commas or one after the other.

    Raises
    ------
    ValueError
        If one is not that, or a rank has two.
    """
    found: dict[int, float] = {}
    for text in (part for one in texts for part in one.split(",")):
        rank, _, factor = text.partition(":")
        try:
            at, slower = int(rank), float(factor)
        except ValueError:
            raise ValueError(f"straggler={text!r} must be RANK:FACTOR, such as 2:1.5") from None
        if at in found:
            raise ValueError(
                f"straggler={text!r} but rank {at} already has {found[at]:g}; give one for each rank"
            )
        found[at] = slower
    return found
