#!/usr/bin/env bash
# clang-tidy by .clang-tidy: `bash tests/tidy.sh all`, or of the sources named, or without any of
# those that differ from main's last commit (at most TIDY_MOST of them, so that CI ends in time).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang-tidy >/dev/null || { echo "tidy: skipped: no clang-tidy"; exit 0; }

case "${1:-}" in
  all) sources=$(git ls-files 'autograd/*.cpp' 'data/*.cpp' 'layers/*.cpp' 'optim/*.cpp' \
    'focus/*.cpp' 'apps/*.cpp') ;;
  "")
    base=$(git merge-base HEAD origin/main 2>/dev/null || true)
    if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
      base=$(git rev-parse --verify -q HEAD~1 || git rev-parse HEAD)
    fi
    sources=$(git diff --name-only --diff-filter=d "$base" -- 'autograd/*.cpp' 'data/*.cpp' \
      'layers/*.cpp' 'optim/*.cpp' 'focus/*.cpp' 'apps/*.cpp' | head -n "${TIDY_MOST:-8}")
    ;;
  *) sources=$(printf '%s\n' "$@") ;;
esac
[ -n "$sources" ] || { echo "tidy: nothing has changed"; exit 0; }

# Commands as clang understands them: each source for itself, without a precompiled header.
cmake --preset clang -B build/tidy -DFOCUS_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  >/dev/null
# kernels.inc is compiled for machines that clang-tidy need not know.
{ grep -v '^autograd/simd/' <<<"$sources" || true; } | xargs -r -P "$(nproc)" -n 1 \
  clang-tidy -p build/tidy --quiet --warnings-as-errors='*' 2>/dev/null
