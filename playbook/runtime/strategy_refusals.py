"""What a scenario may ask for and the code on ranks does not do, said before any rank is asked."""

from playbook.program.schedule import schedule
from playbook.spec import Scenario
from playbook.spec.rules import choice

RECIPES = ("fp32", "bf16", "sgd", "fsdp2-mixed")
LIBRARY_SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b")


def refuse_unrunnable(strategy: str, scenario: Scenario, *, by_hand: bool, fault: str | None) -> None:
    """Refuse what a scenario may ask for and the code on ranks does not do.

    Raises
    ------
    ValueError
        With what would work.
    """
    workload, model = scenario.workload, scenario.model
    choice("recipe of a run on ranks", workload.recipe, RECIPES)
    refuse(
        model.norm != "rms" or model.positions > 0 or not model.gated,
        f"model {model.name} has LayerNorm, learned positions or a plain MLP, which the reference "
        "transformer does not compute; use a Llama, Mistral or Qwen kind, such as toy-15m",
    )
    refuse(
        fault is not None and not by_hand,
        f"fault={fault!r} is planted in the by-hand code; use by='hand'",
    )
    refuse(
        workload.recompute == "selective",
        "recompute='selective' is not built for runs on ranks; use none or full",
    )
    refuse(
        workload.recipe == "fsdp2-mixed" and (strategy != "fsdp2" or by_hand),
        "recipe='fsdp2-mixed' is FSDP2's own mixed precision; use fsdp2 by='library', or recipe='fp32'",
    )
    if strategy == "fsdp2" and by_hand:
        refuse_sharded(scenario)
    if strategy == "tp":
        refuse_tensor(scenario, by_hand)
    if strategy == "pp":
        refuse_pipeline(scenario, by_hand)


def refuse_sharded(scenario: Scenario) -> None:
    """Refuse what FSDP2 by hand does not do."""
    refuse(
        scenario.workload.recompute == "full",
        "recompute='full' runs its forward again where by-hand FSDP2 holds shards; use by='library'",
    )
    refuse(
        scenario.workload.gradient_sync == "last" and scenario.microbatches > 1,
        "gradient_sync='last' needs whole gradients kept between micro-batches; use by='library'",
    )


def refuse_tensor(scenario: Scenario, by_hand: bool) -> None:
    """Refuse models that tensor parallelism does not split, by hand or by the library."""
    layout, model = scenario.layout, scenario.model
    refuse(
        by_hand and (model.output_bias or model.mlp_bias),
        f"model {model.name} has biases after row-split products, which by hand would count once a rank; "
        "use by='library'",
    )
    refuse(
        not by_hand and layout.tp > model.kv_heads,
        f"tp={layout.tp} is more than kv_heads={model.kv_heads}: DTensor would cut a head in two; use "
        f"by='hand', which copies heads, or tp={model.kv_heads}",
    )


def refuse_pipeline(scenario: Scenario, by_hand: bool) -> None:
    """Refuse pipelines that the code on ranks does not run."""
    layout, model, m = scenario.layout, scenario.model, scenario.microbatches
    refuse(
        model.tied,
        f"model {model.name} has a tied table, whose gradient the first and last stage would have to add up; "
        "use an untied model, such as toy-15m",
    )
    framework = None if by_hand else "torch"
    orders = schedule(layout.schedule, layout.pp, m, layout.chunks, framework=framework).orders
    refuse(
        any(action.kind not in "FB" for order in orders for action in order),
        f"schedule={layout.schedule} splits backward in two, which ranks do not run; "
        "use 1f1b, gpipe or interleaved-1f1b",
    )
    refuse(
        not by_hand and layout.schedule not in LIBRARY_SCHEDULES,
        f"schedule={layout.schedule} is none of the library's that run here: {', '.join(LIBRARY_SCHEDULES)}; "
        "use by='hand'",
    )


def refuse(wrong: bool, text: str) -> None:
    """Raise ValueError with a text if something is wrong."""
    if wrong:
        raise ValueError(text)
