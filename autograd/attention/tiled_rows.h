#pragma once

#include <algorithm>
#include <memory>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/aligned_vector.h"
#include "autograd/base/parallel.h"
#include "autograd/simd/bf16_kernels.h"

// How the tiles of attention get at the rows of q, k and v: in the plan's order, packed for the
// kernels, each by the task that needs it or once for all.
namespace focus::tiled {

/// How the matrices of a pair of tiles are multiplied: as Real, or both sides rounded to bf16, with
/// sums in Real. What the softmax does is Real in either case.
class TileProducts {
 public:
  TileProducts() = default;
  /// Null: Real; so it is, too, where the vectors of the two kinds of kernels do not fit each
  /// other.
  explicit TileProducts(const simd::Bf16Kernels* bf16)
      : bf16_(bf16 != nullptr && kernels_->vector % bf16->vector == 0 ? bf16 : nullptr) {}

  /// Null where products are of Real.
  const simd::Bf16Kernels* bf16() const { return bf16_; }

  /// x[rows, columns] with rows of `ld` numbers, times factor, as the right-hand side of products:
  /// `to` has room for rows * padded columns numbers.
  void pack(const Real* x, Index ld, Index rows, Index columns, Real factor, Real* to) const {
    if (bf16_ == nullptr) return kernels_->pack(x, ld, rows, columns, factor, to);
    const Index pitch = rounded_pitch(columns);
    const Bf16* rounded = round_rows(x, ld, rows, columns, factor, pitch);
    bf16_->pack(rounded, pitch, rows, columns, to);
  }
  /// The transpose of x[columns, rows] likewise.
  void pack_transposed(const Real* x, Index ld, Index columns, Index rows, Real factor,
                       Real* to) const {
    if (bf16_ == nullptr) return kernels_->pack_transposed(x, ld, columns, rows, factor, to);
    const Index pitch = rounded_pitch(rows);
    const Bf16* rounded = round_rows(x, ld, columns, rows, factor, pitch);
    bf16_->pack_transposed(rounded, pitch, columns, rows, to);
  }

  /// The same of rows that the plan puts in another order: row j of x is rows_of[j].
  void pack_gathered(const Real* x, Index ld, const Index* rows_of, Index columns, Index rows,
                     Real factor, Real* to) const {
    if (bf16_ == nullptr) return kernels_->pack_gathered(x, ld, rows_of, columns, rows, factor, to);
    thread_local AlignedVector<Real> gathered;
    gathered.resize(columns * rows);
    for (Index j = 0; j < columns; ++j)
      kernels_->copy_rows(1, rows, x + rows_of[j] * ld, 0, gathered.data() + j * rows, 0);
    pack_transposed(gathered.data(), rows, columns, rows, factor, to);
  }

  /// C[n, columns] (+)= weights[n, depth] X from X's row `first` on; weights in rows of kQueries,
  /// as scores lie. Where depth is odd, X ends with its rows.
  void rows_times(Index n, Index depth, const Real* weights, const simd::Panels& x, Index first,
                  Index columns, Real* c, Index ldc, bool add) const {
    constexpr Index kRow = AttentionPlan::kQueries;
    if (bf16_ == nullptr)
      return kernels_->product(n, columns, depth, weights, kRow, 1, x, first, c, ldc, {.any = add});
    Bf16* rounded = scratch(n * kRow);
    for (Index i = 0; i < n; ++i)
      bf16_->round(weights + i * kRow, depth + depth % 2, rounded + i * kRow);
    bf16_->product(n, columns, depth, rounded, kRow, {x.data, x.rows, x.columns, first, 0}, c, ldc,
                   {.any = add});
  }

  /// C[n, columns] = factor[i] C (null: 1; `begun` false: nothing) + weightsᵀ X over the span's
  /// rows of both, weights [keys, n] in rows of kQueries. (In bf16 pairs of rows go together: one
  /// beyond the span has a weight of 0.)
  void columns_times(Index n, simd::KeySpan span, const Real* weights, const simd::Panels& x,
                     Index columns, Real* c, Index ldc, bool begun, const Real* factor) const {
    constexpr Index kRow = AttentionPlan::kQueries, kPitch = AttentionPlan::kKeys;
    const Index depth = span.end - span.begin;
    if (bf16_ == nullptr)
      return kernels_->product(n, columns, depth, weights + span.begin * kRow, 1, kRow, x,
                               span.begin, c, ldc,
                               {.any = begun, .factor = begun ? factor : nullptr});
    const Index first = span.begin - span.begin % 2;
    Bf16* rounded = scratch(n * kPitch);
    bf16_->round_transposed(weights + first * kRow, kRow, span.end - first, n, rounded, kPitch);
    for (Index i = 0; first < span.begin && i < n; ++i) rounded[i * kPitch] = 0;
    for (Index i = 0; begun && factor != nullptr && i < n; ++i)
      kernels_->scale_row(c + i * ldc, factor[i], columns, c + i * ldc, false);
    bf16_->product(n, columns, span.end - first, rounded, kPitch,
                   {x.data, x.rows, x.columns, first, 0}, c, ldc, {.any = begun});
  }

