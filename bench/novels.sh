# Sourced by scripts that divide the training novels of DATA, `$novels`, the same way.

# some CONDITION: those whose place in the alphabet, NR, is so, with commas between.
some() {
  find "$novels/train" -name '*.xz' | sort | awk "$1" | paste -sd, -
}
# Those of the bases' short stages, and the half that B2 is made of, which has all of them.
short_novels='NR % 3 == 1'
half_novels="$short_novels || NR % 6 == 2"
# Letters of Shakespeare's plays that B2 is made of.
play_letters=1000000
