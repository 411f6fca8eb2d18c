#!/usr/bin/env bash
# Checks what needs no program: `bash tests/docs/pages.sh`. Links of every page lead to a file and a heading; files and
# folders that pages, configs and scripts name exist; pages keep their limits of lines and width; bench/study stays small.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

mapfile -t pages < <(find README.md docs bench apps examples tests configs -name '*.md' -not -path '*/.venv/*' | sort)
mapfile -t others < <(find .ci/run configs bench apps tests -type f \
  \( -name '*.yaml' -o -name '*.sh' -o -name '*.py' -o -name run \) \
  -not -path '*/.venv/*' -not -path 'tests/golden/*' -not -path 'tests/fuzz/seeds/*' | sort)

# Anchors of a page's headings, as Markdown viewers make them.
anchors() {
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" |
    sed -E 's/^#+ +//; s/[^A-Za-z0-9 _-]//g; s/ /-/g' | tr '[:upper:]' '[:lower:]'
}

check_links() {
  local page=$1 link target anchor
  while read -r link; do
    target=${link%%#*}
    anchor=${link#"$target"}
    target=${target:+$(dirname "$page")/$target}
    target=${target:-$page}
    if [ ! -e "$target" ]; then
      fail "$page: no $link"
    elif [ -n "$anchor" ]; then
      anchors "$target" | grep -qx -- "${anchor#\#}" || fail "$page: no heading $link"
    fi
  done < <(tr '\n' ' ' <"$page" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -v '^https\?:' | sort -u || true)
}

# Of a page what stands in backticks or blocks of code, of other files all: paths that begin with a folder of this
# repository. NAME stands for any.
check_paths() {
  local file=$1 path
  while read -r path; do
    case $path in *NAME* | *.venv* | *'$'*) continue ;; esac
    compgen -G "$path" >/dev/null || compgen -G "$(dirname "$file")/$path" >/dev/null || fail "$file: no $path"
  done < <(
    if [[ $file == *.md ]]; then
      awk '/^```/ { code = !code; next } code' "$file"
      # shellcheck disable=SC2016
      awk '/^```/ { code = !code; next } !code' "$file" | tr '\n' ' ' | grep -oE '`[^`]+`' || true
    else
      cat "$file"
    fi | grep -oE "(^|[\` ,(\"'=])(apps|autograd|bench|configs|docs|examples|focus|layers|optim|tests)/[A-Za-z0-9_*./\$-]+[A-Za-z0-9_*/]" |
      sed -E "s/^[\` ,(\"'=]//" | sort -u || true
  )
}

check_lines() {
  local most=$1 lines
  shift
  lines=$(cat "$@" | wc -l)
  [ "$lines" -le "$most" ] || fail "$*: $lines lines, at most $most"
}

# Prose, not tables, code and generated pages.
check_width() {
  local page=$1
  awk -v most=125 '/^```/ { code = !code } !code && !/^\|/ && length > most { print FNR ": " length " letters" }' "$page" |
    while read -r line; do echo "$page, line $line"; done
}

for page in "${pages[@]}"; do
  check_links "$page"
  check_paths "$page"
  case $page in
    docs/configs.md | bench/results/README.md | bench/study/tables/*) continue ;;
    docs/* | bench/*) wide=$(check_width "$page") ;;
    *) continue ;;
  esac
  [ -z "$wide" ] || fail "too wide: $wide"
done
for file in "${others[@]}"; do check_paths "$file"; done
check_lines 200 README.md
check_lines 400 docs/results.md
check_lines 212 docs/speed.md
check_lines 100 docs/reliability.md
check_lines 2705 docs/*.md
bytes=$(find bench/study -type f -not -path '*/__pycache__/*' -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
[ "$bytes" -le 1500000 ] || fail "bench/study has $bytes bytes, at most 1,500,000"
[ "$failures" -eq 0 ] || exit 1
echo "docs: links, paths and limits of ${#pages[@]} pages hold"
