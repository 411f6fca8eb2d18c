#include "data/tokenizers/byte_level_bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <queue>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::size_t kLongPiece = PieceCache::kMaxPiece;  // longer: split where merges allow

std::uint64_t pair_key(std::integral auto left, std::integral auto right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

std::uint64_t hash_of(std::string_view piece) {
  return XXH3_64bits(piece.data(), piece.size()) >> 1;  // never FlatMap::kNoKey
}

}  // namespace

const ByteAlphabet& ByteAlphabet::instance() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  char32_t next_substitute = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    // Printable Latin-1 represents itself; blanks, controls and the soft hyphen get substitutes.
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = printable ? static_cast<char32_t>(byte) : next_substitute++;
    std::string utf8;
    append_utf8(utf8, character);
    utf8.copy(characters_[byte].utf8.data(), characters_[byte].size = utf8.size());
    bytes_[character] = static_cast<std::int16_t>(byte);
  }
}

void ByteAlphabet::encode(std::string_view bytes, std::string& out) const {
  std::size_t end = out.size();
  out.resize(end + 2 * bytes.size());
  for (const char byte : bytes) {
    const Character& character = characters_[static_cast<unsigned char>(byte)];
    out[end] = character.utf8[0];
    out[end + 1] = character.utf8[1];
    end += character.size;
  }
  out.resize(end);
}

std::vector<std::string> ByteAlphabet::sorted() const {
  std::vector<std::string> characters;
  for (char32_t code_point = 0; code_point < kEnd; ++code_point)
    if (bytes_[code_point] >= 0) append_utf8(characters.emplace_back(), code_point);
  return characters;
}

std::string ByteAlphabet::decode(const std::string& token) const {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); i += utf8_char_size(token[i])) {
    const char32_t code_point = utf8_code_point(std::string_view(token).substr(i));
    if (code_point >= kEnd || bytes_[code_point] < 0) return token;
    bytes.push_back(static_cast<char>(bytes_[code_point]));
  }
  return bytes;
}

bool PieceCache::append(std::string_view piece, std::vector<std::int32_t>& ids) const {
  const Entry* entry = piece.size() > kMaxPiece ? nullptr : entries_.find(hash_of(piece));
  if (entry == nullptr || std::string_view(texts_).substr(entry->text, entry->text_size) != piece)
    return false;
  const auto first = ids_.begin() + entry->ids;
  ids.insert(ids.end(), first, first + entry->ids_size);
  return true;
}

void PieceCache::put(std::string_view piece, std::span<const std::int32_t> ids) {
  if (piece.size() > kMaxPiece || ids.size() > kMaxPiece) return;
  if (texts_.size() + ids_.size() * sizeof(ids_[0]) + entries_.bytes() > kMaxBytes) *this = {};
  const std::uint64_t hash = hash_of(piece);
  if (entries_.find(hash) != nullptr) return;
  entries_.set(hash,
               {static_cast<std::uint32_t>(texts_.size()), static_cast<std::uint32_t>(ids_.size()),
                static_cast<std::uint16_t>(piece.size()), static_cast<std::uint16_t>(ids.size())});
  texts_ += piece;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

Bpe::Bpe(Vocabulary vocabulary, const Merges& merges, const BpeOptions& options,
         const std::string& where)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  std::unordered_map<std::int32_t, const std::string*> by_id(vocabulary_.size());
  for (const auto& [token, id] : vocabulary_) {
    const auto [other, is_new] = by_id.emplace(id, &token);
    if (!is_new)
      fail("{}: id {} belongs to two tokens, {} and {}", where, id,
           json_quoted(std::min(token, *other->second)),
           json_quoted(std::max(token, *other->second)));
  }
  if (options_.unk_token) {
    unk_id_ = find(*options_.unk_token);
    if (!unk_id_)
      fail("{}: unk_token {} is not in the vocabulary", where, json_quoted(*options_.unk_token));
  }
  if (options_.byte_fallback)
    for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte)
      byte_ids_[byte] = find(fmt::format("<0x{:02X}>", byte));
  for (const auto& [token, id] : vocabulary_)
    if (!token.empty() && utf8_char_size(token[0]) == token.size())
      characters_.set(utf8_code_point(token), id);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (left.empty() || right.empty()) fail("{}: merge {} has an empty part", where, rank);
    const std::string merged = left + right;
    for (const std::string& token : {left, right, merged}) {
      if (!find(token))
        fail("{}: merge {} ({} with {}) needs the token {}, which is not in the vocabulary", where,
             rank, json_quoted(left), json_quoted(right), json_quoted(token));
    }
    merges_.set(pair_key(*find(left), *find(right)),
                {static_cast<std::int32_t>(rank), *find(merged)});
    char32_t previous = utf8_code_point(merged);
    for (std::size_t i = utf8_char_size(merged[0]); i < merged.size();) {
      const char32_t current = utf8_code_point(std::string_view(merged).substr(i));
      inner_pairs_.set(pair_key(previous, current), true);
      previous = current;
      i += utf8_char_size(merged[i]);
    }
  }
}

