#include "data/synthetic/corpus_draws.h"
#include "data/synthetic/far_documents.h"

namespace focus::corpus {

AskedDocument copy_document(Rng& rng, const FarDraw& draw) {
  AskedDocument document{.text = "Say:", .answers = {}};
  struct Word {
    std::string text;
    std::size_t told = 0;
  };
  std::vector<Word> words;
  for (std::int64_t i = 0; i < draw.keys; ++i) {
    Word word{.text = {}, .told = document.text.size() + 1};
    for (int letter = 0; letter < 4; ++letter) word.text += static_cast<char>('a' + rng.below(26));
    document.text += ' ' + word.text;
    words.push_back(std::move(word));
  }
  document.text += '\n' + draw.filler(rng, draw.distance) + "Say:";
  for (const Word& word : words) {
    document.text += ' ';
    add_answer(document, word.text, word.told);
  }
  document.text += '\n';
  return document;
}

}  // namespace focus::corpus
