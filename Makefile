# Everything runs in a virtual environment of its own, made on first use. Each
# target installs what it needs and what is not there yet.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet

# tensorflow-cpu has wheels for x86-64 alone; elsewhere the full package.
ifneq (,$(filter x86_64 AMD64,$(shell uname -m)))
TF ?= tf-cpu
else
TF ?= tf
endif
# ScaNN needs 2.20; with another version its tests are skipped.
TENSORFLOW ?= 2.20
TENSORFLOW_PINNED = "$(TF:tf%=tensorflow%)==$(TENSORFLOW).*"
ENGINES = jax,browse,faiss,milvus,ray$(if $(filter 2.20,$(TENSORFLOW)),$(comma)$(TF:tf%=ann%))
comma := ,

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: install demo test test-all test-tf test-jax test-torch lint docs release bench clean

install: $(VENV)/.training

demo: $(VENV)/.training
	$(BIN)/python -m training.demo $(DEMO)

# What to run before a commit: four to seven minutes on two cores.
test: lint test-tf test-jax

# The rest: PyTorch, processes, browsers, compilation of each case, research.
test-all: $(VENV)/.test test-torch
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -m slow $(WORKERS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -m slow $(WORKERS) $(PORTABLE)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -m slow -n 2 $(PAGES)

# A file stays with one worker.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
PORTABLE := tests/ops tests/layers tests/losses tests/models/test_metric_learner.py
TORCH ?= 2.13.0
ON_TORCH := $(PORTABLE) tests/callbacks tests/models/test_saved_files.py \
	tests/data/test_class_balanced_sampler.py tests/data/test_preprocessing.py \
	tests/data/test_decoding.py
# What a new user runs, on PyTorch without TensorFlow.
PAGES := tests/test_commands.py tests/test_examples.py \
	-k "commands or README or own-data or flat-folder or from-pytorch"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-tf: $(VENV)/.test
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest $(WORKERS)

test-jax: $(VENV)/.test
	KERAS_BACKEND=jax $(BIN)/python -m pytest $(WORKERS) $(PORTABLE)

# PyTorch has an environment of its own, without TensorFlow. Threads of two
# workers would wait for each other.
test-torch: $(VENV)-torch/.test
	KERAS_BACKEND=torch OMP_NUM_THREADS=1 $(VENV)-torch/bin/python -m pytest $(WORKERS) $(ON_TORCH)
	KERAS_BACKEND=torch OMP_NUM_THREADS=1 $(VENV)-torch/bin/python -m pytest -m slow -n 2 $(PAGES)

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q docs build/site
	@echo build/site/index.html: written

release: $(VENV)/.test
	.ci/release $(BIN) $(TF)

bench: $(VENV)/.test
	$(BIN)/python -m training.research.benchmarks

$(VENV)/.training: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else "Python 3.11-3.13 is needed, this is %d.%d; name one with make PYTHON=..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) -e ".[$(TF),training]" $(TENSORFLOW_PINNED)
	touch $@

# keras-hub without its dependencies: they bring the full TensorFlow, which
# would be unpacked over tensorflow-cpu.
$(VENV)/.test: $(VENV)/.training
	$(PIP) -e ".[$(TF),$(ENGINES),training,datasets,test]" $(TENSORFLOW_PINNED)
	$(PIP) regex rich sentencepiece tokenizers kagglehub kagglesdk==0.1.28
	$(PIP) --no-deps --no-warn-conflicts "keras-hub==0.32.*"
	touch $@

$(VENV)-torch/.test: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-torch/bin/python -m pip install --quiet -e ".[torch,training]" \
		torch==$(TORCH) torchvision pytest pytest-xdist pandas
	touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) --no-warn-conflicts -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-torch .pytest_cache .ruff_cache
