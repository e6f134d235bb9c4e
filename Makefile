# A fresh machine needs Python 3.11+ and make. Everything else is installed into .venv from pyproject.toml,
# pinned by constraints.txt.
PYTHON ?= python3
VENV   ?= .venv
DATA   ?= ../shared/data
RUN    := $(VENV)/bin/python
# Each command here starts Python anew; without compiled modules it would compile the harness and the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help redis netns browser simgrid env demo test test-python coverage nightly audit torture lint size \
        site wheel archive bench gpu figures fidelity clean clean-cache
help:           ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

env: $(VENV)/installed  ## the environment, in .venv

$(VENV)/installed: pyproject.toml constraints.txt
	@echo 'installing into $(VENV): about 2 GB, five minutes or more'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	-$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dgl]'
	-$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[balance]'
	touch $@

demo: env       ## four systems on a synthetic twin of Reddit: a table and a picture
	$(RUN) -m harness -m system=vanilla,zero_halo,cagnet,sancus dataset=twin/reddit dataset.scale=0.02 \
	  workers=4 epochs=30 results=results/demo >/dev/null
	@$(RUN) -m harness report table results/demo
	@echo; printf 'a picture: '; $(RUN) -m harness report plot results/demo --pareto --out results/demo/figures
	@echo 'try next:  $(RUN) -m harness report html results/demo --out page.html'

redis:          ## redis-server from the system's packages, where it is missing and they can be installed
	@command -v redis-server >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; } \
	  || echo "redis-server is missing and cannot be installed here: the tests that need one will be skipped"

netns:          ## ip and unshare from the system's packages, for tests that make two hosts of this one
	@command -v ip >/dev/null && command -v unshare >/dev/null \
	  || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 util-linux; } \
	  || echo "ip is missing and cannot be installed here: the tests of two hosts will be skipped"

browser:        ## chromium from the system's packages, for the tests of pages
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
	  || echo "chromium is missing and cannot be installed here: the tests of pages in a browser will be skipped"

simgrid:        ## SimGrid's Python module from the system's packages, for the tests that hold replays to it
	@/usr/bin/python3 -c 'import simgrid' 2>/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-simgrid; } \
	  || echo "SimGrid is missing and cannot be installed here: the tests that hold replays to it will be skipped"

test: env       ## the whole test suite, in two processes: one waits for its workers while the other computes
	$(RUN) -m pytest -n 2 --dist worksteal

test-python:    ## the suite under another interpreter, in an environment of its own: PYTHON=python3.13
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then $(MAKE) test PYTHON=$(PYTHON) VENV=.venv-$(notdir $(PYTHON)); \
	  else echo "skipped: $(PYTHON) is no Python 3.11 or newer here"; fi

coverage: env   ## lines of harness/ and systems/ that the suite runs, those of forked workers too; takes 1.7 times the suite's CPU time
	$(RUN) -m coverage erase
	$(RUN) -m coverage run -m pytest -n 2 --dist worksteal
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report

nightly: env    ## tests that take minutes: pages' commands in full and the like; SHARE=300 runs a day's share of 300 s
	$(RUN) -m pytest -m nightly $(if $(SHARE),--share $(SHARE)) -rs
	$(if $(SHARE),,$(MAKE) audit)  # a day's share leaves it out: what is known of others' packages changes by itself

audit:          ## known weaknesses of what constraints.txt pins, where pip-audit and its data can be had
	@$(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/python -m pip install --quiet pip-audit \
	  || { echo "skipped: pip-audit cannot be installed here"; exit 0; }; \
	said=$$($(VENV)-audit/bin/pip-audit --progress-spinner off --disable-pip --no-deps -r constraints.txt 2>&1); code=$$?; \
	echo "$$said"; case "$$said" in *"Found "*) exit 1;; esac; \
	[ $$code = 0 ] || echo "skipped: the data of pip-audit cannot be had here"

torture: env    ## kill, stop, freeze, fill the disk, damage files: an hour, or SECONDS; from SEED, or one that is drawn and printed
	$(RUN) -m tests.torture --seconds $(or $(SECONDS),3600) $(if $(SEED),--seed $(SEED)) --page docs/reliability.md

lint: env       ## rules, layout and types of the code
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lint]'
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy harness systems

size: env       ## lines by package, now and at REVISION (0d78676 where none is given)
	$(RUN) -m tests.size $(REVISION)

site: env       ## the documentation as a site in site/; a dead link or an unknown name is an error
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict

wheel:          ## build the wheel, and try it in an empty environment outside this tree
	PYTHON=$(PYTHON) .ci/wheel

archive:        ## one file to deposit: what is committed, without data; the same bytes each time
	@name=halobench-$$(sed -n 's/^version: //p' CITATION.cff); \
	  git archive --prefix=$$name/ HEAD | gzip -9n > $$name.tar.gz && sha256sum $$name.tar.gz

bench: env      ## ratios against PyG, DGL and vanilla, start-up, rooflines: all in one run
	$(RUN) -m harness bench

gpu: env        ## all that is wanted of a GPU, into results/gpu; DEVICE=cpu: a trial on the CPU
	$(RUN) -m tests.gpu_session --device $(or $(DEVICE),cuda) --out results/gpu

SIZE   ?= smoke
FIG    ?=

figures: env    ## figures and verdicts: SIZE=smoke|small|paper FIG=cdfgnn_fig7 KEEP=results/reference
	$(RUN) -m harness figures $(FIG) --size $(SIZE) --data-dir $(DATA) $(if $(KEEP),--keep $(KEEP))

fidelity: env   ## published statistics of each graph beside its twin's
	$(RUN) -m harness fidelity

clean-cache:    ## graphs and shards in results/cache; they are made again when needed
	rm -rf results/cache

clean:          ## the environments and what tests leave
	rm -rf $(VENV) .venv-* .pytest_cache .hypothesis .mypy_cache .ruff_cache .coverage .coverage.* site
