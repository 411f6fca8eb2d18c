#!/usr/bin/env bash
# one_precision.sh NM OBJECT...: what is compiled once for float and double must not know tensors,
# whose names are the same in both.
set -euo pipefail
nm=$1
shift
command -v "$nm" >/dev/null || { echo "skipped: no nm here"; exit 77; }
status=0
for object in "$@"; do
  if "$nm" -C "$object" | grep -E '\bfocus::(Tensor|Variable|TensorSource|PublishedTensor)\b'; then
    echo "$object: its source knows Real, and its folder is one of SAME (CMakeLists.txt): put it into another"
    status=1
  fi
done
exit $status
