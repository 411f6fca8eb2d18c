"""Documents with questions that only their earlier text answers, of more kinds than `focus corpus` has:

  python3 bench/study/documents.py --kind lookup --keys 8 --distance 2000,8000 --documents 16 --questions questions.jsonl

recall: keys with a digit each, then each key again, --asked times. copy: random words, then the same words again. lookup:
sentences about where people live, then questions about half of them. chain: two chains of people who each live with the one
before, then where the last ones live. Between facts and questions are sentences of the built-in tales, or with --haystack a
passage of a text (a needle in a haystack). --length fills each document up to so many bytes, at its front. --out writes the
texts, --questions what `focus eval --recall` reads. The same seed gives the same bytes.
"""

import argparse
import json
import pathlib
import random

TALES = pathlib.Path(__file__).parents[2] / "data/synthetic/tales.txt"


def sections():
    """The entries of each section of the tales."""
    found, entries = {}, None
    for line in TALES.read_text(encoding="utf-8").split("\n"):
        if line.startswith("["):
            entries = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            entries.extend(part.strip() for part in line.split("|"))
    return found


class Writer:
    """Draws documents: texts whose answers are marked in bytes."""

    def __init__(self, options):
        self.options = options
        self.draw = random.Random(options.seed)
        self.words = sections()
        self.haystack = ""
        if options.haystack:
            self.haystack = pathlib.Path(options.haystack).read_text(encoding="utf-8").strip()
            self.paragraphs = [0] + [at + 2 for at in range(len(self.haystack)) if self.haystack.startswith("\n\n", at)]

    def fill(self, sentence):
        while "{" in sentence:
            before, rest = sentence.split("{", 1)
            slot, after = rest.split("}", 1)
            sentence = before + self.draw.choice(self.words["{" + slot + "}"]) + after
        return sentence

    def other(self, size):
        """Text that has nothing to do with the facts, of at least so many bytes, and a line break."""
        if self.haystack and size:
            text = self.haystack[self.draw.choice(self.paragraphs) :]
            while len(text.encode()) < size + 100:
                text += "\n\n" + self.haystack
            return text.encode()[: size + 100].decode(errors="ignore").rsplit(None, 1)[0] + "\n"
        text = ""
        while len(text) < size:
            text += (" " if text else "") + self.fill(self.draw.choice(self.words["fillers"]))
        return text + "\n"

    def name(self, taken):
        while True:
            ends = self.words[self.draw.choice(["female_ends", "male_ends"])]
            name = "".join(map(self.draw.choice, [self.words["first_starts"], self.words["first_middles"], ends]))
            if name not in taken:
                taken.add(name)
                return name

    def letters(self, count):
        return "".join(self.draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(count))

    def recall(self, keys, distance):
        size, text, facts = 1, "", {}
        while 26**size < keys:
            size += 1
        while len(facts) < keys:
            key = self.letters(size)
            if key not in facts:
                text += (" " if text else "") + key
                facts[key] = (len(text), str(self.draw.randrange(10)))
                text += facts[key][1]
        text += "\n" + self.other(distance)
        answers = []
        for _ in range(self.options.asked):
            for key in self.draw.sample(list(facts), keys):
                text += (" " if answers else "") + key
                answers.append((len(text.encode()), *facts[key]))
                text += facts[key][1]
        return text + "\n", answers

    def copy(self, keys, distance):
        words = [self.letters(4) for _ in range(keys)]
        said = "Say:" + "".join(" " + word for word in words) + "\n"
        text = said + self.other(distance)
        first = len(text.encode())
        answers = [(first + 5 + 5 * i, 5 + 5 * i, word) for i, word in enumerate(words)]
        return text + said, answers

    def told(self, text, name):
        """The text with a sentence about where somebody lives, and where the building is named."""
        text += f"{name} lives in the "
        home = self.draw.choice(self.words["buildings"])
        return f"{text}{home}.", (len(text.encode()), home)

    @staticmethod
    def asked(text, people):
        answers = []
        for name, (told, home) in people:
            text += f"Question: Where does {name} live?\nAnswer: In the "
            answers.append((len(text.encode()), told, home))
            text += home + ".\n"
        return text, answers

    def lookup(self, keys, distance):
        text, people, taken = "", [], set()
        for _ in range(keys):
            name = self.name(taken)
            text, fact = self.told(text + (" " if text else ""), name)
            people.append((name, fact))
        return self.asked(text + "\n" + self.other(distance), self.draw.sample(people, (keys + 1) // 2))

    def chain(self, keys, distance):
        text, people, taken = "", [], set()
        while len(people) < 2:
            name = self.name(taken)
            longer, fact = self.told(text + (" " if text else ""), name)
            if not people or people[0][1][1] != fact[1]:
                text = longer
                people.append((name, fact))
        text += "\n"
        for _ in range(1, keys):
            text += self.other(distance // keys)
            self.draw.shuffle(people)
            people = [(self.name(taken), name, fact) for name, fact in people]
            text += " ".join(f"{name} lives with {before}." for name, before, fact in people) + "\n"
            people = [(name, fact) for name, before, fact in people]
        text += self.other(distance - distance // keys * (keys - 1))
        self.draw.shuffle(people)
        return self.asked(text, people)

    def document(self):
        options = self.options
        text, answers = getattr(self, options.kind)(self.draw.choice(options.keys), self.draw.choice(options.distance))
        missing = options.length - len(text.encode()) if options.length else 0
        if missing < 0:
            raise SystemExit(f"documents.py: --length {options.length}: a document has {len(text.encode())} bytes")
        before = self.other(missing).encode()[-missing:].decode(errors="replace").replace("\N{REPLACEMENT CHARACTER}", " ")
        text = (before if missing else "") + text
        marks = [{"begin": begin + missing, "end": begin + missing + len(word), "source": told + missing}
                 for begin, told, word in answers]
        return {"text": text, "answers": marks}


def parse(arguments):
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["recall", "copy", "lookup", "chain"], required=True)
    parser.add_argument("--keys", type=numbers, default=[8])
    parser.add_argument("--distance", type=numbers, default=[64], help="bytes between facts and questions")
    parser.add_argument("--asked", type=int, default=1)
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--haystack")
    parser.add_argument("--separator", default="\n<|endoftext|>\n")
    parser.add_argument("--out")
    parser.add_argument("--questions")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    writer = Writer(options)
    documents = [writer.document() for _ in range(options.documents)]
    if options.out:
        text = options.separator.join(document["text"] for document in documents)
        pathlib.Path(options.out).write_text(text, encoding="utf-8")
    if options.questions:
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        pathlib.Path(options.questions).write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
