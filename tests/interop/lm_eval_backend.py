"""apps/lm_eval's plugin beside the lm-evaluation-harness's own Hugging Face backend: on the exported
model, on a merged LoRA and on the sparse model that `export --with-code` writes, the log-probabilities
of every choice must agree, item by item, and the scores of bench/study/benchmarks.py with the harness's.
Prompts are those of the harness's own arc_easy and piqa, items are local
files: shared/data/benchmarks where it is (FOCUS_SHARED_DIR), and else made up. Run by run.sh."""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
work_home = tempfile.TemporaryDirectory()
os.environ["HF_DATASETS_CACHE"] = os.environ["HF_MODULES_CACHE"] = work_home.name
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TQDM_DISABLE", "1")  # its bars fill a log
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "apps" / "lm_eval"))  # on top of FOCUS_LIBRARY's module
import lm_eval
import lm_eval.tasks
from compare import PROGRAM, ROOT, Refused, focus
from focus_lm_eval import FocusLM

TOLERANCE = 1e-3  # nats of a choice
ITEMS = 200
SHARED = Path(os.environ.get("FOCUS_SHARED_DIR") or ROOT.parent / "shared") / "data"
HARNESS = Path(lm_eval.tasks.__file__).parent
CHOICES = "ABCDE"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def words(seed, count):
    source = random.Random(seed)
    return " ".join(source.choice("the fox went into a dark wood and saw many hens there".split())
                    for _ in range(count))


def arc_items():
    path = SHARED / "benchmarks" / "arc_easy" / "arc_easy.jsonl"
    if path.exists():
        asked = [(item["query"].removeprefix("Question: "), item["choices"], item["gold"])
                 for item in lines(path)]
    else:
        asked = [(words(i, 12) + "?", [words(9 * i + c, 1 + c % 3) for c in range(4)], i % 4)
                 for i in range(ITEMS)]
    return [{"id": str(i), "question": question, "answerKey": CHOICES[gold],
             "choices": {"text": choices, "label": list(CHOICES[:len(choices)])}}
            for i, (question, choices, gold) in enumerate(asked)][:ITEMS]


def piqa_items():
    folder = SHARED / "benchmarks" / "piqa"
    if folder.exists():
        labels = (folder / "valid-labels.lst").read_text().split()
        items = [item | {"label": int(label)}
                 for item, label in zip(lines(folder / "valid.jsonl"), labels)]
    else:
        items = [{"goal": words(i, 8), "sol1": words(7 * i + 1, 5), "sol2": words(7 * i + 2, 6),
                  "label": i % 2} for i in range(ITEMS)]
    return items[:ITEMS]


def write_tasks(folder):
    """The harness's own tasks on local files."""
    for name, items, own in (("arc_easy", arc_items(), "arc/arc_easy.yaml"),
                             ("piqa", piqa_items(), "piqa/piqa.yaml")):
        assert len(items) >= ITEMS, f"{name}: {len(items)} items"
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        (folder / f"local_{name}.yaml").write_text(
            f"include: {HARNESS / own}\ntask: local_{name}\ntag: null\ndataset_path: json\n"
            f"dataset_name: null\ndataset_kwargs:\n  data_files:\n    test: {path}\n"
            "training_split: null\nvalidation_split: null\ntest_split: test\n"
            "fewshot_split: test\n")


def model(work):
    """A Hugging Face folder with a tokenizer, and the store that the program runs."""
    store, folder = work / "model.h5", work / "exported"
    if (SHARED / "models" / "novels-gpt2").exists():
        focus("import", SHARED / "models" / "novels-gpt2", "--out", store)
    else:
        text = work / "text.txt"
        focus("corpus", "--out", text, "--documents", "12")
        focus("tokenizer", "train", "--text", text, "--vocab-size", "400", "--out", work / "tok")
        focus("train", "method=scratch", f"tokenizer={work / 'tok'}", f"data.train={text}",
              f"data.valid={text}", "model.model_type=gpt2", "model.hidden_size=48",
              "model.num_hidden_layers=3", "model.initializer_range=0.15", "steps=20",
              "eval_every=0", f"out={work / 'run'}")
        store = work / "run" / "model.h5"
    focus("export", store, "--out", folder)
    return store, folder


