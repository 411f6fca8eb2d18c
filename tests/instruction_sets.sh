#!/usr/bin/env bash
# instruction_sets.sh OBJDUMP NM ARCHIVE...: what is compiled for every machine must hold no AVX
# instruction. What is compiled for some machines gives the rest tables of functions only, which
# dispatch.cpp reads once it has asked the processor: no function that others could call by name, none
# that the linker could share with the rest, nothing that runs before main. Status 77 where a tool is
# missing.
set -euo pipefail
objdump=$1 nm=$2
shift 2
for tool in "$objdump" "$nm"; do
  command -v "$tool" >/dev/null || { echo "skipped: no objdump or nm here"; exit 77; }
done

status=0
for archive in "$@"; do
  "$objdump" -d --no-show-raw-insn "$archive" | awk -v archive="$archive" '
    /file format/ { member = $1; special = member ~ /^((blocks_)?avx(2|512|512_bf16|512_vnni)|amx_bf16)\.cpp\.o/ }
    !special && /%[yz]mm|\tv[a-z0-9]+ .*%xmm/ && !seen[member]++ {
      print archive ": " member " needs AVX: " $0
      bad = 1
    }
    END { exit bad }' || status=1
  # T, i: functions. W, V, u: weak or unique symbols, of which the linker keeps one for the whole program.
  "$nm" -C "$archive" 2>/dev/null | awk -v archive="$archive" '
    /\.o:$/ { special = /^((blocks_)?avx(2|512|512_bf16|512_vnni)|amx_bf16)\.cpp\.o/; member = $1 }
    special && $2 ~ /^[TiWVu]$/ { print archive ": " member " gives others " $0; bad = 1 }
    special && /_GLOBAL__sub_I/ { print archive ": " member " runs before main: " $0; bad = 1 }
    END { exit bad }' || status=1
done
exit $status
