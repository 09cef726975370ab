"""What a pool is asked for is filled in, or refused with what would work."""

import pytest

from playbook.runtime import launch, limits
from playbook.runtime.plan import make_plan


@pytest.fixture
def machine(monkeypatch):
    """A machine of so many GPUs, cores and GiB."""

    def make(gpus=0, cores=8, gib=16.0):
        monkeypatch.setattr(limits, "visible_gpus", lambda: gpus)
        monkeypatch.setattr(limits, "cores", lambda: cores)
        monkeypatch.setattr(limits, "available_memory_bytes", lambda: int(gib * 2**30))

    return make


def test_without_gpus_there_are_up_to_four_gloo_ranks(machine):
    machine(cores=8)
    plan = make_plan(None, "auto", None)
    assert (plan.ranks, plan.backend, plan.devices, plan.threads) == (4, "gloo", ("cpu",) * 4, 2)
    machine(cores=2)
    assert make_plan(None, "auto", None).ranks == 2


def test_with_gpus_there_is_a_rank_for_each(machine):
    machine(gpus=2)
    plan = make_plan(None, "auto", None)
    assert (plan.ranks, plan.backend, plan.devices) == (2, "nccl", ("cuda:0", "cuda:1"))


def test_more_ranks_than_gpus_go_to_gloo(machine):
    machine(gpus=2)
    assert make_plan(4, "auto", None).backend == "gloo"
    assert make_plan(4, "GLOO", None).devices == ("cpu",) * 4


def test_ranks_may_share_a_gpu(machine):
    machine(gpus=1)
    assert make_plan(4, "shared-gpu", None).devices == ("cuda:0",) * 4


def test_ranks_may_outnumber_the_cores_with_one_thread_each(machine):
    machine(cores=2)
    assert make_plan(16, "gloo", None).threads == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((0, "auto", None), "ranks=0: a pool has at least 1 rank"),
        ((-3, "auto", None), "ranks=-3"),
        ((2, "mpi", None), "backend 'mpi' is not known; backends are auto, gloo, nccl, shared-gpu"),
        (
            (2, "nccl", None),
            'ranks=2 over NCCL, one GPU a rank, but torch sees 1; use ranks=1, or backend="shared',
        ),
        ((2, "gloo", "fork"), "start_method='fork': ranks can be started here by forkserver or spawn"),
        (
            (100, "gloo", None),
            "ranks=100 need about 34.2 GiB of memory and 16.0 GiB are free; at most ranks=46",
        ),
    ],
)
def test_what_cannot_run_is_refused(machine, asked, words: str):
    machine(gpus=1)
    with pytest.raises(ValueError) as caught:
        make_plan(*asked)
    assert words in str(caught.value)


@pytest.mark.parametrize("ranks", [2.0, "2", True])
def test_ranks_is_a_whole_number(ranks):
    with pytest.raises(TypeError, match="the number of ranks is a whole number, such as 4"):
        make_plan(ranks, "gloo", None)


@pytest.mark.parametrize("backend", ["nccl", "shared-gpu"])
def test_without_a_gpu_gloo_is_proposed(machine, backend: str):
    machine()
    with pytest.raises(ValueError, match='use backend="gloo"'):
        make_plan(1, backend, None)


def test_where_there_is_no_fork_server_ranks_are_spawned(machine, monkeypatch):
    machine()
    monkeypatch.setattr(launch.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert make_plan(2, "gloo", None).method == "spawn"


def test_fork_is_never_used():
    assert "fork" not in launch.available_methods()
