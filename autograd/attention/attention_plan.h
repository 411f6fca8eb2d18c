#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "autograd/simd/kernels.h"
#include "autograd/tensor.h"

// Which pairs of tokens attention computes, as tiles of queries x keys. The words of the engine, on
// one causal sequence of 512 tokens with a window of 256 positions:
//
//   key tile (128 rows)      0   1   2   3
//   query tile 0 (64 rows)   /   .   .   .   segment [0, 1)     #  every pair is seen
//              1             /   .   .   .   segment [0, 1)     /  some are
//              2             #   /   .   .   segment [0, 2)     .  none: not computed
//              3             #   /   .   .   segment [0, 2)
//              4             /   #   /   .   segment [0, 3)
//              5             /   #   /   .   segment [0, 3)
//              6             .   /   #   /   segment [1, 4)
//              7             .   /   #   /   segment [1, 4)
//
// A segment is a run of key tiles that a query tile sees. An AttentionPlan is such a table: the
// query tiles, their segments, the key tiles. Its rows are the tokens in their order or, in a
// permuted plan (`tokens`), in another, where the keys that a query sees come to lie together: one
// query tile may then have several segments.
//
// Scores are computed a pair of tiles at a time and lie as [keys, queries], so that a vector (here
// 16 numbers) holds queries. The first 72 keys of query tile 0 and key tile 0 above:
//
//   queries   0      16      32      48      64
//   key   0   +-------+-------+-------+-------+
//             | x x x | x x x | x x x | x x x |   band: keys [ 0, 24) x queries [ 0, 64)
//        24   +-------+-------+-------+-------+
//                     | x x x | x x x | x x x |   band: keys [24, 36) x queries [16, 64)
//        36           +-------+-------+-------+
//                             | x x x | x x x |   band: keys [36, 48) x queries [32, 64)
//        48                   +-------+-------+
//                                     | x x x |   band: keys [48, 72) x queries [48, 64)
//        72                           +-------+
//
// A band is some keys (a multiple of Visibility::kBand) with the vectors of queries that see any of
// them: what the products compute. A span is one vector's view, what the softmax goes through: of
// the queries [32, 48) it is the keys [0, 48), of which every one of them sees [0, 33).
namespace focus {

/// Query tiles, each with the key tiles that it sees. Within a tile the positions rise, so that
/// what a row sees of a key tile is one run.
struct AttentionPlan {
  static constexpr Index kQueries = 64;  // rows of a query tile: a panel of AVX-512
  static constexpr Index kKeys = 128;    // rows of a key tile

  struct Rows {
    Index begin, end;
  };
  using KeyTile = Rows;
  /// Tokens in (after, last].
  struct Reach {
    Index after, last;
  };
  struct Segment {
    Index begin, end;  // key tiles
  };
  struct QueryTile {
    Index begin, end;                  // rows
    Index first_segment, end_segment;  // of `segments`
  };

  Index window = 0;  // positions back to which a token sees, itself included; 0: all
  Index gap = 0;     // positions back from a token to the nearest that it sees; 0: itself
  /// Queries in blocks: the gap and the near zone's beginning are counted from a block's first.
  struct Blocks {
    Index size = 1;
    Index seq_len = 0;  // blocks are counted from each sequence's beginning
    Index near = -1;    // positions before its block that a token sees; below 0: all
    Index sinks = 0;    // a near zone that begins at or before this position begins at 0
  };
  Blocks blocks;
  std::vector<KeyTile> key_tiles;
  std::vector<Segment> segments;
  /// By sequence, then class, so that the keys in use stay in the cache; in each the heavy ones
  /// first, so that no thread ends with one.
  std::vector<QueryTile> query_tiles;
  /// Where query tiles hold the same tokens: the first tile of each run for one thread, and the end
  /// of the last. For forward passes; empty: no token is in two tiles.
  std::vector<Index> runs;
  /// Each row's token [0, batch * seq_len); empty where rows are tokens in their order. Query tiles
  /// may have separate rows, behind those of all keys: queries in another order.
  std::vector<Index> tokens;
  /// The last rows of `tokens` may be copies of earlier ones, for key tiles only: keys of many
  /// small classes in the order of their positions. Each copy's original row.
  std::vector<Index> copies;
  /// Whether keys are permuted once, before the tasks start; otherwise by each task, as copies are.
  bool packs_ahead = true;

