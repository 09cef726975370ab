# make lab   set everything up and open the notebooks      make test    set everything up and run every test
# make bench the performance table of the README           make lint    style, types and import contracts
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# A torch 2.11 to 2.13 that PYTHON already imports stays the user's choice (CPU-only, another CUDA): it is kept.
TORCH := $(shell $(PYTHON) -c "import torch; print(torch.__version__)" 2>/dev/null | grep -E '^2\.1[123]\.')

.PHONY: lab test bench lint
lab: $(READY)
	$(BIN)/playbook lab
test: $(READY)
	$(BIN)/python -m pytest -n 2 $(ARGS)
bench: $(READY)
	$(BIN)/python -m benchmarks
lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/lint-imports

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(if $(TORCH),--system-site-packages) .venv
	$(if $(TORCH),sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > .venv/constraints.txt,cp constraints.txt .venv/constraints.txt)
	$(BIN)/python -m pip install -q -c .venv/constraints.txt -e ".[test]"
	touch $(READY)
