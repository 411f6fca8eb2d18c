"""`python -m focus_attention ARGS`: the program focus."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = os.environ.get("FOCUS_PROGRAM") or str(Path(__file__).with_name("focus"))
    try:
        os.execv(program, ["focus", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}; FOCUS_PROGRAM names the program where it is elsewhere")


if __name__ == "__main__":
    main()