  /// Numbers of a row of so many that is rounded: pairs of them are read as one.
  static Index rounded_pitch(Index n) { return n + n % 2; }

 private:
  /// Valid until the thread's next call.
  static Bf16* scratch(Index size) {
    thread_local AlignedVector<Bf16> memory;
    if (memory.size() < static_cast<std::size_t>(size)) memory.resize(size);
    return memory.data();
  }
  const Bf16* round_rows(const Real* x, Index ld, Index rows, Index columns, Real factor,
                         Index pitch) const {
    Bf16* rounded = scratch(rows * pitch);
    thread_local AlignedVector<Real> scaled;
    scaled.resize(columns);
    for (Index i = 0; i < rows; ++i) {
      const Real* row = x + i * ld;
      if (factor != 1) {
        kernels_->scale_row(row, factor, columns, scaled.data(), false);
        row = scaled.data();
      }
      bf16_->round(row, columns, rounded + i * pitch);
      if (pitch > columns) rounded[i * pitch + columns] = 0;
    }
    return rounded;
  }

  const simd::Kernels* kernels_ = &simd::kernels();
  const simd::Bf16Kernels* bf16_ = nullptr;
};

/// What the tensors of an attention measure, and which of its heads are to be computed.
struct Sizes {
  Sizes(const AttentionInputs& in, HeadRange range)
      : seq_len(in.q.dim(1)),
        rows(in.q.dim(0) * seq_len),
        heads(in.q.dim(2)),
        all_kv_heads(in.k.dim(2)),
        first_kv_head(range.first),
        kv_heads(range.count),
        query_head(range.query_head),
        head_dim(in.q.dim(3)),
        heads_per_kv_head(heads / all_kv_heads),
        padded_dim(simd::padded(simd::kernels(), head_dim)) {}
  explicit Sizes(const AttentionInputs& in) : Sizes(in, {0, in.k.dim(2)}) {}

  Index seq_len;
  Index rows;  // tokens of all sequences
  Index heads, all_kv_heads;
  Index first_kv_head, kv_heads;  // those to be computed
  Index query_head;               // of the one key head the only query head; -1: all
  Index head_dim;
  Index heads_per_kv_head;  // query heads that share a key head
  Index padded_dim;

