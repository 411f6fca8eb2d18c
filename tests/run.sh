#!/usr/bin/env bash
# Installs packages, builds and passes all tests, then fuzzes every loader with the same inputs every time.
# `bash tests/run.sh PRESET` takes another preset than release (dev, asan-ubsan) and does not fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

preset=${1:-release}
install_packages test
cmake --preset "$preset" -DFOCUS_TESTS=ON >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset"
if [ "$preset" != release ]; then exit; fi
if command -v clang++ >/dev/null; then
  bash tests/fuzz/run.sh
else
  echo "no clang++: the fuzzers were left out, their seeds are among the tests"
fi