def training_text(work):
    path = work / "text.txt"
    if not path.exists():
        path.write_text("\n".join(words(i, 40) for i in range(120)))
    return path


def adapted(work, store, name, *settings):
    """A run's folder: an adapter trained for a few steps, so that no number is what it began as."""
    text = training_text(work)
    focus("train", f"base={store}", f"data.train={text}", "data.valid_fraction=0",
          "data.context=64", "data.batch=2", "steps=10", "eval_every=0", "checkpoint_every=0",
          "optim.warmup_steps=1", "optim.lr=0.02", f"out={work / name}", *settings)
    return work / name


def models(work, store, exported):
    """What is compared: a name, our arguments and the Hugging Face backend's."""
    yield "the base", dict(attention="dense"), dict(pretrained=exported)
    lora = adapted(work, store, "lora", "method=lora", "lora.target_modules=[all-linear]",
                   "lora.r=2")
    focus("merge", store, "--adapter", lora, "--out", work / "merged.h5")
    focus("export", work / "merged.h5", "--out", work / "merged")
    yield "LoRA, merged", dict(adapter=lora, attention="dense"), dict(pretrained=work / "merged")
    adapter = adapted(work, store, "focus", "focus.num_groups=4", "focus.tokens.routing_dim=8",
                      "focus.local_window=8") / "focus.h5"
    focus("export", store, "--adapter", adapter, "--with-code", "--out", work / "sparse")
    yield ("Focus, hard:1, with code", dict(adapter=adapter, attention="hard:1"),
           dict(pretrained=work / "sparse", trust_remote_code=True, focus_attention="hard:1"))


def run(lm, folder, **arguments):
    """Of each task its scores, and of each item the log-probabilities of its choices."""
    done = lm_eval.simple_evaluate(
        model=lm, tasks=["local_arc_easy", "local_piqa"], log_samples=True, bootstrap_iters=2,
        task_manager=lm_eval.tasks.TaskManager(include_path=str(folder)), **arguments)
    samples = {}
    for task, all_samples in done["samples"].items():
        ordered = sorted(all_samples, key=lambda sample: sample["doc_id"])
        samples[task] = [[tuple(answer[0]) for answer in sample["resps"]] for sample in ordered]
    return done["results"], samples


def differences(actual, expected, ties):
    """The largest difference of two runs' choices in nats, how many there are, and how many of them differ by more:
    at most `ties`, in which a token's two best groups are as good as each other up to rounding."""
    worst, count, far = 0.0, 0, []
    for task, items in expected.items():
        assert len(items) == len(actual[task]) == ITEMS, f"{task}: {len(items)} items"
        for i, (a, b) in enumerate(zip(actual[task], items)):
            for choice, ((p, greedy), (q, expected_greedy)) in enumerate(zip(a, b, strict=True)):
                count += 1
                if not abs(float(p) - float(q)) <= TOLERANCE:
                    far.append(f"{task}, item {i}, choice {choice}: {p} against {q}")
                    continue
                worst = max(worst, abs(float(p) - float(q)))
                assert bool(greedy) == bool(expected_greedy), f"{task}, item {i}: is_greedy"
    if len(far) > ties:
        raise AssertionError(f"{len(far)} of {count} choices differ; {far[0]}")
    return worst, count, len(far)


