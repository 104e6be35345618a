# Tasks that are not part of the package's build.
PYTHON ?= python
NATIVE_BUILD ?= build/check-native

# The environment that scripts/test.sh makes.
VENV := .venv-test

# What is installed for the tests: this folder, or a wheel.
PACKAGE ?= .

.PHONY: changelog check check-aarch64 check-examples check-mnn check-native check-pages check-proofs check-pythons check-wheel coverage docs format-native \
  images lock notebook prose release site wheel

# What a change has to pass: the tests as in the README, with PyTorch and the site too. Then lint, types, the import
# contract, prose and the links of the documents, all in the environment that the tests made.
check:
	PACKAGE='$(PACKAGE)' EXTRAS=test,torch,docs bash scripts/test.sh
	$(VENV)/bin/pip install --quiet '$(PACKAGE)[dev]'
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/lint-imports
	$(MAKE) prose PYTHON=$(VENV)/bin/python
	$(MAKE) docs PYTHON=$(VENV)/bin/python

# The tests of MNN, in the environment of `make check`. They come last: once MNN is installed, each default compile
# compares its own programs with one of MNN too, so the other tests would take longer.
check-mnn:
	$(VENV)/bin/pip install --quiet 'MNN>=3.6.1,<3.7'
	$(VENV)/bin/pytest -q -k mnn tests/backend/test_mnn.py tests/backend/test_whole_models.py tests/backend/test_conformance.py \
	  tests/backend/test_peers.py

# The documentation as a site in build/site. A warning, such as one about a broken link, is an error; with --quiet
# warnings would not be counted. Needs the extra docs.
docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	@echo 'build/site: $(PYTHON) -m http.server --directory build/site'

# The site of one version in $(SITES)/VERSION. Its menu lists all versions that are in $(SITES): make site VERSION=0.2.0
SITES ?= build/sites
site:
	$(PYTHON) scripts/versioned_site.py '$(VERSION)' '$(SITES)'

# Checks spelling, and the prose of documents and docstrings; takes seconds. Needs the extra dev.
prose:
	$(PYTHON) -m codespell_lib
	$(PYTHON) scripts/prose.py

# Runs the notebook of examples/ and writes its output into it; the machine should be idle. Needs the extra docs.
notebook:
	$(PYTHON) scripts/run_notebook.py examples/tour.ipynb

# Makes the screenshots of docs/images: the report and the comparison of two plans. Compiles ResNet-50; needs chromium.
images:
	$(PYTHON) scripts/images.py docs/images

# Builds the native part with AddressSanitizer and UndefinedBehaviorSanitizer, and runs its check program.
check-native:
	cmake -S . -B $(NATIVE_BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCOLLAGE_SANITIZE=ON -DCOLLAGE_CHECK=ON \
	  -DPython_EXECUTABLE="$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	cmake --build $(NATIVE_BUILD)
	$(NATIVE_BUILD)/check_native

# Checks plans and forged plans of random graphs of up to 12 nodes against brute force, with 500 graphs for each test,
# and 125 where TVM makes them.
check-proofs:
	$(PYTHON) -m pytest -q --hypothesis-profile=thorough tests/unit/test_search_proofs.py tests/unit/test_tir_proofs.py \
	  tests/unit/test_search_devices.py

# Runs the code of the pages and the examples that take longest.
check-pages:
	$(PYTHON) -m pytest -q -m long tests/backend/test_page_code.py tests/backend/test_examples.py

# Runs all tests that draw examples, with new examples each time.
check-examples:
	$(PYTHON) -m pytest -q --hypothesis-profile=patient -m 'hypothesis and not gpu'

# Builds the wheel for other machines in dist/; PROCESSOR=aarch64 for another processor than this one's.
wheel:
	bash scripts/wheel.sh

# Checks the wheel on a minimal Debian 12 without a compiler. Needs root and mmdebstrap.
check-wheel: wheel
	bash scripts/check_wheel.sh

# Checks the wheel for aarch64 on an emulated machine, and programs that are made here for it. Needs root, mmdebstrap,
# qemu-user-static and g++-aarch64-linux-gnu; takes half an hour.
check-aarch64:
	PROCESSOR=aarch64 bash scripts/wheel.sh
	PYTHON='$(PYTHON)' bash scripts/check_aarch64.sh

# Checks the wheel under each python3.10 to python3.13 that is on the path.
check-pythons: wheel
	bash scripts/check_pythons.sh

format-native:
	find unity_collage/runtime/src -name '*.cc' -o -name '*.h' | xargs clang-format -i

# The tests that `make coverage` runs; tests/backend would take half an hour more.
COVERED ?= tests/unit tests/build

# A table of the lines that tests reach, by package. Needs the extra release, in the environment of the tests.
coverage:
	mkdir -p build/coverage
	$(PYTHON) -m coverage run -m pytest -q $(COVERED)
	$(PYTHON) -m coverage combine --quiet
	$(PYTHON) -m coverage json --quiet -o build/coverage/all.json
	$(PYTHON) scripts/coverage_table.py build/coverage/all.json

# Writes the versions that were tested together to requirements/tested.txt: `pip install -r requirements/tested.txt`
# before the package installs exactly these.
lock:
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --extra dev --extra docs --python-version 3.10 \
	  --universal --quiet --no-emit-index-url --custom-compile-command 'make lock' -o requirements/tested.txt

# Moves the fragments of changelog.d to CHANGELOG.md, under a heading: make changelog VERSION=0.2.0
changelog:
	@test -n '$(VERSION)' || { echo 'changelog: name the version: make changelog VERSION=0.2.0' >&2; exit 2; }
	$(PYTHON) -m towncrier build --yes --version '$(VERSION)'

# Checks, version, changelog, wheel, site, commit and tag: make release VERSION=0.2.0; with DRY_RUN=1 nothing is changed.
release:
	PYTHON='$(PYTHON)' DRY_RUN='$(DRY_RUN)' bash scripts/release.sh '$(VERSION)'
