#!/usr/bin/env bash
# Writes requirements.lock: the exact versions that `make demo` and `make test` install.
# torch is pinned by hand, without a build tag, so that a machine takes the build it has (CPU or CUDA); what that build
# brings along (nvidia-*, triton) is left to it.
set -euo pipefail
cd "$(dirname "$0")/.."
TORCH="torch==2.13.0"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
pip="$work/venv/bin/python -m pip --disable-pip-version-check"
# the group, as lines: `pip install --group` needs pip 25.1, and Python 3.10 has no tomllib
"$work/venv/bin/python" - > "$work/dev" <<'GROUP'
try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["dependency-groups"]["dev"], sep="\n")
GROUP
$pip install --quiet "$TORCH" "setuptools>=77"
$pip install --quiet --no-build-isolation . -r "$work/dev"
{
  echo "# Written by scripts/lock.sh (make lock) from pyproject.toml; edit that instead."
  echo "$TORCH"
  $pip freeze --all | grep -viE '^(pip|torch|profiler-kit|triton|nvidia-[a-z0-9-]*|cuda-[a-z0-9-]*)([ =@]|$)' | grep -v '^-e'
} > "$work/requirements.lock"
mv "$work/requirements.lock" requirements.lock
