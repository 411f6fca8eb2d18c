#!/usr/bin/env bash
# Finds words that README.md, CONTRIBUTING.md and docs/ should not use, and says what to write instead: `bash
# tests/words.sh`. docs/configs.md is left out: the program writes it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A pattern, a tab, what to write instead.
banned=$(
  cat <<'TABLE'
words said again	copy accuracy
\b(is|was) not said\b	unspecified, by default
\bin turns\b	interleaved
\bthe way back\b	backward pass
\bstands?\b	is, lies, precedes
\bwanted\b	expected, required
\bis told\b	is reported
\banew\b	again
\bheld against\b	compared with, verified against
\bgo(es)? on (from|with|beyond)\b	continues
\bfar tokens\b	long-range tokens, distant tokens
\brivals?\b	baselines
\brecipes?\b	config; steps
\bsummary columns?\b	summary tokens
\bthe words of\b	attention spec
\bputs? .* onto\b	adds, attaches
\btak(es?|en) off\b	detach, remove
\bof its own\b	own, separate
\bnumbers that are none\b	non-finite values
\bcame of\b	outcome
TABLE
)

pages=()
for page in README.md CONTRIBUTING.md docs/*.md; do
  [ "$page" = docs/configs.md ] || pages+=("$page")
done
failed=0
while IFS=$'\t' read -r pattern instead; do
  if found=$(grep -nE "$pattern" "${pages[@]}"); then
    printf '%s\n  write instead: %s\n' "$found" "$instead"
    failed=1
  fi
done <<<"$banned"
[ "$failed" -eq 0 ] || exit 1
echo "words: ${#pages[@]} pages use none of $(wc -l <<<"$banned") patterns"
