#include <gtest/gtest.h>

#include "data/tokenizers/byte_level_bpe.h"

namespace focus {
namespace {

TEST(PieceCache, GivesBackWhatWasPutAndNothingElse) {
  // More than it holds: what it forgets it does not know, and never takes for another piece.
  PieceCache cache;
  std::vector<std::int32_t> ids;
  std::size_t known = 0;
  constexpr int kPieces = 1'100'000;
  for (int i = 0; i < kPieces; ++i) {
    const std::vector<std::int32_t> own(static_cast<std::size_t>(i % 4), i);
    cache.put("piece " + std::to_string(i), own);
  }
  for (int i = 0; i < kPieces; ++i) {
    ids.clear();
    if (!cache.append("piece " + std::to_string(i), ids)) continue;
    ++known;
    ASSERT_EQ(ids, std::vector<std::int32_t>(static_cast<std::size_t>(i % 4), i));
  }
  EXPECT_GT(known, 0u);
  EXPECT_LT(known, static_cast<std::size_t>(kPieces));
  const std::string long_piece(PieceCache::kMaxPiece + 1, 'x');
  cache.put(long_piece, ids);
  EXPECT_FALSE(cache.append(long_piece, ids));
  EXPECT_FALSE(PieceCache().append("x", ids));
}

}  // namespace
}  // namespace focus
