# make book, make test: everything they need is installed into .venv first.
# Override on the command line: make book PYTHON=python3.12, make serve PORT=9000, make test-torch TORCH=2.5.1

PYTHON ?= python3
PORT ?= 8000
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
TORCH ?= 2.15.0
OTHER := .venv-torch-$(TORCH)
BOOK := _build/html
BUILD := $(BIN)/jupyter-book build . -W -n --keep-going
READY := $(VENV)/.ready
TEST_READY := $(VENV)/.test-ready

# Root on Debian or Ubuntu may install; anyone else is told what to do.
apt = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update && apt-get install -y $(1); }
# Sentences here hold no comma: make would cut them off.
say = { echo "$(1)" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help book serve lab notebooks picture test test-torch browser parity bench clean

help: ## List what you can make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| $(call say,This book needs Python 3.11 or newer: install it or name it as in \`make book PYTHON=python3.12\`.)
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(call apt,python3-venv) \
		|| $(call say,$(PYTHON) cannot create virtual environments yet: run \`sudo apt-get install python3-venv\` and try again.)
	$(PYTHON) -m venv $(VENV)

$(READY): requirements.txt pyproject.toml | $(BIN)/pip
	$(BIN)/pip install -r requirements.txt
	@touch $@

$(TEST_READY): requirements-test.txt $(READY)
	$(BIN)/pip install -r requirements-test.txt
	@touch $@

# A failed build forgets its pages: the next one reads them all again, so no warning is lost.
book: $(READY) ## Execute the notebooks and build the site
	@$(BUILD) || { rm -rf _build/.doctrees; exit 1; }
	@echo "Open $(CURDIR)/$(BOOK)/index.html"

serve: book ## Build the site and serve it on this machine
	@echo "Open http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory $(BOOK)

lab: $(READY) ## Open the notebooks in JupyterLab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks

notebooks: $(READY) ## Execute the notebooks and save them, cleaned
	$(BIN)/python tools/notebooks.py

browser: $(TEST_READY) ## Find a Chromium for the tests, or install one
	@$(BIN)/python tests/chromium.py || $(call apt,chromium) || $(BIN)/playwright install chromium
	@$(BIN)/python tests/chromium.py || $(call say,No Chromium could be installed: install chromium or google-chrome and try again.)

picture: browser ## Take the picture at the top of the README
	$(BIN)/python tools/picture.py

test: export OMP_NUM_THREADS = 1
test: browser book ## Run every test: spelling, types, links, package, notebooks, site, browser
	$(BIN)/codespell
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest --check-links --check-anchors --check-links-ignore 'https?://' $(BOOK)/book $(BOOK)/notebooks *.md
	$(BIN)/pytest -n $(JOBS) --dist loadfile --nbval --ignore tests/browser
	$(BIN)/pytest tests/browser

# All of requirements.txt but torch. PyTorch's own wheels for Linux bring several GB of CUDA.
test-torch: export OMP_NUM_THREADS = 1
test-torch: $(BIN)/pip ## Run the unit tests on another torch
	@[ -x $(OTHER)/bin/pip ] || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install torch==$(TORCH) -r requirements-test.txt $$(sed -n '/^[a-z]/{/^torch==/!p}' requirements.txt) -e .
	$(OTHER)/bin/pytest -n $(JOBS) --dist loadfile mha_widgets tests/unit

parity: export OMP_NUM_THREADS = 1
parity: $(TEST_READY) ## Compare 10000 random calls with torch
	$(BIN)/pytest tests/unit/attention/test_multihead.py --hypothesis-profile=parity --hypothesis-show-statistics

bench: browser ## Run the benchmarks
	$(BIN)/pip install --no-deps -r benchmarks/requirements.txt
	@for script in benchmarks/*.py; do echo "$$script"; $(BIN)/python "$$script" || exit 1; done

clean: ## Remove the site and all caches (.venv stays)
	rm -rf _build build dist *.egg-info .hypothesis .pytest_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -prune -exec rm -rf {} +