def check_model(name, tasks, ours, theirs, base, ties=0):
    """Scores and choices of the Hugging Face backend; `base` has the choices of the base, if any."""
    arguments = dict(dtype="float32", device="cpu") | theirs
    arguments["pretrained"] = str(arguments["pretrained"])
    scores, expected = run("hf", tasks, batch_size=8, model_args=arguments)
    own_scores, actual = run(FocusLM(**ours), tasks)
    worst, count, tied = differences(actual, expected, ties)
    for task, figures in scores.items():
        for metric, value in figures.items():
            if metric.startswith("acc"):
                assert value == own_scores[task][metric], f"{task}: {metric}"
    if base is not None:
        effect = max(abs(float(p) - float(q)) for task in base
                     for a, b in zip(expected[task], base[task]) for (p, _), (q, _) in zip(a, b))
        assert effect > 100 * TOLERANCE, f"it changes nothing here ({effect:.1e}): no check"
    print(f"lm_eval's arc_easy and piqa, {name}: focus agrees with the Hugging Face backend on "
          f"{ITEMS} items each, {count} choices, differences up to {worst:.1e} nats"
          + (f", {tied} in which groups tie" if tied else ""), flush=True)
    return scores, expected


def check(work):
    store, exported = model(work)
    tasks = work / "tasks"
    tasks.mkdir()
    write_tasks(tasks)
    base = None
    for name, ours, theirs in models(work, store, exported):
        try:
            scores, expected = check_model(name, tasks, dict(base=store) | ours, theirs, base, 4 if "hard" in name else 0)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        if base is None:
            base, base_scores = expected, scores
    logs = [p for task in base for item in base[task] for p, _ in item]
    assert len({round(float(p), 3) for p in logs}) > len(logs) / 2, "it says the same of everything"
    rows = work / "benchmarks.jsonl"
    subprocess.run([sys.executable, ROOT / "bench" / "study" / "benchmarks.py", PROGRAM, store, "--data", tasks,
                    "--tasks", "arc_easy,piqa", "--out", rows], check=True, stderr=subprocess.DEVNULL)
    for row in lines(rows):
        for metric in ("acc", "acc_norm"):
            wanted = base_scores[f"local_{row['task']}"]
            for key, value in ((f"{metric},none", row[metric]),
                               (f"{metric}_stderr,none", row[f"{metric}_error"])):
                assert abs(wanted[key] - value) < 1e-9, f"{row['task']}: {key}: {value}"


def check_rest(work):
    """Rolling and generated answers, which the two tasks do not ask for."""
    store, exported = model(work)
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    theirs = HFLM(pretrained=str(exported), dtype="float32", device="cpu", batch_size=1)
    ours = FocusLM(base=store, attention="dense")
    asked = lambda kind, arguments: [  # noqa: E731
        Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(arguments)]
    long = asked("loglikelihood_rolling", [(words(1, 30),), (words(2, 2500),)])
    a, b = ours.loglikelihood_rolling(long), theirs.loglikelihood_rolling(long)
    for p, q in zip(a, b):
        assert abs(p - q) <= TOLERANCE * max(1.0, abs(q) / 100), f"rolling: {p} against {q}"
    pairs = asked("loglikelihood", [("", words(1, 4)), ("the fox ", "went"), (words(3, 2500), " a"),
                                    ("the\n\n", " wood")])
    for (p, _), (q, _) in zip(ours.loglikelihood(pairs), theirs.loglikelihood(pairs)):
        assert abs(p - q) <= TOLERANCE, f"loglikelihood: {p} against {q}"
    until = asked("generate_until", [(words(4, 9), {"until": ["\n", "."], "max_gen_toks": 24}),
                                     (words(5, 9), {"until": [" the"], "max_gen_toks": 12})])
    a, b = ours.generate_until(until), theirs.generate_until(until)
    assert a == b, f"generate_until: {a} against {b}"


def main():
    for name, job in (("lm_eval's tasks", check), ("lm_eval's other requests", check_rest)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                job(Path(folder))
            except (AssertionError, Refused) as error:
                print(f"{name} FAILED: {error}")
                return 1
        print(f"{name}: focus agrees with the Hugging Face backend", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
