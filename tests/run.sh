#!/usr/bin/env bash
# Installs packages, builds and passes all tests. `bash tests/run.sh PRESET` takes another preset
# than release (dev, asan-ubsan).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

preset=${1:-release}
install_packages test
cmake --preset "$preset" -DFOCUS_TESTS=ON >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset"
