#!/usr/bin/env bash
# Import, export and adapters against the real transformers and PEFT: `bash tests/interop/run.sh
# [PROGRAM]`, build/release/focus unless said; with --install instead it only fetches what that takes.
# Uses the interpreter that FOCUS_PEERS_PYTHON names where it has torch, transformers and safetensors,
# else a virtual environment of its own under build/, for which pip gets FOCUS_INTEROP_SECONDS (600),
# lm_eval what the others have left of it. Ends with 77 and one line where the packages cannot be had;
# where peft, trl, lm_eval or openai alone is missing, LoRA, DPO, the harness or the client is left out and a line says so.
# What pip gets are the versions that all of this was last seen to pass with, so that a release of theirs
# breaks nothing here unasked; FOCUS_INTEROP_NEWEST=1 takes the newest instead.
# pip reads its own settings: PyTorch's index of CPU builds in PIP_EXTRA_INDEX_URL saves the download
# of its GPU libraries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. apps/packages.sh

program=${1:-build/release/focus}
venv=build/interop-venv
torch=torch==2.15.0 transformers=transformers==5.24.0 peft=peft==0.21.2 lm_eval=lm_eval==0.4.13
openai=openai==3.57.0 tenacity=tenacity==9.2.1 trl=trl==1.16.0 tensorboard=tensorboard==2.21.0
matplotlib=matplotlib==3.11.2 mypy=mypy==2.4.1
[ -z "${FOCUS_INTEROP_NEWEST:-}" ] || torch=torch transformers=transformers peft=peft lm_eval=lm_eval openai=openai tenacity=tenacity trl=trl tensorboard=tensorboard matplotlib=matplotlib mypy=mypy
xllamacpp=xllamacpp==2026.10.11549 sentencepiece=sentencepiece==0.2.3 protobuf=protobuf==7.36.2
[ -z "${FOCUS_INTEROP_NEWEST:-}" ] || xllamacpp=xllamacpp sentencepiece=sentencepiece protobuf=protobuf
has_packages() { "$1" -c 'import safetensors.torch, torch, transformers' >/dev/null 2>&1; }
has_lm_eval() { "$1" -c 'import datasets, lm_eval.models.huggingface' >/dev/null 2>&1; }
has_llama_cpp() { "$1" -c 'import xllamacpp' >/dev/null 2>&1; }
has_sentencepiece() { "$1" -c 'import google.protobuf, sentencepiece' >/dev/null 2>&1; }
has_trl() { "$1" -c 'import tensorboard, trl' >/dev/null 2>&1; }
has_mypy() { "$1" -c 'import matplotlib, mypy' >/dev/null 2>&1; }
has_peft() { "$1" -c 'import peft' >/dev/null 2>&1; }
skip() {
  echo "interop: skipped: $1"
  exit 77
}

[ "$program" = --install ] || [ -x "$program" ] || { echo "interop: no program $program; build it first" >&2; exit 1; }
if [ -n "${FOCUS_PEERS_PYTHON:-}" ] && has_packages "$FOCUS_PEERS_PYTHON"; then
  python=$FOCUS_PEERS_PYTHON
else
  python=$venv/bin/python
  if ! { [ -x "$python" ] && has_packages "$python" && has_peft "$python" && has_lm_eval "$python"; }; then
    install_packages interop >/dev/null 2>&1 || skip "python3-venv could not be installed"
    python3 -m venv "$venv" 2>/dev/null || skip "python3 cannot make a virtual environment"
    seconds=${FOCUS_INTEROP_SECONDS:-600} SECONDS=0
    install() { timeout "$1" "$python" -m pip install --quiet --retries 1 "${@:2}" >/dev/null 2>&1; }
    install "$seconds" "$torch" "$transformers" safetensors numpy "$peft" || has_packages "$python" ||
      skip "torch and transformers could not be installed in $seconds s"
    has_packages "$python" || skip "torch and transformers do not load"
    has_lm_eval "$python" || [ $((seconds - SECONDS)) -lt 1 ] ||
      install $((seconds - SECONDS)) "$lm_eval" "$openai" "$tenacity" || true  # what is missing is said below
    has_trl "$python" || [ $((seconds - SECONDS)) -lt 1 ] || install $((seconds - SECONDS)) "$trl" "$tensorboard" || true
    has_mypy "$python" || [ $((seconds - SECONDS)) -lt 1 ] || install $((seconds - SECONDS)) "$matplotlib" "$mypy" || true
  fi
fi
if [ "$python" = "$venv/bin/python" ] && ! { has_llama_cpp "$python" && has_sentencepiece "$python"; }; then
  timeout "${FOCUS_INTEROP_SECONDS:-600}" "$python" -m pip install --quiet --retries 1 "$xllamacpp" "$sentencepiece" \
    "$protobuf" >/dev/null 2>&1 || true  # what is missing is said below
fi
if [ "$program" = --install ]; then exit; fi
export PYTHONPATH=$PWD/apps/python FOCUS_LIBRARY=${FOCUS_LIBRARY:-$(dirname "$(realpath "$program")")/libfocus.so}
# The first failure ends it: who gives it a time limit must not take a later step's end for the whole.
"$python" tests/interop/compare.py "$program"
"$python" tests/interop/with_code.py "$program"
if has_peft "$python"; then
  "$python" tests/interop/peft_lora.py "$program"
  "$python" tests/interop/instructions.py "$program"
else
  echo "interop: LoRA skipped: peft is not installed"
fi
if has_llama_cpp "$python" && has_peft "$python"; then
  "$python" tests/interop/gguf.py "$program"
  "$python" tests/interop/smollm2.py "$program"
else
  echo "interop: llama.cpp skipped: xllamacpp or peft is not installed"
fi
if has_llama_cpp "$python" && has_sentencepiece "$python"; then
  "$python" tests/interop/gemma3.py "$program"
else
  echo "interop: Gemma 3 skipped: xllamacpp, sentencepiece or protobuf is not installed"
fi
if has_lm_eval "$python"; then
  "$python" tests/interop/lm_eval_backend.py "$program"
  "$python" tests/interop/serve.py "$program"
else
  echo "interop: the lm-evaluation-harness skipped: lm_eval is not installed"
fi
if has_trl "$python" && has_peft "$python"; then
  "$python" tests/interop/preferences.py "$program"
else
  echo "interop: DPO skipped: peft, trl or tensorboard is not installed"
fi
if [ -f "$FOCUS_LIBRARY" ]; then
  "$python" tests/interop/notebooks.py "$program"
else
  echo "interop: notebooks skipped: no $FOCUS_LIBRARY"
fi
if has_mypy "$python"; then
  (cd apps/python && "$python" -m mypy --strict --cache-dir=/dev/null focus_attention ../../examples/python/compare_attentions.py)
else
  echo "interop: the module's types skipped: mypy or matplotlib is not installed"
fi
