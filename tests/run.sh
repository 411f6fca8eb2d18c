#!/usr/bin/env bash
# Installs packages, builds and passes all tests; then builds with clang and the sanitizers, fuzzes every
# loader with the same inputs every time, and runs clang-tidy over what has changed.
# `bash tests/run.sh PRESET` takes another preset than release (dev, asan-ubsan) and does not fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

preset=${1:-release}
install_packages test
if [ "$preset" = release ]; then
  bash tests/format.sh
  bash tests/words.sh
fi
cmake --preset "$preset" -DFOCUS_TESTS=ON -DFOCUS_WERROR=ON >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel "$(nproc)"
if [ "$preset" != release ]; then exit; fi
if command -v clang++ >/dev/null; then
  bash tests/fuzz/run.sh
  build/fuzz/focus --version
  bash tests/tidy.sh
else
  echo "no clang++: its build and the fuzzers are skipped; the tests run the fuzzers' seeds"
fi
