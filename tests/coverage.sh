#!/usr/bin/env bash
# Builds with GCC's coverage counters, runs the tests and prints the share of lines and branches that they reach, by
# folder and in all: `bash tests/coverage.sh`, half an hour on 2 cores. out/coverage/index.html shows each source.
# Counters make computation eight times slower, so whole texts (reference) and faults (reliability) are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

install_packages coverage
cmake --preset coverage >/dev/null
cmake --build --preset coverage
find build/coverage -name '*.gcda' -delete
status=0
ctest --preset coverage --label-exclude "reference|reliability" --parallel "$(nproc)" || status=$?
mkdir -p out/coverage
gcovr --root . --object-directory build/coverage -j "$(nproc)" --gcov-ignore-parse-errors \
  --filter '(apps|autograd|data|focus|layers|optim)/' --exclude-throw-branches --json out/coverage/lines.json
for folder in apps autograd data focus layers optim; do
  printf '%-10s' "$folder"
  gcovr --root . -a out/coverage/lines.json --filter "$folder/" --print-summary | grep '^lines:'
done
gcovr --root . -a out/coverage/lines.json --print-summary --html-details out/coverage/index.html
[ "$status" -eq 0 ] || echo "coverage: some tests failed: the figures are those of the rest" >&2
exit "$status"
