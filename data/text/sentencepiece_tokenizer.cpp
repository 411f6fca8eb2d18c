#include "data/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "autograd/check.h"
#include "data/files/utf8.h"
#include "data/text/sentencepiece_model.h"

namespace focus {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, const TokenizerFiles& files,
                         const std::string& where)
      : Tokenizer("sentencepiece", files) {
    check_sentencepiece_model(model, where);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      fail("{}: not a SentencePiece model: {}", where, one_line(status.ToString()));
    }
    check(processor_.GetPieceSize() > 0, "{}: the SentencePiece model has no pieces", where);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(replace_invalid_utf8(text), &ids);
    if (!status.ok()) fail("SentencePiece cannot encode: {}", one_line(status.ToString()));
    return ids;
  }

  std::vector<std::int32_t> encode_with_special(std::string_view text) const override {
    std::vector<std::int32_t> ids = encode(text);
    if (const auto bos = bos_id()) ids.insert(ids.begin(), *bos);
    return ids;
  }

  std::int32_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<std::int32_t> bos_id() const override { return present(processor_.bos_id()); }
  std::optional<std::int32_t> eos_id() const override { return present(processor_.eos_id()); }
  bool is_special(std::int32_t id) const override { return processor_.IsControl(id); }

 private:
  static std::optional<std::int32_t> present(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  static std::string one_line(std::string text) {
    for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return replace_invalid_utf8(text);  // it quotes pieces
  }

  std::string decode_valid(std::span<const std::int32_t> ids) const override {
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) fail("SentencePiece cannot decode: {}", one_line(status.ToString()));
    return text;
  }

  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model,
                                                        const TokenizerFiles& files,
                                                        const std::string& where) {
  return std::make_unique<SentencePieceTokenizer>(model, files, where);
}

}  // namespace focus
