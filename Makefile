# Every target sets up its own virtual environment on first use; a second run does no set-up work.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test docs inventories lint lowest year-before format bench release clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml lab/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "Installing pfdl and what it needs (the first time this downloads PyTorch: some minutes) ..."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable ./lab
	@touch $(READY)

setup: $(READY) ## set up the virtual environment, which every other target does too

demo: $(READY) ## a shortcut found, repaired and proved, a table that leaks, the paper in small: minutes, no data, no GPU
	$(BIN)/pfdl demo

test: $(READY) ## run the tests; COVERAGE=1 also counts the lines they run, at least 95 %
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(if $(COVERAGE),--cov --cov-report=term --cov-fail-under=95)

docs: $(READY) ## build the documentation into site/; a dead link is an error
	@rm -rf docs/reference/api # it may hold pages of classes that are gone
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --jobs auto --fail-on-warning --nitpicky --fresh-env --quiet docs site
	@echo site/index.html

inventories: $(READY) ## fetch what the documentation needs to link to other projects (needs a network; docs builds without)
	$(BIN)/python -c "import runpy; runpy.run_path('docs/conf.py')['fetch_inventories']()"

lint: $(READY) ## ruff (lint and format), mypy --strict, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The first steps of a newcomer, on other versions than those of constraints.txt
lowest: ## README's code and a training to its diagnosis, on the lowest versions that pyproject.toml allows
	$(call first-steps,lowest,--resolution lowest-direct)

year-before: ## the same, on PyTorch 2.8
	$(call first-steps,year-before,'torch==2.8.*')

define first-steps
	$(PYTHON) -m venv --clear build/$(1)
	build/$(1)/bin/python -m pip install --quiet uv
	build/$(1)/bin/uv pip install --quiet --python build/$(1) $(2) '.[images,parquet]'
	OMP_NUM_THREADS=1 build/$(1)/bin/python .github/first_steps.py
endef

release: $(READY) ## build both distributions, check them, run the demonstration from their wheels and tests from the sdist
	$(BIN)/python -m pip install --quiet build twine
	rm -rf dist build lab/build && $(BIN)/python -m build --outdir dist . >/dev/null && $(BIN)/python -m build --outdir dist lab >/dev/null
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/bare
	build/bare/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build/bare && bin/pfdl demo
	build/bare/bin/python -m pip install --quiet --constraint constraints.txt hypothesis pytest pytest-cov pytest-timeout pytest-xdist
	mkdir build/sdist && tar -xzf dist/pfdl-*.tar.gz --strip-components=1 -C build/sdist
	cd build/sdist && ../bare/bin/python -m pytest tests/test_package.py tests/decorrelation/test_functional.py

format: $(READY) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## time and memory against naive implementations, as ratios
	$(BIN)/python benchmarks/leave_one_out.py
	$(BIN)/python benchmarks/resnet_step.py
	$(BIN)/python benchmarks/tabular.py --rows 100000

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) site jupyter_execute .pytest_cache .mypy_cache .ruff_cache .coverage