  Index q_offset(Index row, Index head) const { return (row * heads + head) * head_dim; }
  /// What has to be added to a token to get the place of its log-sum-exp, for all tokens of the
  /// sequence that `token` is in.
  Index lse_offset(Index token, Index head) const {
    return (token / seq_len * (heads - 1) + head) * seq_len;
  }
  /// kv_head is counted from first_kv_head.
  Index kv_offset(Index row, Index kv_head) const {
    return (row * all_kv_heads + first_kv_head + kv_head) * head_dim;
  }
  Index kv_head_of(Index head) const { return head / heads_per_kv_head - first_kv_head; }
};

/// Numbers from one head's copy of `size` to the next head's: not a multiple of 4 KiB, or a token's
/// heads, written one after the other, would all want the same few places of the first-level cache.
inline Index head_stride(Index size) {
  constexpr Index kLine = 64 / sizeof(Real);
  return (size + kLine - 1) / kLine * kLine + 5 * kLine;
}

/// Some heads of a tensor of tokens, a token's side by side.
struct TokenHeads {
  const Real* data;  // of the first token, at the first of the heads
  Index row_size;    // from one token to the next
  Index heads, head_dim;
};
/// Tokens in another order jump about in memory: those to come are asked for so many rows ahead.
inline constexpr Index kRowsAhead = 6;
inline void prefetch_row(const Real* row, Index size) {
  constexpr Index kLine = 64 / sizeof(Real);
  for (Index i = 0; i < size; i += kLine) __builtin_prefetch(row + i);
}
/// The plan's rows [begin, end), read row by row over all heads, to a matrix for each head:
/// `row_stride` from one row to the next, `head_stride` from one head to the next.
inline void gather_rows(const AttentionPlan& plan, Index begin, Index end, TokenHeads from,
                        Real* to, Index row_stride, Index head_stride) {
  for (Index row = begin; row < end; ++row, to += row_stride) {
    if (row + kRowsAhead < end)
      prefetch_row(from.data + plan.token(row + kRowsAhead) * from.row_size,
                   from.heads * from.head_dim);
    simd::kernels().copy_rows(from.heads, from.head_dim,
                              from.data + plan.token(row) * from.row_size, from.head_dim, to,
                              head_stride);
  }
}

/// Rows of one head, as a matrix; of Real, or where products are in bf16 of rounded numbers.
struct Rows {
  const Real* data;
  Index stride;
  const Bf16* rounded = nullptr;
};
/// The plan's rows [begin, end) of some heads of x, each as a matrix: x itself where the plan keeps
/// the tokens' order, else copies, read row by row over all heads, which lie side by side.
class HeadRows {
 public:
  HeadRows(const AttentionPlan& plan, const Tensor& x, Index begin, Index end, Index first_head,
           Index heads) {
    const Index row_size = x.dim(2) * x.dim(3), head_dim = x.dim(3);
    const Real* first = x.data() + first_head * head_dim;
    if (plan.tokens.empty()) {
      data_ = first + begin * row_size;
      stride_ = row_size;
      head_stride_ = head_dim;
      return;
    }
    stride_ = head_dim;
    head_stride_ = head_stride((end - begin) * head_dim);
    gathered_ = Tensor({heads, head_stride_});
    data_ = gathered_.data();
    gather_rows(plan, begin, end, {first, row_size, heads, head_dim}, gathered_.data(), head_dim,
                head_stride_);
  }
  Rows operator[](Index head) const { return {data_ + head * head_stride_, stride_}; }

 private:
  const Real* data_;
  Index stride_, head_stride_;
  Tensor gathered_;
};

/// Keys or values of every head in the plan's rows: panels [keys, head_dim] for the right-hand side
/// of a product, rows for its left-hand side. Only packed where they have to be.
class TiledKeys {
 public:
  /// The sides of products on which they are read. Real numbers can always be on the left.
  struct Sides {
    bool left, right;
  };

  TiledKeys(const Sizes& s, const AttentionPlan& plan, const Tensor& x, Sides sides,
            const TileProducts& products = {})
      : s_(s),
        plan_(plan),
        x_(x),
        products_(products),
        sides_(products.bf16() == nullptr ? Sides{.left = false, .right = true} : sides),
        packs_(products.bf16() != nullptr || (sides.right && s.padded_dim != s.head_dim) ||
               !plan.tokens.empty() ||
               (s.all_kv_heads > 1 && plan.packs_ahead && plan.average_tile_reads() > kOften)) {
    if (!packs_ || !plan.packs_ahead) return;
    all_ = Copy(*this, s.kv_heads, s.rows, s.rows * s.padded_dim);
    parallel_chunks(static_cast<Index>(plan.key_tiles.size()), 1, [&](Index tile, Index) {
      const auto [first, last] = plan.key_tile(tile);
      if (!plan.is_copy(first)) pack(first, last, 0, s.kv_heads, all_, first);
    });
  }

 private:
  /// Some heads' keys as products read them: on the right a tile's panels begin where its first row
  /// would.
  struct Copy {
    Copy() = default;
    Copy(const TiledKeys& keys, Index kv_heads, Index rows, Index stride)
        : right_stride(stride), left_stride(rows * keys.left_pitch()) {
      if (keys.sides_.right) right = Tensor({kv_heads * right_stride});
      if (keys.sides_.left)
        left = pooled_buffer(static_cast<std::size_t>(kv_heads * left_stride) * sizeof(Bf16));
    }
    bool defined() const { return right_stride > 0; }
    Bf16* left_of(Index kv_head) const {
      return static_cast<Bf16*>(left.get()) + kv_head * left_stride;
    }

    Tensor right;
    std::shared_ptr<void> left;               // of bf16 numbers
    Index right_stride = 0, left_stride = 0;  // from one head to the next
  };

 public:
  /// What one task reads, for its key heads, tile after tile.
  class Reader {
   public:
    Reader(const TiledKeys& keys, Index first_kv_head, Index kv_heads)
        : keys_(keys), first_kv_head_(first_kv_head), kv_heads_(kv_heads) {}

