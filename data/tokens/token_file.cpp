#include "data/tokens/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "autograd/base/check.h"
#include "autograd/base/random.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"

namespace focus {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::uint32_t kVersion = 1, kVersionWithCounts = 2;

constexpr std::uint64_t bytes_of_bits(std::uint64_t bits) { return bits / 8 + (bits % 8 != 0); }

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t width;
  std::uint64_t vocab_size;
  std::uint64_t documents;
  std::uint64_t tokens;
  char fingerprint[32];  // hexadecimal digits, or zeros
  std::uint64_t reserved;
  std::byte checksum[16];  // of the file with these 16 bytes zero
};
static_assert(sizeof(Header) == 96);
constexpr char kMagic[8] = {'F', 'O', 'C', 'U', 'S', 'T', 'O', 'K'};

/// XXH3-128 of the file as its checksum field defines it.
std::array<std::byte, 16> content_checksum(std::span<const std::byte> file) {
  Header header;
  std::memcpy(&header, file.data(), sizeof(header));
  std::memset(header.checksum, 0, sizeof(header.checksum));
  Checksum checksum;
  checksum.update(std::as_bytes(std::span(&header, 1)));
  checksum.update(file.subspan(sizeof(header)));
  const std::string hex = checksum.hex();
  std::array<std::byte, 16> result{};
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return result;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

/// The bytes of a token file, mapped or owned.
struct TokenFile::Bytes {
  std::span<const std::byte> span() const { return mapped ? mapped->bytes() : owned; }

  std::vector<std::byte> owned;
  std::optional<MappedFile> mapped;
};

TokenFile TokenFile::open(const std::filesystem::path& path, bool verify_contents) {
  const InputFile input(path);
  auto bytes = std::make_shared<Bytes>();
  bytes->mapped.emplace(input.descriptor(), static_cast<std::size_t>(input.size()), path);
  TokenFile file(std::move(bytes), path.string());
  if (verify_contents) file.verify(path.string());
  return file;
}

TokenFile TokenFile::from_tokens(std::span<const std::int32_t> tokens,
                                 std::span<const Index> document_offsets, std::int32_t vocab_size,
                                 std::string_view tokenizer_fingerprint,
                                 std::span<const std::uint8_t> counts) {
  check(vocab_size > 0, "TokenFile: vocabulary size {} is invalid", vocab_size);
  check(tokenizer_fingerprint.size() <= sizeof(Header::fingerprint),
        "TokenFile: a tokenizer fingerprint has {} digits, got {}", sizeof(Header::fingerprint),
        tokenizer_fingerprint.size());
  const auto count = static_cast<Index>(tokens.size());
  const std::vector<Index> whole = {0, count};
  if (document_offsets.empty()) document_offsets = whole;
  check(document_offsets.front() == 0 && document_offsets.back() == count &&
            std::is_sorted(document_offsets.begin(), document_offsets.end()),
        "TokenFile: document offsets must increase from 0 to the {} tokens", count);
  check(counts.empty() || counts.size() == tokens.size(),
        "TokenFile: {} tokens, but the loss mask has {} values", tokens.size(), counts.size());

  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = counts.empty() ? kVersion : kVersionWithCounts;
  header.width = vocab_size <= 65536 ? 2 : 4;
  header.vocab_size = static_cast<std::uint64_t>(vocab_size);
  header.documents = document_offsets.size() - 1;
  header.tokens = tokens.size();
  std::copy(tokenizer_fingerprint.begin(), tokenizer_fingerprint.end(), header.fingerprint);

  auto bytes = std::make_shared<Bytes>();
  bytes->owned.resize(sizeof(header) + document_offsets.size_bytes() +
                      tokens.size() * header.width +
                      (counts.empty() ? 0 : bytes_of_bits(tokens.size())));
  std::byte* out = bytes->owned.data() + sizeof(header);
  std::memcpy(out, document_offsets.data(), document_offsets.size_bytes());
  out += document_offsets.size_bytes();
  for (const std::int32_t token : tokens) {
    check(token >= 0 && token < vocab_size, "TokenFile: token {} is outside the vocabulary of {}",
          token, vocab_size);
    std::memcpy(out, &token, header.width);
    out += header.width;
  }
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != 0) out[i / 8] |= std::byte{1} << (i % 8);
  std::memcpy(bytes->owned.data(), &header, sizeof(header));
  const auto checksum = content_checksum(bytes->owned);
  std::memcpy(bytes->owned.data() + offsetof(Header, checksum), checksum.data(), checksum.size());
  return TokenFile(std::move(bytes), "TokenFile");
}

