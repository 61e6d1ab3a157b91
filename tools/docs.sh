#!/bin/sh
# Build the pages under docs/ into docs/_build; warnings are errors. Installs the pinned packages for it first.
set -eu
cd "$(dirname "$0")/.."

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
stamp=.venv/.docs-made-from
pins=$(cksum <requirements/docs.txt)
if [ "$(cat "$stamp" 2>/dev/null)" != "$pins" ]; then
    .venv/bin/python -m pip install --quiet --require-hashes --requirement requirements/docs.txt
    printf '%s' "$pins" >"$stamp"
fi
.venv/bin/python -m tools.references --check
.venv/bin/python -m sphinx -q -W --keep-going -n -b html docs docs/_build
echo "docs/_build/index.html"
