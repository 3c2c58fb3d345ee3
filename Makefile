# Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# What the wheel is tried with: tensorflow-cpu has wheels for x86-64 alone;
# elsewhere the full package.
ifneq (,$(filter x86_64 AMD64,$(shell uname -m)))
TF ?= tf-cpu
else
TF ?= tf
endif

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: install demo test test-tf test-jax lint docs release bench clean

install: $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/python -m training.demo $(DEMO)

test: lint test-tf test-jax

# A file stays with one worker; in the order of tests/conftest.py, not that of
# their numbers of tests.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-tf: $(INSTALLED)
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -m "" $(WORKERS)

test-jax: $(INSTALLED)
	KERAS_BACKEND=jax $(BIN)/python -m pytest $(WORKERS) \
		tests/ops tests/layers tests/losses \
		tests/models/test_batch_chunks.py::test_chunks_take_the_steps_of_the_whole_batch \
		tests/models/test_foundation_models.py tests/models/test_metric_learner.py \
		tests/training/test_train.py \
		tests/training/research/benchmarks/test_pooling.py

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet -f .mkdocs.yml
	@echo build/site/index.html: written

release: $(INSTALLED)
	.ci/release $(BIN) $(TF)

bench: $(INSTALLED)
	$(BIN)/python -m training.research.benchmarks

$(INSTALLED): setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else "Python 3.11-3.13 is needed, this is %d.%d; name one with make PYTHON=..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
# Not tf-cpu: keras-hub asks for the full TensorFlow, and both of them would be
# unpacked over one another.
	$(BIN)/python -m pip install --quiet -e ".[tf,jax,ann,hub,milvus,onnx,ray,training,test,docs]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
