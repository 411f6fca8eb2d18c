#!/usr/bin/env bash
# The PyTorch peers' virtual environment: `bash bench/peers/install.sh [FOLDER]`, bench/.venv unless
# said. Run again, it only looks whether all is there. pip reads its own settings: PyTorch's index of
# CPU builds in PIP_EXTRA_INDEX_URL saves the download of its GPU libraries.
# FOCUS_NATIVE_LLAMA=1 also builds llama.cpp for this CPU (a quarter of an hour on two cores).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:-bench/.venv}
packages=(numpy torch transformers peft xllamacpp)
if ! "$folder/bin/python" -m pip show --quiet "${packages[@]}" 2>/dev/null; then
  python3 -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet "${packages[@]}"
fi
if [ -n "${FOCUS_NATIVE_LLAMA:-}" ]; then
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" "$folder/bin/python" -m pip install --quiet llama-cpp-python
fi
