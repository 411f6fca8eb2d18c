"""A text from which tokenizers learn: it decides which merges exist, and nothing else."""

import random

WORDS = """
the of and to a in that it was he for on with as his they be at one have this from or had by not but
what some we can out other were all there when up use your how said an each she which do their time if
will way about many then them write would like so these her long make thing see him two has look more
day could go come did number sound no most people my over know water than call first who may down side
been now find any new work part take get place made live where after back little only round man year
came show every good me give our under name very through just form sentence great think say help low
line differ turn cause much mean before move right boy old too same tell does set three want air well
also play small end put home read hand port large spell add even land here must big high such follow
remember remembered remembering understand understanding town towns walker walked walking thistle
harbour orchard lantern kettle window garden letter morning evening winter summer river bridge stone
""".split()
OTHERS = """
café naïve Grüße München Ångström Привет мир дела сегодня хорошо 你好 世界 天气 今天 中文 こんにちは 世界 カタカナ
안녕하세요 세계 مرحبا بالعالم שלום नमस्ते हिन्दी ภาษา 😀 👍 – — … “ ” ½ × ÷ ≤ ∞ 2026 12 345 3.14 x_1 f(x) https://
""".split()
ENDS = [". "] * 8 + ["? ", "! ", "; ", ", and ", ".\n", ".\n\n", ': "']
CONTRACTIONS = ["'s", "'re", "n't", "'ll", "'ve", "'d"]


def sentence(random_: random.Random) -> str:
    # A word is drawn by Zipf's law.
    weights = [1 / (place + 3) for place in range(len(WORDS))]
    words = random_.choices(WORDS, weights, k=random_.randint(4, 14))
    words[0] = words[0].capitalize()
    if random_.random() < 0.3:
        words[random_.randrange(len(words))] += random_.choice(CONTRACTIONS)
    if random_.random() < 0.3:
        words[random_.randrange(len(words))] = random_.choice(OTHERS)
    if random_.random() < 0.1:
        words.append(str(random_.randrange(3000)))
    return " ".join(words) + random_.choice(ENDS)


def text(seed: int, characters: int) -> str:
    random_, parts, size = random.Random(seed), [], 0
    while size < characters:
        parts.append(sentence(random_))
        size += len(parts[-1])
    return "".join(parts)


def lines(seed: int, characters: int) -> list[str]:
    return text(seed, characters).splitlines(keepends=True)
