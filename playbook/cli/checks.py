"""The doctor's checks: each looks at one thing and says what it found and how to mend it."""

import multiprocessing
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from importlib.util import find_spec

RANKS = "running ranks"
LAB = "the notebooks"
GPUS = "running on GPUs"
BROWSER = "the browser tests"

OLDEST, NEWEST = (2, 11), (2, 13)
"""Versions of torch that are tested."""
SELF_TEST_S = 60.0
"""Deadline of a self-test on ranks, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row: what was looked at, whether it works, what was found, how to mend it, what needs it."""

    name: str
    ok: bool
    found: str
    mend: str
    needed_for: str


def as_row(finding: Finding) -> dict[str, str | bool]:
    """Return a finding as plain data."""
    return asdict(finding)


def ranks_can_run(findings: list[Finding]) -> bool:
    """Tell whether everything that ranks need works."""
    return all(finding.ok for finding in findings if finding.needed_for == RANKS)


def all_checks() -> list[Finding]:
    """Run every check, one after the other; one that breaks is a finding too."""
    return [guarded(check) for check in CHECKS]


def guarded(check: Callable[[], Finding]) -> Finding:
    """Run a check; what it raises becomes its finding."""
    try:
        return check()
    except Exception as error:  # a doctor that dies of the first symptom is of no use
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        name = check.__name__.removeprefix("check_").replace("_", " ")
        return Finding(name=name, ok=False, found=text, mend="mend what this error names", needed_for=RANKS)


def check_python() -> Finding:
    """Python's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        name="python",
        ok=sys.version_info >= (3, 11),
        found=f"{version} ({sys.executable})",
        mend="use Python 3.11 or newer",
        needed_for=RANKS,
    )


def check_torch() -> Finding:
    """Torch's version, by importing it."""
    mend = f"install torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    try:
        version = str(import_module("torch").__version__)
    except ImportError as error:
        return Finding(name="torch", ok=False, found=str(error), mend=mend, needed_for=RANKS)
    return Finding(name="torch", ok=is_tested(version), found=version, mend=mend, needed_for=RANKS)


def is_tested(version: str) -> bool:
    """Tell whether a version of torch is one of those that are tested."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return OLDEST <= (major, minor) <= NEWEST


def check_start_method() -> Finding:
    """Whether ranks are forked from a server that has torch loaded."""
    methods = multiprocessing.get_all_start_methods()
    fast = "forkserver" in methods
    return Finding(
        name="start method",
        ok="spawn" in methods or fast,
        found="forkserver" if fast else "spawn: the first start of a pool takes seconds",
        mend="use Linux or macOS",
        needed_for=RANKS,
    )


def mean_of_ranks(device: str) -> float:
    """Average the ranks' numbers by one all-reduce; runs on every rank."""
    torch, dist = import_module("torch"), import_module("torch.distributed")
    value = torch.tensor([float(dist.get_rank())], device=device)
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return float(value)


def self_test(ranks: int, backend: str, device: str) -> str:
    """Average over real ranks and return what was found; a wrong average is an error."""
    from playbook.runtime.pool import Pool
    from playbook.units import counted

    with Pool(ranks=ranks, backend=backend) as pool:
        run = pool.submit(mean_of_ranks, device).result(timeout=SELF_TEST_S)
    expected = (ranks - 1) / 2
    if list(run.values) != [expected] * ranks:
        raise ValueError(f"{ranks} ranks averaged to {run.values}, not {expected}")
    return f"{counted(ranks, 'rank')} averaged in {run.seconds:.2f} s"


def tested(name: str, mend: str, needed_for: str, ranks: int, backend: str, device: str) -> Finding:
    """Turn a self-test into a finding."""
    try:
        found, ok = self_test(ranks, backend, device), True
    except Exception as error:
        found, ok = str(error).splitlines()[0], False
    return Finding(name=name, ok=ok, found=found, mend=mend, needed_for=needed_for)


def check_gloo() -> Finding:
    """Two real ranks over gloo."""
    mend = "look into the log of the rank named; a torch build without gloo cannot run ranks on CPUs"
    return tested("gloo", mend, RANKS, 2, "gloo", "cpu")


def check_gpus() -> Finding:
    """GPUs, and one rank over NCCL if there are any."""
    cuda = import_module("torch").cuda
    if not cuda.is_available():
        return Finding(
            name="gpus",
            ok=False,
            found="none that torch sees; ranks run on CPUs over gloo",
            mend="nothing to do on a machine without GPUs; else install a CUDA build of torch",
            needed_for=GPUS,
        )
    names = ", ".join(sorted({cuda.get_device_name(index) for index in range(cuda.device_count())}))
    result = tested("gpus", "look into the log of the rank named", GPUS, 1, "nccl", "cuda")
    return Finding(**{**asdict(result), "found": f"{cuda.device_count()} x {names}; NCCL: {result.found}"})


def check_memory() -> Finding:
    """Memory for ranks."""
    from playbook.runtime import limits
    from playbook.units import counted, gib

    free = limits.available_memory_bytes()
    fits = free // limits.RANK_BYTES
    return Finding(
        name="memory",
        ok=fits >= 2,
        found=f"{gib(free)} free, enough for {counted(fits, 'waiting rank')}; "
        f"{counted(limits.cores(), 'core')}",
        mend="free memory: two ranks need 0.7 GiB",
        needed_for=RANKS,
    )


def check_run_directory() -> Finding:
    """Whether runs can be written down."""
    from playbook.runtime import rundir

    try:
        folder = rundir.runs_directory()
        with tempfile.NamedTemporaryFile(dir=folder):
            found, ok = str(folder), True
    except (OSError, ValueError) as error:
        found, ok = str(error), False
    mend = "set PLAYBOOK_RUNS to a folder that can be written to"
    return Finding(name="run directory", ok=ok, found=found, mend=mend, needed_for=RANKS)


def installed(package: str, needed_for: str) -> Finding:
    """Whether a package can be imported, and its version."""
    here = find_spec(package) is not None
    try:
        found = metadata.version(package) if here else "not installed"
    except metadata.PackageNotFoundError:
        found = "imports, version unknown"
    mend = f"{sys.executable} -m pip install {package}"
    return Finding(name=package, ok=here, found=found, mend=mend, needed_for=needed_for)


def check_jupyterlab() -> Finding:
    """JupyterLab."""
    return installed("jupyterlab", LAB)


def check_anywidget() -> Finding:
    """anywidget, which the explorers are built on."""
    return installed("anywidget", LAB)


def check_ipywidgets() -> Finding:
    """ipywidgets."""
    return installed("ipywidgets", LAB)


def check_plotly() -> Finding:
    """plotly, which draws results."""
    return installed("plotly", LAB)


def check_notebooks() -> Finding:
    """The notebooks that `playbook lab` opens."""
    from playbook.cli.lab import find_notebooks

    found = find_notebooks()
    return Finding(
        name="notebooks",
        ok=found is not None,
        found=str(found or "none"),
        mend="install playbook-bench again, or work in a whole checkout",
        needed_for=LAB,
    )


def check_browser() -> Finding:
    """Chromium of the system."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    mend = "install the system's chromium package, such as: apt-get install chromium"
    return Finding(
        name="browser", ok=bool(found), found=found or "no Chromium", mend=mend, needed_for=BROWSER
    )


CHECKS: tuple[Callable[[], Finding], ...] = (
    *(
        check_python,
        check_torch,
        check_start_method,
        check_memory,
        check_run_directory,
        check_gloo,
        check_gpus,
    ),
    *(check_jupyterlab, check_anywidget, check_ipywidgets, check_plotly, check_notebooks, check_browser),
)
