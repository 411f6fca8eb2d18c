#!/usr/bin/env bash
# Counts the options of all commands and the keys of the configs: `bash tests/docs/interfaces.sh
# [PROGRAM]` prints them and fails if there are more than the limits.
set -euo pipefail
program=${1:-build/release/focus}
most_options=199 most_keys=129

options=0
while read -r command; do
  count=$("$program" $command --help | grep -cE '^ +--[a-z]' || true)  # without -h,--help
  printf '%-20s %s\n' "$command" "$count"
  options=$((options + count))
done < <(
  "$program" --help | awk '/^  [a-z]/ { print $1 }'
  printf 'tokenizer %s\n' train encode decode
  printf 'speed --%s\n' decode step
)
keys=0
for command in train compare; do
  count=$("$program" $command --help | grep -cE '^[a-z][a-z0-9_.]* +\(' || true)
  printf 'keys of %-12s %s\n' "$command" "$count"
  keys=$((keys + count))
done
echo "$options options (at most $most_options), $keys keys (at most $most_keys)"
[ "$options" -le "$most_options" ] && [ "$keys" -le "$most_keys" ]