    /// Goes to the first `count` keys of a tile.
    void go_to(const AttentionTile& tile, Index count) {
      const Sizes& s = keys_.s_;
      const bool is_here = gathers_ && begin_ == tile.keys.begin && count <= rows_;
      if (is_here) return;
      begin_ = tile.keys.begin;
      rows_ = tile.cols();
      gathers_ = keys_.packs_ && (tile.copied_keys() || !keys_.all_.defined());
      if (!gathers_) return;
      rows_ = count;
      if (!gathered_.defined())
        gathered_ = Copy(keys_, kv_heads_, AttentionPlan::kKeys,
                         head_stride(AttentionPlan::kKeys * s.padded_dim));
      keys_.pack(begin_, begin_ + count, first_kv_head_, kv_heads_, gathered_, 0);
    }
    const TileProducts& products() const { return keys_.products_; }
    simd::Panels panels(Index kv_head) const {
      const Sizes& s = keys_.s_;
      if (!keys_.packs_)
        return {keys_.x_.data() + s.kv_offset(begin_, kv_head), rows_, s.padded_dim, 0,
                s.all_kv_heads * s.head_dim};
      const auto [copy, head, row] = place(kv_head);
      return {copy.right.data() + head * copy.right_stride + row * s.padded_dim, rows_,
              s.padded_dim};
    }
    /// The tile's rows from column `column` on, the first of a panel.
    Rows rows(Index kv_head, Index column) const {
      const Sizes& s = keys_.s_;
      if (keys_.sides_.left) {
        const auto [copy, head, row] = place(kv_head);
        const Index pitch = keys_.left_pitch();
        return {nullptr, pitch, copy.left_of(head) + row * pitch + column};
      }
      if (keys_.packs_)
        return {panels(kv_head).data + column * rows_,
                std::min(simd::kernels().panel, s.padded_dim - column)};
      return {keys_.x_.data() + s.kv_offset(begin_, kv_head) + column, s.all_kv_heads * s.head_dim};
    }

   private:
    struct Place {
      const Copy& copy;
      Index head, row;
    };
    Place place(Index kv_head) const {
      if (gathers_) return {gathered_, kv_head - first_kv_head_, 0};
      return {keys_.all_, kv_head, begin_};
    }

    const TiledKeys& keys_;
    const Index first_kv_head_, kv_heads_;
    Index begin_ = 0, rows_ = 0;
    bool gathers_ = false;  // the tile's keys are this task's own copy
    Copy gathered_;
  };

 private:
  /// Readings beyond which a copy pays where heads lie side by side: the rows of one begin at few
  /// places of a page and so have few sets of the first-level cache.
  static constexpr double kOften = 12;

  Index left_pitch() const { return TileProducts::rounded_pitch(s_.head_dim); }

  /// Rows [first, last) of the plan, some heads of them, to row `row` of a copy.
  void pack(Index first, Index last, Index first_kv_head, Index kv_heads, Copy& to,
            Index row) const {
    Real* const right = to.right.defined() ? to.right.data() + row * s_.padded_dim : nullptr;
    const simd::Bf16Kernels* const bf16 = products_.bf16();
    if (bf16 == nullptr && s_.padded_dim == s_.head_dim && s_.head_dim <= simd::kernels().panel) {
      // Rows are panels.
      gather_rows(plan_, first, last,
                  {x_.data() + s_.kv_offset(0, first_kv_head), s_.all_kv_heads * s_.head_dim,
                   kv_heads, s_.head_dim},
                  right, s_.padded_dim, to.right_stride);
      return;
    }
    const HeadRows rows(plan_, x_, first, last, s_.first_kv_head + first_kv_head, kv_heads);
    for (Index i = 0; i < kv_heads; ++i) {
      if (sides_.right)
        products_.pack(rows[i].data, rows[i].stride, last - first, s_.head_dim, 1,
                       right + i * to.right_stride);
      for (Index r = 0; sides_.left && r < last - first; ++r) {
        Bf16* rounded = to.left_of(i) + (row + r) * left_pitch();
        bf16->round(rows[i].data + r * rows[i].stride, s_.head_dim, rounded);
        if (left_pitch() > s_.head_dim) rounded[s_.head_dim] = 0;
      }
    }
  }

  const Sizes& s_;
  const AttentionPlan& plan_;
  const Tensor& x_;
  const TileProducts products_;
  const Sides sides_;
  const bool packs_;  // else x itself serves
  Copy all_;          // all keys but copies, where they are packed ahead
};

}  // namespace focus::tiled
