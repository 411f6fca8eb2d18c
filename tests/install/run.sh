#!/usr/bin/env bash
# run.sh BUILD FOCUS: installs the build into a folder of its own, builds examples/cpp against it as
# a reader would, and every header that was installed by itself; then runs the examples on a small
# model that the program trains and writes as transformers do.
set -euo pipefail
build=$(realpath "$1") focus=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$build/install_test
rm -rf "$out"
mkdir -p "$out"

cmake --install "$build" --prefix "$out/prefix" >/dev/null
"$out/prefix/bin/focus" --version
! grep -rnE '#include "(autograd|data|layers|optim|focus)/' "$out/prefix/include" ||
  { echo "these includes name the source tree" >&2; exit 1; }
! grep -rn "$(dirname "$(dirname "$here")")" "$out/prefix/lib/"*/cmake "$out/prefix/lib/cmake" \
  2>/dev/null || { echo "the package names the source tree" >&2; exit 1; }

# Someone else's flags and language: no C, warnings as errors, nothing of ours.
for project in "$here/../../examples/cpp" "$here"; do
  name=$(basename "$project")
  cmake -G Ninja -S "$project" -B "$out/$name" -DCMAKE_PREFIX_PATH="$out/prefix" \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$out/$name.log" ||
    { cat "$out/$name.log" >&2; exit 1; }
  cmake --build "$out/$name" -j 2 >>"$out/$name.log" 2>&1 || { cat "$out/$name.log" >&2; exit 1; }
done

cd "$out"
export XDG_CACHE_HOME=$out/cache
"$focus" corpus --out train.txt --documents 60 --seed 1
"$focus" corpus --out unseen.txt --documents 2 --seed 2 --separator ""
"$focus" tokenizer train --text train.txt --vocab-size 512 --out tokenizer >tokenizer.log
"$focus" train "$here/base.yaml" out=base "data.train=train.txt" >base.log
"$focus" export base/model.h5 --out model >export.log
cpp/generate model "Once upon a time" | tee generate.log
grep -q "^[0-9]* tokens, .* dense" generate.log
for word in dense summary; do grep -q "^$word .*perplexity [0-9]" generate.log; done
cpp/retrofit model train.txt unseen.txt | tee retrofit.log
for word in dense soft hard:2; do grep -q "^$word *perplexity [0-9]" retrofit.log; done
cpp/new_mechanism model train.txt
cpp/new_grouping model unseen.txt | tee grouping.log
for word in dense hard:1 summary:2; do grep -q "^$word *perplexity [0-9]" grouping.log; done
