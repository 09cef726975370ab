"""The same calls from a terminal.

`--json` prints one JSON object on standard output and nothing else. What the caller did wrong ends with
status 2 and one line on standard error, and so does a failed rank. Heavy imports happen inside commands.
"""

import sys
from collections.abc import Sequence

import typer

from playbook.cli import (
    backwards,
    collective,
    cut_stages,
    demo,
    describe,
    doctor,
    find_schedule,
    kv,
    lab,
    pipeline,
    predict,
    run,
    twin,
)

app = typer.Typer(
    name="playbook",
    help="A lab bench for LLM parallelism: predict a strategy, run it on real ranks, see the difference.",
    epilog="Start with `playbook doctor` and `playbook memory --model llama-3.1-8b --dp 8 --zero 3`; "
    "`playbook COMMAND --help` tells a command's options.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for group in (
    describe,
    predict,
    kv,
    backwards,
    pipeline,
    find_schedule,
    cut_stages,
    collective,
    run,
    twin,
    demo,
    doctor,
    lab,
):
    group.register(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status."""
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its status: 0, 1 if a check failed, 2 if the caller must change something."""
    try:
        return int(app(list(arguments), standalone_mode=False, prog_name="playbook") or 0)
    except KeyboardInterrupt:
        return complain("interrupted", status=130)
    except Exception as error:
        line = expected(error)
        if line is None:
            raise
        return complain(line)


def expected(error: Exception) -> str | None:
    """Return the line for an error that the caller can mend, None for a fault of ours."""
    if hasattr(error, "format_message"):  # the option parser's own errors
        text = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        if text.startswith("No such command"):
            return f"{text} Commands are {', '.join(commands())}."
        if text.startswith("Missing option '--model'"):
            return f"{text.rstrip('.')}; add the name of a preset, such as --model llama-3.1-8b"
        return text
    # The runtime's errors are known by name: importing them is no reason to load torch.
    names = {kind.__name__ for kind in type(error).__mro__}
    told = type(error) is RuntimeError or names & {"RankFailed", "JobCancelled"}
    if told or isinstance(error, ValueError | TypeError | OSError):
        return str(error) or type(error).__name__
    return None


def commands() -> list[str]:
    """Return the names of the commands."""
    return [info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands]


def complain(text: str, status: int = 2) -> int:
    """Print the first line of a text on standard error."""
    print(f"playbook: {text.strip().splitlines()[0]}", file=sys.stderr)
    return status