  Index token(Index row) const { return tokens.empty() ? row : tokens[row]; }
  /// Rows of which each token has one.
  Index own_rows() const { return static_cast<Index>(tokens.size() - copies.size()); }
  bool is_copy(Index row) const { return !copies.empty() && row >= own_rows(); }
  Index own_row(Index row) const { return is_copy(row) ? copies[row - own_rows()] : row; }
  /// A token sees (seen_after, seen_last] of its sequence; both rise with the token.
  Index seen_after(Index token) const;
  Index seen_last(Index token) const { return block_start(token) - gap; }
  /// The tokens that any query of rows [begin, end) sees.
  Reach reach(Index begin, Index end) const;
  /// The end of the rows, whose tokens rise, that hold tokens up to `last`.
  Index end_of_rows(Rows rows, Index last) const;
  /// The rows, whose tokens rise, that hold a token in reach.
  Rows rows_in(const Reach& reach, Rows rows) const;
  /// What a query tile costs, in keys times lanes of queries, and all of them: to compare plans.
  double cost(const QueryTile& tile) const;
  double cost() const;
  std::span<const Segment> segments_of(const QueryTile& tile) const {
    const auto first = static_cast<std::size_t>(tile.first_segment);
    return std::span(segments).subspan(first, tile.end_segment - first);
  }
  const KeyTile& key_tile(Index number) const { return key_tiles[number]; }
  /// Number of key tiles that a query tile reads.
  Index key_tiles_of(const QueryTile& tile) const;
  /// How often a key tile is read, on average.
  double average_tile_reads() const;
  /// Sorts the query tiles from `first` on by what they cost.
  void heaviest_first(std::size_t first);
  /// The query tiles that see any keys, by number, in parts that share no row as query or key
  /// (sequences, classes): their gradients never meet.
  std::vector<std::vector<Index>> independent_parts() const;

 private:
  /// The token itself where nothing is counted from its block.
  Index block_start(Index token) const {
    return gap == 0 || blocks.size <= 1 ? token : token - token % blocks.seq_len % blocks.size;
  }
};

/// Every token in its order sees its last `window` positions (0: all) that `blocks` lets it see.
AttentionPlan causal_plan(Index batch, Index seq_len, Index window,
                          AttentionPlan::Blocks blocks = {});
/// The same for one row of several documents, which do not see each other: `documents` are their
/// first tokens, from 0 on, and the end.
AttentionPlan document_plan(std::span<const Index> documents, Index window);

/// One pair of tiles.
struct AttentionTile {
  const AttentionPlan* plan = nullptr;
  Index begin = 0, end = 0;  // rows of queries
  AttentionPlan::KeyTile keys{0, 0};
  bool copied_keys() const { return plan->is_copy(keys.begin); }
  Index rows() const { return end - begin; }
  Index cols() const { return keys.end - keys.begin; }
  /// For each query the number of keys that lie `distance` positions or more before it: those keys
  /// are the tile's first ones.
  void keys_behind(Index distance, simd::Lane* counts) const {
    keys_up_to([distance](Index token) { return token - distance; }, counts);
  }
  /// For each query the number of keys up to token furthest(its token), which rises with it.
  template <class Furthest>
  void keys_up_to(Furthest&& furthest, simd::Lane* counts) const {
    // Both lie in one sequence: tokens' distances are positions'.
    Index key = 0;
    for (Index r = 0; r < rows(); ++r) {
      const Index last = furthest(plan->token(begin + r));
      if (plan->tokens.empty())
        key = std::clamp<Index>(last - keys.begin + 1, 0, cols());
      else
        while (key < cols() && plan->token(keys.begin + key) <= last) ++key;
      counts[r] = static_cast<simd::Lane>(key);
    }
  }
};

/// Some keys of a tile and the vectors of queries that see any of them.
struct KeyBand {
  Index begin, end;              // keys
  Index first_query, end_query;  // whole vectors
};

/// What the queries of a tile see of its keys; computed once for all heads.
class Visibility {
 public:
  /// Keys of a band.
  static constexpr Index kBand = 12;
  static_assert(kBand % simd::kMicroRows == 0);

  void set(const AttentionTile& tile);
  /// `rows` queries, each of which sees keys [first, last) of `cols`; both rise.
  void set(Index rows, Index cols, std::span<const simd::Lane> first,
           std::span<const simd::Lane> last);

  const std::vector<KeyBand>& bands() const { return bands_; }
  /// The end of the keys that any query sees.
  Index end() const { return bands_.empty() ? 0 : bands_.back().end; }
  /// What the `vector`th vector of queries sees; `whole_bands`: widened to the bands it is in.
  simd::KeySpan span(Index vector, bool whole_bands) const;
  /// Each query sees the keys [first, last); queries beyond the tile's see what its last sees.
  const simd::Lane* first() const { return first_.data(); }
  const simd::Lane* last() const { return last_.data(); }

 private:
  /// From first_ and last_ of so many queries; the lanes beyond them see what the last does.
  void find_bands(Index rows);

  std::array<simd::Lane, AttentionPlan::kQueries> first_{}, last_{};
  std::vector<KeyBand> bands_;
  Index cols_ = 0;
};

}  // namespace focus
