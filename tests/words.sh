#!/usr/bin/env bash
# Finds words that the pages (README.md, CONTRIBUTING.md, docs/), the texts that the program prints (string literals) and
# comments should not use, and says what to write instead: `bash tests/words.sh`. The program writes docs/configs.md.
# `bash tests/words.sh FOLDER...` looks at the comments below these folders only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A pattern, a tab, what to write instead. The second table is for what the program prints.
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
(?<!/)\brivals?\b	baselines
\brecipes?\b	config; steps
\bsummary columns?\b	summary tokens
\bthe words of\b	attention spec
\bputs? .* onto\b	adds, attaches
\btak(es?|en) off\b	detach, remove
\bof its own\b	own, separate
\bnumbers that are none\b	non-finite values
\bcame of\b	outcome
\bof several\b	with several
\b(are|is) (else|passed over)\b|, else (the|of|as)\b|\bor else\b	otherwise; ignored
\b(as (it|they)|they|it|these|which) lies?\b	unchanged; is
\bin the place of\b	instead of
\bhas to be one that\b	must
\b(dealt out|is waited for|is no part of)\b	divided; waits for; is not part of
\bgets? its name\b	is named
\b(a|the|one|another) stores?\b	a checkpoint file
\b(are told (of|apart)|go(es)? by it|says? nothing of|says how much)\b	reported, distinguished; uses; does not show
\bin the mean\b	on average
\bby way of\b|\bunless said\b	through; by default
\bwhat .* put there\b	specified by
\b(a line each|an object a line|Every method goes|tokens of a window|made on the spot)\b	one per line; all methods; tokens per window; generated
\bread again\b|\bseam\b|\bfaster by\b	reread; interface; faster with
TABLE
)
banned_in_program=$(
  cat <<'TABLE'
\b([Gg]o|goes) (on|onto|with|without)\b	continues; cannot be combined with
\b(put onto|put beside|goes beside|passed over)\b	attached to; next to; ignored
\b(a|the|one|another) stores?\b	checkpoint file
(?<!there )\b(is|are) (no|none of)\b	is not a, are not
\bof their own\b|\bof several,	own, separate; with a list
\balone\b|[,;] else\b|\bor else\b	only; otherwise
\b[Ff]ar (pairs|answers|before|back)\b	distant pairs, long-range
\bwants?\b|\bis told of\b|\btells of\b	needs, expects; reports
\bthere twice\b|\bin the mean\b|\bbeyond what\b	appears twice; on average; outside the range of
TABLE
)

banned_in_comments=$(
  cat <<'TABLE'
//+<? Of\b	a sentence with subject and verb
\bbe it\b	whether, even if
\b(is|are) none\b	there is no; does not have
\banew\b	again
\bgo(es)? on\b|\bgoing on\b	continues
\bstand(s|ing)?\b	is, lies, precedes
\b(is|are|was|be) told\b|\btold (of|apart|by)\b	is reported, is distinguished
\b(is|are|was) not said\b|\bis said\b|\bunless said\b	is specified, is given
TABLE
)

pages=$(ls README.md CONTRIBUTING.md docs/*.md | grep -v '^docs/configs.md$' | xargs grep -nH '')
# Comments and #include lines are left out.
literals=$(git ls-files {apps,autograd,data,focus,layers,optim}/{'*.cpp','*.h'} |
  xargs grep -nHoP '^\s*(//|#include).*(*SKIP)(*F)|"([^"\\]|\\.)*"')
failed=0
check() {  # LINES TABLE
  while IFS=$'\t' read -r pattern instead; do
    ! grep -P "$pattern" <<<"$1" || { echo "  write instead: $instead" && failed=1; }
  done <<<"$2"
}
comments=$(git ls-files "${@:-.}" | grep -E '\.(cpp|h|inc)$' | xargs grep -nHoP '(^|[;{}), ])\s*//+<? .*')
check "$comments" "$banned_in_comments"
[ $# -eq 0 ] || exit "$failed"
check "$pages" "$banned"
check "$literals" "$banned"$'\n'"$banned_in_program"
[ "$failed" -eq 0 ] || exit 1
echo "words: the pages, $(wc -l <<<"$literals") literals of the program and $(wc -l <<<"$comments") comments use none of the listed words"