std::optional<std::int32_t> Bpe::find(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
}

const Bpe::Merge* Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  return merges_.find(pair_key(left, right));
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (cache_.append(piece, ids)) return;
  if (options_.ignore_merges) {
    if (const auto id = find(piece)) {
      ids.push_back(*id);
      cache_.put(piece, std::span(ids).last(1));
      return;
    }
  }
  // Where whole pieces go before merges, the cache must not take a part for one.
  while (piece.size() > kLongPiece && !options_.ignore_merges) {
    const std::size_t size = independent_part(piece);
    encode_part(piece.substr(0, size), ids);
    piece.remove_prefix(size);
  }
  encode_part(piece, ids);
}

std::size_t Bpe::independent_part(std::string_view text) const {
  // Between two characters that are tokens, and neighbours in no merged token, nothing can merge:
  // a word after its blank, for example. That makes a text without pre-tokenizer cheap.
  char32_t left = utf8_code_point(text);
  for (std::size_t end = utf8_char_size(text[0]); end < text.size();) {
    const char32_t right = utf8_code_point(text.substr(end));
    if (!inner_pairs_.find(pair_key(left, right)) && characters_.find(left) &&
        characters_.find(right))
      return end;
    left = right;
    end += utf8_char_size(text[end]);
  }
  return text.size();
}

void Bpe::encode_part(std::string_view part, std::vector<std::int32_t>& ids) {
  if (cache_.append(part, ids)) return;
  std::vector<std::int32_t> part_ids;
  split_characters(part, part_ids);
  apply_merges(part_ids);
  ids.insert(ids.end(), part_ids.begin(), part_ids.end());
  cache_.put(part, part_ids);
}

void Bpe::split_characters(std::string_view part, std::vector<std::int32_t>& ids) const {
  bool unk_waits = false;
  const auto put_unk = [&] {
    if (unk_waits) ids.push_back(*unk_id_);
    unk_waits = false;
  };
  while (!part.empty()) {
    const std::string_view character = part.substr(0, utf8_char_size(part[0]));
    part.remove_prefix(character.size());
    if (const std::int32_t* id = characters_.find(utf8_code_point(character))) {
      put_unk();
      ids.push_back(*id);
      continue;
    }
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(character.begin(), character.end(),
                    [&](char byte) { return byte_id(byte).has_value(); })) {
      for (const char byte : character) ids.push_back(*byte_id(byte));
    } else if (unk_id_) {
      if (!options_.fuse_unk) put_unk();
      unk_waits = true;
    }
  }
  put_unk();
}

void Bpe::apply_merges(std::vector<std::int32_t>& ids) const {
  check(ids.size() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
        "Bpe: a piece of {} characters is too long: split the text into documents", ids.size());
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;  // -1: none; kGone: merged into its left neighbour
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;  // of the left symbol
    std::int32_t id;        // of the result
    bool operator>(const Candidate& other) const {
      return std::pair(rank, position) > std::pair(other.rank, other.position);
    }
  };
  constexpr std::int32_t kGone = -2;

  const auto count = static_cast<std::int32_t>(ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[i], i - 1, i + 1 < count ? i + 1 : -1});
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[i]; };

  std::vector<Candidate> first;
  for (std::int32_t i = 0; i + 1 < count; ++i)
    if (const Merge* merge = find_merge(symbol(i).id, symbol(i + 1).id))
      first.push_back({merge->rank, i, merge->id});
  std::priority_queue queue(std::greater<Candidate>(), std::move(first));
  const auto propose = [&](std::int32_t left) {
    if (left < 0 || symbol(left).next < 0) return;
    if (const Merge* merge = find_merge(symbol(left).id, symbol(symbol(left).next).id))
      queue.push({merge->rank, left, merge->id});
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.position);
    if (left.next < 0) continue;
    Symbol& right = symbol(left.next);
    // The neighbours may have changed since this was proposed.
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;
    left.id = best.id;
    left.next = right.next;
    right.next = kGone;
    if (left.next >= 0) symbol(left.next).previous = best.position;
    propose(left.previous);
    propose(best.position);
  }
  std::size_t kept = 0;
  for (const Symbol& each : symbols)
    if (each.next != kGone) ids[kept++] = each.id;
  ids.resize(kept);
}

}  // namespace focus
