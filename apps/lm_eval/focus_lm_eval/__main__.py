"""`python -m focus_lm_eval ...`: the harness's own command, with `--model focus` known to it."""

import focus_lm_eval  # noqa: F401  registers the model
from lm_eval.__main__ import cli_evaluate

cli_evaluate()
