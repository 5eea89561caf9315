# Two commands do everything, set-up included: make demo, make test.
SHELL := /bin/bash
export PY ?= python3

.PHONY: demo test lint bench score venv clean

venv:
	@./tests/bin/setup venv

demo: venv
	@./tests/bin/setup demo

test: venv
	@./tests/bin/setup test

lint: venv
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

score: venv
	@.venv/bin/python -m tests.triage.score

bench: venv
	@./tests/bin/setup bench
