#!/usr/bin/env bash
# Runs the ```sh blocks of README.md and docs/*.md in a folder with a tiny model and texts, each page's
# in their order, with steps and lengths cut short (tests/docs/stand_ins.sh): `bash tests/docs/run.sh
# [PROGRAM [PAGE...]]`, build/release/focus and all pages by default. Without PAGE: docs/configs.md is what
# the program prints, and docs/commands.md has every command and flag. pages.sh checks links, paths and limits.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
program=$(realpath "${1:-build/release/focus}")
shift || true
pages=("$@")
[ ${#pages[@]} -gt 0 ] || pages=(README.md docs/*.md)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" program root
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# What every page may use: DIR, a Hugging Face folder, model.gguf, and texts that its model has not seen.
prepare() {
  local start=$work/start
  mkdir -p "$start/texts"
  ln -s "$root/configs" "$start/configs"
  (
    set -e
    cd "$start"
    "$program" corpus --out train.txt --documents 12 --seed 1
    "$program" corpus --out valid.txt --documents 2 --seed 2
    "$program" corpus --out held_out.txt --documents 2 --seed 3 --separator ""
    cp train.txt texts/
    "$program" tokenizer train --text texts/ --vocab-size 300 --out tok
    "$program" train method=scratch tokenizer=tok out=tiny steps=4 data.train=train.txt \
      data.valid=valid.txt eval_windows=1 model.hidden_size=32 \
      model.num_hidden_layers=2 model.num_attention_heads=2
    "$program" export tiny/model.h5 --out DIR
    cp "$root/tests/golden/gguf/llama.gguf" model.gguf
    echo "{% for m in messages %}{{ m.role ~ ': ' ~ m.content }}\n{% endfor %}" >DIR/chat_template.jinja
    "$program" export DIR --gguf small.gguf  # in the place of a model that would be fetched
    echo '{"role": "user", "content": "Once"}' >talk.jsonl
    printf '{"prompt": "%s+1=", "completion": " %s"}\n' 1 2 2 3 3 4 4 5 >train.jsonl
    printf '{"prompt": "%s+1=", "chosen": " %s", "rejected": " 9"}\n' 1 2 2 3 3 4 4 5 >pairs.jsonl
    mkdir -p out/quickstart/base  # what the README's examples go on from
    mv tiny/model.h5 out/quickstart/base/
    cp held_out.txt out/quickstart/unseen.txt
    rm -r tiny tok
  ) >"$work/log" 2>&1
}

# The ```sh blocks of a page, each into a file of its own named by the line it starts at.
extract() {
  mkdir -p "$2"
  awk -v folder="$2" '
    /^```sh$/ { file = sprintf("%s/%05d.sh", folder, NR + 1); printf "" >file; next }
    /^```/ { file = "" }
    file != "" { print >file }
  ' "$1"
}

run_page() {
  local page=$1 name blocks block line status
  name=$(basename "$page" .md)
  blocks=$work/blocks/$name
  extract "$page" "$blocks"
  cp -r "$work/start" "$work/$name"
  for block in "$blocks"/*.sh; do
    [ -f "$block" ] || continue
    line=$((10#$(basename "$block" .sh)))
    set +e  # not "if (...)": in a condition bash would go on after a command that fails
    (
      cd "$work/$name" || exit
      set -euo pipefail
      # shellcheck source=tests/docs/stand_ins.sh
      . "$root/tests/docs/stand_ins.sh"
      # shellcheck source=/dev/null
      . "$block"
    ) >"$work/log" 2>&1 </dev/null
    status=$?
    set -e
    [ "$status" -eq 0 ] || { tail -n 20 "$work/log" && fail "$page, the block at line $line"; }
  done
}

# Installed headers, as other programs include them: where they stand here.
check_headers() {
  local page=$1 header
  while read -r header; do
    [ -e "$header" ] || [ -e "focus/$header" ] || fail "$page: no header $header"
  done < <(grep -o '<focus/[a-z0-9_/]*\.h>' "$page" | sed 's#^<focus/##; s#>$##')
}

check_commands() {
  local command flag
  "$program" --help | awk '/^  [a-z]/ { print $1 }' >"$work/command_names"
  while read -r command; do
    grep -q "^## .*\`$command\`" docs/commands.md || fail "docs/commands.md: no section \`$command\`"
    while read -r flag; do
      grep -q -- "$flag\b" docs/commands.md || fail "docs/commands.md: $command has $flag"
    done < <("$program" "$command" --help | grep -o '^  *\(-h,\)\?--[a-z0-9-]*' | grep -o -- '--.*' |
      grep -v '^--help$')
  done <"$work/command_names"
}

set +e
prepare
status=$?
set -e
[ "$status" -eq 0 ] || { tail -n 20 "$work/log" && exit 1; }
for page in "${pages[@]}"; do
  run_page "$page"
  check_headers "$page"
done
if [ $# -eq 0 ]; then
  check_commands
  bash tests/docs/configs.sh "$program" | diff -u docs/configs.md - ||
    fail "docs/configs.md is stale: bash tests/docs/configs.sh PROGRAM >docs/configs.md"
fi
[ "$failures" -eq 0 ] || exit 1
echo "docs: the commands of ${#pages[@]} pages run"
