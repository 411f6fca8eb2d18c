#!/usr/bin/env bash
# configure.sh OUT: a user's build, the quickstart's and a developer's compile each source by the same
# command, so that none compiles again what another has built; and the quickstart changes no build.
set -euo pipefail
out=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rm -rf "$out"
mkdir -p "$out/none" "$out/there/build/release"

# What the quickstart configures where there is no build yet, and where there is one.
step=$(sed -n '/^settings=/,/^cmake --preset/p' apps/quickstart.sh)
for folder in none there; do
  [ $folder = none ] || touch "$out/there/build/release/CMakeCache.txt"
  (cd "$out/$folder" && cmake() { echo "$*" >"$out/$folder.log"; } && eval "${step/>\/dev\/null/}")
done
grep -qx -e "--preset release -DFOCUS_TESTS=OFF" "$out/none.log"
grep -qx -e "--preset release" "$out/there.log"

commands() { grep -o '"command": .*' "$out/build/compile_commands.json" | sort; }
configure() { cmake --preset release -B "$out/build" "$@" >"$out/configure.log"; }
configure -DFOCUS_TESTS=OFF  # quickstart
commands >"$out/quickstart"
configure -DFOCUS_TESTS=ON -DFOCUS_WERROR=ON  # tests/run.sh
commands >"$out/tests"
grep -q -e -Werror "$out/build/generated/werror.rsp"
again=$(comm -23 "$out/quickstart" "$out/tests")
[ -z "$again" ] || { echo "compiled again for the tests: $again" >&2; exit 1; }
[ "$(wc -l <"$out/tests")" -gt "$(wc -l <"$out/quickstart")" ]
