#!/usr/bin/env bash
# Installs packages, builds and passes all tests, then fuzzes every loader for 20 seconds.
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
  # The same way every time: what fails here has to do with what was changed.
  FOCUS_FUZZ_SEED=1 bash tests/fuzz/run.sh 20
else
  echo "no clang++: the fuzzers were left out, their seeds are among the tests"
fi
