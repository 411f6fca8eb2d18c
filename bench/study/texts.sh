# shellcheck shell=bash disable=SC2034
# Sourced by bases.sh and run.sh: how they divide the novels of DATA (`$novels`) and make texts in `$texts` with `$focus`.
: "${novels:?}" "${texts:?}" "${focus:?}"

# some CONDITION: the novels whose place in the alphabet, NR, meets it, separated by commas.
some() {
  find "$novels/train" -name '*.xz' | sort | awk "$1" | paste -sd, -
}
# The novels of the short stages, and the half that B2 is trained on, which contains them.
short_novels='NR % 3 == 1'
half_novels="$short_novels || NR % 6 == 2"
# Letters of Shakespeare's plays that B2 is trained on.
play_letters=1000000

# corpus NAME OPTION...
corpus() {
  if [ ! -f "$texts/$1.txt" ]; then
    "$focus" corpus --overwrite --out "$texts/$1.partial" "${@:2}"
    mv "$texts/$1.partial" "$texts/$1.txt"
  fi
}
# questions NAME OPTION...: documents of documents.py.
questions() {
  if [ ! -f "$texts/$1.txt" ]; then
    python3 bench/study/documents.py --out "$texts/$1.partial" "${@:2}"
    mv "$texts/$1.partial" "$texts/$1.txt"
  fi
}

# echoes NAME NOVEL,NOVEL... COUNT LENGTH,LENGTH...: passages, COUNT of each novel, of one of these numbers of letters,
# each repeated once or twice.
echoes() {
  if [ -f "$texts/$1.txt" ]; then return; fi
  python3 - "$texts/$1.partial" "$2" "$3" "$4" <<'PY'
import lzma
import pathlib
import random
import sys

out, novels, count, lengths = sys.argv[1:]
draw = random.Random(5)
documents = []
for novel in novels.split(","):
    text = " ".join(lzma.open(novel, "rt", encoding="utf-8").read().split())
    for _ in range(int(count)):
        length = int(draw.choice(lengths.split(",")))
        start = text.find(" ", draw.randrange(len(text) - length - 50)) + 1
        passage = text[start : start + length].rsplit(" ", 1)[0]
        documents.append("\n".join([passage] * draw.choice([2, 3])))
draw.shuffle(documents)
pathlib.Path(out).write_text("\n<|endoftext|>\n".join(documents), encoding="utf-8")
PY
  mv "$texts/$1.partial" "$texts/$1.txt"
}
