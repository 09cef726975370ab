import pytest

from playbook.collectives import OPERATIONS, algorithms, collective

EVERY = [(op, name) for name, algorithm in algorithms().items() for op in algorithm.phases]


def test_the_folder_holds_the_algorithms_that_are_built():
    assert {"ring", "direct"} <= set(algorithms())


def test_every_algorithm_does_known_operations_and_says_where_it_is_from():
    for algorithm in algorithms().values():
        assert set(algorithm.phases) <= set(OPERATIONS)
        assert algorithm.source
        assert algorithm.summary


@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize(("op", "algorithm"), EVERY)
def test_every_algorithm_ends_with_every_rank_holding_what_the_operation_promises(op, algorithm, ranks):
    made = collective(op, algorithm, ranks)
    wanted = OPERATIONS[op].wants(ranks)
    assert all(made.states[-1][rank][chunk] == whole for (rank, chunk), whole in wanted.items())
    assert sum(made.finished(len(made.steps))) == len(wanted)


@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize(("op", "algorithm"), EVERY)
def test_the_closed_form_of_the_load_equals_the_count_of_chunks_sent(op, algorithm, ranks):
    made = collective(op, algorithm, ranks)
    sent = [[sum(t.src == rank for t in step) for rank in range(ranks)] for step in made.steps]
    assert made.load == tuple(max(step) for step in sent)
    assert sum(made.load) == max((sum(step[rank] for step in sent) for rank in range(ranks)), default=0)


@pytest.mark.parametrize(("op", "algorithm"), EVERY)
def test_no_rank_sends_to_itself_or_twice_the_same(op, algorithm):
    for step in collective(op, algorithm, 7).steps:
        assert all(transfer.src != transfer.dst for transfer in step)
        assert len(set(step)) == len(step)


@pytest.mark.parametrize(("op", "algorithm"), EVERY)
def test_every_step_has_a_phase_and_one_sentence_a_rank(op, algorithm):
    made = collective(op, algorithm, 5)
    for step in range(1, len(made.steps) + 1):
        assert made.phase_of(step)
        assert all(text.startswith("rank ") for text in made.sentences(step))
        assert made.summary(step).endswith(".")


def test_an_unknown_operation_lists_the_valid_ones():
    with pytest.raises(
        ValueError, match="'all_scatter' is not a collective; use one of all_reduce, all_gather"
    ):
        collective("all_scatter")


def test_an_unknown_algorithm_lists_those_for_the_operation():
    with pytest.raises(
        ValueError, match="'tree' is not an algorithm for all_reduce; use one of direct, ring"
    ):
        collective("all_reduce", "tree")


def test_names_ignore_case_and_dashes():
    made = collective("All-Reduce", "RING", 2)
    assert (made.op, made.algorithm) == ("all_reduce", "ring")


@pytest.mark.parametrize("ranks", [0, -3])
def test_fewer_ranks_than_one_are_refused(ranks):
    with pytest.raises(ValueError, match=f"ranks={ranks}; use 1 or more"):
        collective("all_reduce", "ring", ranks)


def test_ranks_that_are_no_whole_number_are_a_type_error():
    with pytest.raises(TypeError, match="ranks=2.5"):
        collective("all_reduce", "ring", 2.5)
