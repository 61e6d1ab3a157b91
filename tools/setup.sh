#!/bin/sh
# Make .venv from requirements/dev.txt and put the project into it; do nothing when it is up to date.
#
#   PYTHON=python3.13 tools/setup.sh        with this interpreter
#
# Needs Python 3.11 or newer with venv and ensurepip, and nothing else. Says what to install when they are missing.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        printf '%s\n' "$PYTHON"
        return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
}

say_what_to_install() {
    say "  Debian, Ubuntu:  sudo apt-get install python3 python3-venv python3-pip make git"
    say "                   (where python3 is older than 3.11: python3.11 python3.11-venv)"
    say "  Fedora:          sudo dnf install python3 python3-pip make git"
    say "  macOS:           brew install python@3.13"
    say "Then: make setup, or make setup PYTHON=/path/to/python3.13"
}

python=$(find_python)
if [ -z "$python" ]; then
    say "setup: no Python 3.11 or newer was found. Install one:"
    say_what_to_install
    exit 1
fi
if ! is_new_enough "$python"; then
    say "setup: $python is not Python 3.11 or newer ($("$python" --version 2>&1 || true)). Install one:"
    say_what_to_install
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    say "setup: $python has no venv or no ensurepip, which make an environment. Install them:"
    say_what_to_install
    exit 1
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
stamp=.venv/.made-from
version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
pins="python $version, pins $(cksum <requirements/dev.txt)"
project="$pins, project $(cksum <pyproject.toml), in $(pwd)"

if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$project" ]; then
    exit 0
fi
if ! .venv/bin/python -c "import sys; sys.exit(sys.version_info[:2] != tuple(map(int, '$version'.split('.'))))" 2>/dev/null ||
    ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "setup: making .venv with $python ($version)"
    if ! "$python" -m venv --clear .venv; then
        say "setup: $python could not make .venv. Install what it names, or:"
        say_what_to_install
        exit 1
    fi
fi
case $(cat "$stamp" 2>/dev/null) in
"$pins,"*) ;;
*)
    say "setup: installing the pinned packages"
    .venv/bin/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
    ;;
esac
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
printf '%s' "$project" >"$stamp"
say "setup: .venv is ready ($(.venv/bin/python --version))"
