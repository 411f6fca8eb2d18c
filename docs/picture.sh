#!/usr/bin/env bash
# Takes one chart out of a page of focus report, as a separate SVG file: `bash docs/picture.sh
# out/quickstart/report.html "Perplexity against attention density" >docs/quickstart.svg`.
set -euo pipefail
awk -v title="$2" '
  /^<style>$/ { in_style = 1; next }
  /^\* \{|^<\/style>$/ { in_style = 0 }  # what follows styles the page, not its charts
  in_style { style = style $0 "\n" }
  index($0, "<svg viewBox") && index($0, "aria-label=\"" title "\"") {
    sub("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ")
    print
    printf "<style>\n%s</style>\n<rect width=\"100%%\" height=\"100%%\" style=\"fill: var(--page)\"/>\n", style
    inside = 1
    next
  }
  inside { print }
  inside && /^<\/svg>/ { inside = 0; found = 1 }
  END { exit !found }
' "$1" || { echo "picture.sh: $1 has no chart \"$2\"" >&2 && exit 1; }
