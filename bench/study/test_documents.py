"""Tests of documents.py: `python3 -m unittest` in bench/study/."""

import unittest

import documents

KINDS = ["recall", "copy", "lookup", "chain"]


def made(kind, *more):
    writer = documents.Writer(documents.parse(["--kind", kind, *more]))
    return [writer.document() for _ in range(12)]


class Documents(unittest.TestCase):
    def test_an_answer_is_what_its_source_says(self):
        for kind in KINDS:
            for document in made(kind, "--keys", "3,30", "--distance", "0,90", "--asked", "2"):
                text = document["text"].encode()
                self.assertTrue(document["answers"])
                for answer in document["answers"]:
                    begin, end, source = answer["begin"], answer["end"], answer["source"]
                    self.assertLess(source, begin)
                    self.assertEqual(text[begin:end], text[source : source + end - begin], text)

    def test_distance_and_length_are_kept(self):
        for kind in KINDS:
            for document in made(kind, "--distance", "300", "--length", "2500"):
                self.assertEqual(len(document["text"].encode()), 2500)
                gap = document["answers"][0]["begin"] - max(a["source"] for a in document["answers"])
                self.assertGreaterEqual(gap, 300)

    def test_a_seed_gives_the_same_and_another_does_not(self):
        self.assertEqual(made("lookup"), made("lookup"))
        self.assertNotEqual(made("lookup"), made("lookup", "--seed", "2"))

    def test_recall_asks_each_key_in_each_round(self):
        for document in made("recall", "--keys", "6", "--asked", "3"):
            sources = [answer["source"] for answer in document["answers"]]
            self.assertEqual(len(sources), 18)
            self.assertEqual(len(set(sources)), 6)


if __name__ == "__main__":
    unittest.main()
