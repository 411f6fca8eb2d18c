"""What sparse attention costs a model on a text: compare_attentions.py MODEL FIT_TEXT TEXT [ATTENTION...]."""

import sys
from pathlib import Path
from typing import List

import focus_attention


def compare(base: str, fit_text: Path, text: Path, attentions: List[str]) -> focus_attention.Evaluations:
    with focus_attention.load(base) as model:
        fit = model.fit(fit_text)
        print(f"K={fit.num_groups}, fitted on {fit.tokens} tokens in windows of {fit.context}")
        return model.evaluate(text, attentions, against="dense")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        rows = compare(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:] or ["dense", "summary:8", "summary:2"])
    except focus_attention.FocusError as error:
        sys.exit(str(error))
    for row in rows:
        print(f"{row.attention:<40} {100 * row.pairs_attended:5.1f} % of the pairs, perplexity {row.perplexity:.3f}, "
              f"KL {row.kl or 0:.4f}")