TokenFile::TokenFile(std::shared_ptr<const Bytes> bytes, const std::string& where)
    : bytes_(std::move(bytes)) {
  const std::span<const std::byte> file = bytes_->span();
  if (file.size() < sizeof(Header))
    fail("{}: not a token file: {} bytes, but its header has {}", where, file.size(),
         sizeof(Header));
  Header header;
  std::memcpy(&header, file.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    fail("{}: not a token file: it does not begin with FOCUSTOK", where);
  if (header.version != kVersion && header.version != kVersionWithCounts)
    fail(
        "{}: token file version {}, this program reads versions {} and {}: tokenize the text again",
        where, header.version, kVersion, kVersionWithCounts);
  const bool has_counts = header.version == kVersionWithCounts;
  if (header.width != 2 && header.width != 4)
    fail("{}: damaged token file: {} bytes per id, expected 2 or 4", where, header.width);
  constexpr std::uint64_t kMaxVocab = std::numeric_limits<std::int32_t>::max();
  if (header.vocab_size == 0 || header.vocab_size > kMaxVocab)
    fail("{}: damaged token file: vocabulary size {} is invalid", where, header.vocab_size);
  // Each count is bounded by the length before they are multiplied: nothing can wrap.
  const std::uint64_t rest = file.size() - sizeof(Header);
  if (header.documents >= rest / 8 || header.tokens > rest / header.width ||
      (header.documents + 1) * 8 + header.tokens * header.width +
              (has_counts ? bytes_of_bits(header.tokens) : 0) !=
          rest)
    fail("{}: damaged token file: {} documents and {} tokens of {} bytes do not match {} bytes",
         where, header.documents, header.tokens, header.width, file.size());
  tokens_ = static_cast<Index>(header.tokens);
  documents_ = static_cast<Index>(header.documents);
  vocab_size_ = static_cast<std::int32_t>(header.vocab_size);
  width_ = static_cast<int>(header.width);
  fingerprint_.assign(header.fingerprint,
                      std::find(header.fingerprint, std::end(header.fingerprint), '\0'));
  offsets_ = file.data() + sizeof(Header);
  ids_ = offsets_ + 8 * (documents_ + 1);
  if (has_counts) counts_ = ids_ + tokens_ * width_;
  // Few beside the tokens, and every range is taken from them.
  Index previous = 0;
  for (Index i = 0; i <= documents_; ++i) {
    const auto offset = load<Index>(offsets_ + 8 * i);
    if (offset < previous || offset > tokens_ || (i == 0 && offset != 0))
      fail("{}: damaged token file: document {} of {} begins at token {}", where, i, documents_,
           offset);
    previous = offset;
  }
  if (previous != tokens_)
    fail("{}: damaged token file: the documents end at token {} of {}", where, previous, tokens_);
}

void TokenFile::verify(const std::string& where) const {
  const auto checksum = content_checksum(bytes_->span());
  const std::byte* stored = bytes_->span().data() + offsetof(Header, checksum);
  if (!std::equal(checksum.begin(), checksum.end(), stored))
    fail("{}: damaged token file: its checksum does not match; delete it and tokenize again",
         where);
  for (Index i = 0; i < tokens_; ++i) {
    const std::int32_t id = (*this)[i];
    if (id < 0 || id >= vocab_size_)
      fail("{}: token {} is {}, outside the vocabulary of {}", where, i, id, vocab_size_);
  }
}

void TokenFile::save(const std::filesystem::path& path) const {
  write_file_durably(path, bytes_->span());
}

std::int32_t TokenFile::operator[](Index i) const {
  const std::byte* at = ids_ + i * width_;
  return width_ == 2 ? load<std::uint16_t>(at) : load<std::int32_t>(at);
}

void TokenFile::copy(Index begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<Index>(out.size());
  check(begin >= 0 && count <= tokens_ && begin <= tokens_ - count,
        "TokenFile: tokens {} to {} are out of range of {}", begin, begin + count, tokens_);
  for (Index i = 0; i < count; ++i) out[i] = (*this)[begin + i];
}

bool TokenFile::counts(Index i) const {
  return counts_ == nullptr || (counts_[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
}

TokenRange TokenFile::document(Index i) const {
  check(i >= 0 && i < documents_, "TokenFile: document {} is out of range of {}", i, documents_);
  return {load<Index>(offsets_ + 8 * i), load<Index>(offsets_ + 8 * (i + 1))};
}

TokenView::TokenView(TokenFile file)
    : file_(std::move(file)), ranges_({{0, file_.size()}}), starts_({0, file_.size()}) {
  for (Index i = 0; i < file_.num_documents(); ++i) documents_.push_back(file_.document(i).end);
}

TokenView::TokenView(TokenFile file, const std::vector<TokenRange>& ranges)
    : file_(std::move(file)), starts_({0}) {
  Index previous_end = 0;
  for (const TokenRange& range : ranges) {
    check(range.begin >= previous_end && range.end >= range.begin && range.end <= file_.size(),
          "TokenView: range {} to {} of {} tokens follows one that ends at {}", range.begin,
          range.end, file_.size(), previous_end);
    previous_end = range.end;
    documents_.push_back(documents_.back() + range.size());
    if (!ranges_.empty() && ranges_.back().end == range.begin) {
      ranges_.back().end = range.end;
      starts_.back() += range.size();
    } else {
      ranges_.push_back(range);
      starts_.push_back(starts_.back() + range.size());
    }
  }
}

std::int32_t TokenView::operator[](Index i) const {
  std::int32_t id = 0;
  copy(i, {&id, 1});
  return id;
}

template <class F>
void TokenView::for_runs(Index begin, Index count, F&& f) const {
  check(begin >= 0 && begin + count <= size(), "TokenView: tokens {} to {} are out of range of {}",
        begin, begin + count, size());
  auto range = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                        starts_.begin() - 1);
  for (Index done = 0; done < count; ++range) {
    const Index offset = begin + done - starts_[range];
    const Index here = std::min(ranges_[range].size() - offset, count - done);
    f(ranges_[range].begin + offset, here, done);
    done += here;
  }
}

void TokenView::copy(Index begin, std::span<std::int32_t> out) const {
  for_runs(begin, static_cast<Index>(out.size()), [&](Index first, Index count, Index done) {
    file_.copy(first, out.subspan(done, count));
  });
}

void TokenView::copy_counts(Index begin, std::span<std::uint8_t> out) const {
  for_runs(begin, static_cast<Index>(out.size()), [&](Index first, Index count, Index done) {
    for (Index i = 0; i < count; ++i) out[done + i] = file_.counts(first + i) ? 1 : 0;
  });
}

TokenFile mixed_tokens(const std::vector<TokenFile>& sources, const std::vector<double>& weights) {
  check(sources.size() == weights.size() && !sources.empty(), "mix: {} weights for {} sources",
        weights.size(), sources.size());
  constexpr double kMost = 1e9;
  double all = 0, per_weight = 0;  // tokens for a weight of 1
  for (std::size_t i = 0; i < sources.size(); ++i) {
    check(weights[i] > 0, "mix: weight {} of source {} is not positive", weights[i], i + 1);
    check(sources[i].tokenizer_fingerprint() == sources[0].tokenizer_fingerprint(),
          "mix: the sources are of different tokenizers");
    per_weight = std::max(per_weight, static_cast<double>(sources[i].size()) / weights[i]);
    all += weights[i];
  }
  check(per_weight * all <= kMost,
        "mix: with these weights an epoch has {:.0f} tokens, more than {:.0f}, since a small "
        "source has a large weight",
        per_weight * all, kMost);
  const bool some_count = std::ranges::any_of(sources, &TokenFile::has_counts);
  std::vector<std::int32_t> ids;
  std::vector<Index> offsets = {0};
  std::vector<std::uint8_t> counts;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TokenFile& source = sources[i];
    const Index end = std::ssize(ids) + std::llround(per_weight * weights[i]);
    for (Index d = 0; std::ssize(ids) < end; d = (d + 1) % source.num_documents()) {
      TokenRange document = source.document(d);
      if (const Index left = end - std::ssize(ids); document.size() > left) {
        if (source.num_documents() > 1) break;
        document.end = document.begin + left;
      }
      const auto at = ids.size();
      ids.resize(at + document.size());
      source.copy(document.begin, std::span(ids).subspan(at));
      for (Index t = document.begin; some_count && t < document.end; ++t)
        counts.push_back(!source.has_counts() || source.counts(t) ? 1 : 0);
      offsets.push_back(std::ssize(ids));
    }
  }
  return TokenFile::from_tokens(ids, offsets, sources[0].vocab_size(),
                                sources[0].tokenizer_fingerprint(), counts);
}

TokenSplit split_by_document(const TokenFile& file, double valid_fraction, std::uint64_t seed,
                             Index together) {
  check(valid_fraction >= 0 && valid_fraction < 1,
        "the validation fraction is {}, it must be at least 0 and below 1", valid_fraction);
  if (valid_fraction == 0) return {TokenView(file), TokenView(file, {})};
  const auto count = static_cast<std::size_t>(file.num_documents() / together);
  const double wanted = valid_fraction * static_cast<double>(file.size());
  if (count == 1) {
    check(!file.has_counts() && file.size() >= 2,
          "one example cannot be split: give more examples, or a separate validation text");
    const auto held_out =
        std::clamp(static_cast<Index>(std::llround(wanted)), Index{1}, file.size() - 1);
    const Index end = file.size() - held_out;
    return {TokenView(file, {{0, end}}), TokenView(file, {{end, file.size()}})};
  }

  std::vector<Index> order(count);
  std::iota(order.begin(), order.end(), Index{0});
  Rng rng(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);

  std::vector<bool> is_valid(count, false);
  double chosen = 0;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    const Index first = order[i] * together, last = first + together - 1;
    const auto tokens = static_cast<double>(file.document(last).end - file.document(first).begin);
    // A document is taken where that brings the share nearer to what was asked.
    if (i > 0 && chosen + tokens / 2 > wanted) continue;
    is_valid[order[i]] = true;
    chosen += tokens;
    if (chosen >= wanted) break;
  }

  std::vector<TokenRange> train, valid;
  for (Index i = 0; i < file.num_documents(); ++i)
    (is_valid[static_cast<std::size_t>(i / together)] ? valid : train).push_back(file.document(i));
  return {TokenView(file, train), TokenView(file, valid)};
}

}  // namespace focus
