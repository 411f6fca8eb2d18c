#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/ops/weight_products.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Adds to the gradient of x: to what is there already, where it can.
void add_product(Grads::Slot x, const Shape& shape, const ProductRows& dy,
                 const ProductWeight& weight) {
  if (Tensor* sum = x.sum()) {
    check(sum->size() == shape.size(), "linear: gradients {} and {} meet", sum->shape(), shape);
    return weight_product_backward(dy, weight, sum->data(), Into::add);
  }
  Tensor dx(shape);
  weight_product_backward(dy, weight, dx.data());
  x.add(dx);
}

/// x seen as [before, a, between, b, after] -> [before, b, between, a, after]
Tensor swapped(const Tensor& x, int i, int j) {
  Index before = 1, between = 1, after = 1;
  for (int d = 0; d < i; ++d) before *= x.dim(d);
  for (int d = i + 1; d < j; ++d) between *= x.dim(d);
  for (int d = j + 1; d < x.rank(); ++d) after *= x.dim(d);
  const Index a = x.dim(i), b = x.dim(j);
  Tensor y(x.shape().with(i, b).with(j, a));
  const Real* from = x.data();
  Real* to = y.data();
  for (Index p = 0; p < before; ++p)
    for (Index u = 0; u < b; ++u)
      for (Index q = 0; q < between; ++q)
        for (Index v = 0; v < a; ++v, to += after)
          std::copy_n(from + (((p * a + v) * between + q) * b + u) * after, after, to);
  return y;
}

/// Numbers of one token of a row [1, seq_len, ...].
Index width_of(const Shape& shape) {
  Index width = 1;
  for (int i = 2; i < shape.rank(); ++i) width *= shape[i];
  return width;
}

}  // namespace

LinearInput::LinearInput(Variable x) : x_(std::move(x)) {}

LinearInput::LinearInput(Variable x, std::span<const Part> parts) : x_(std::move(x)) {
  std::vector<const MatrixStorage*> matrices;
  for (const auto& [weight, bias] : parts) {
    const bool fits = weight.is_frozen_matrix() && weight.dim(1) == x_.dim(-1) &&
                      (!bias.defined() || bias.value().size() == weight.dim(0));
    if (!fits) return;  // linear() computes it, or refuses to
    matrices.push_back(weight.frozen_matrix().operator->());
  }
  const Index rows = x_.value().rows();
  if (!faster_together(rows, matrices)) return;
  std::vector<FrozenProduct> products;
  for (const auto& [weight, bias] : parts) {
    made_.push_back({matrices[made_.size()], Tensor(x_.shape().with(-1, weight.dim(0)))});
    products.push_back({made_.back().by, made_.back().product.data(),
                        Start(bias.defined() ? bias.value().data() : nullptr)});
  }
  gemm_nt_together(rows, x_.value().data(), products);
}

Tensor LinearInput::take_product(const Weight& weight) const {
  for (auto& [by, product] : made_)
    if (weight.is_frozen_matrix() && by == weight.frozen_matrix().operator->())
      return std::exchange(product, {});
  return {};
}

const ProductRows& LinearInput::rows(const Weight& by) const {
  std::shared_ptr<const ProductRows>& rows = rows_[by.multiplies_in_bf16()];
  if (!rows) rows = std::make_shared<const ProductRows>(x_.value(), by);
  return *rows;
}

Variable linear(const LinearInput& input, const Weight& weight, const Variable& bias) {
  const Variable& x = input.x();
  check(weight.shape().rank() == 2 && x.shape().rank() >= 1 && x.dim(-1) == weight.dim(1),
        "linear: x {} does not fit weight {} ([out, in])", x.shape(), weight.shape());
  const Index out = weight.dim(0);
  check(!bias.defined() || bias.value().size() == out, "linear: bias {} does not fit weight {}",
        bias.shape(), weight.shape());
  const ProductRows& rows = input.rows(weight);
  Tensor y = input.take_product(weight);
  if (!y.defined()) {
    y = Tensor(x.shape().with(-1, out));
    weight_product(rows, ProductWeight(weight), y.data(),
                   Start(bias.defined() ? bias.value().data() : nullptr));
  }
  // Backward keeps only what it reads: a frozen weight needs no x. A weight is rounded again there,
  // rather than kept twice.
  const ProductRows kept_rows = weight.requires_grad() ? rows : ProductRows();
  const Weight kept_weight = x.requires_grad() ? weight : Weight();
  return Variable::from_op(
      "linear", y, {x, weight.input(), bias},
      [=, x_shape = x.shape(), weight_shape = weight.shape(), bias_shape = bias.shape(),
       in_bf16 = weight.multiplies_in_bf16()](const Tensor& dy, Grads grads) {
        const ProductRows dy_rows(dy.rows(), dy.cols(), dy.data(), in_bf16);
        if (grads[0].wanted())  // dx = dy W
          add_product(grads[0], x_shape, dy_rows, ProductWeight(kept_weight));
        if (grads[1].wanted()) {  // dW = dyᵀ x
          Tensor dw(weight_shape);
          weight_gradient(dy_rows, kept_rows, dw);
          grads[1].add(dw);
        }
        if (grads[2].wanted()) grads[2].add(sum_rows(dy, bias_shape));
      });
}

Variable matmul(const Variable& a, const Variable& b) {
  check(a.shape().rank() == 3 && b.shape().rank() == 3 && a.dim(0) == b.dim(0) &&
            a.dim(2) == b.dim(1),
        "matmul: {} does not fit {}", a.shape(), b.shape());
  const Index batch = a.dim(0), m = a.dim(1), k = a.dim(2), n = b.dim(2);
  Tensor y({batch, m, n});
  for (Index i = 0; i < batch; ++i)
    gemm(m, n, k, a.value().data() + i * m * k, k, b.value().data() + i * k * n, n,
         y.data() + i * m * n, n);
  const Tensor kept_a = b.requires_grad() ? a.value() : Tensor();
  const Tensor kept_b = a.requires_grad() ? b.value() : Tensor();
  return Variable::from_op("matmul", y, {a, b}, [=](const Tensor& dy, Grads grads) {
    if (grads[0].wanted()) {  // dA = dY Bᵀ
      Tensor da({batch, m, k});
      for (Index i = 0; i < batch; ++i)
        gemm_nt(m, k, n, dy.data() + i * m * n, n, kept_b.data() + i * k * n, n,
                da.data() + i * m * k, k);
      grads[0].add(da);
    }
    if (grads[1].wanted()) {  // dB = Aᵀ dY
      Tensor db({batch, k, n});
      for (Index i = 0; i < batch; ++i)
        gemm_tn(k, n, m, kept_a.data() + i * m * k, k, dy.data() + i * m * n, n,
                db.data() + i * k * n, n);
      grads[1].add(db);
    }
  });
}

Variable transpose(const Variable& x, int i, int j) {
  const int rank = x.shape().rank();
  check(i >= 0 && j >= 0 && i < rank && j < rank, "transpose: dimensions {}, {} are invalid for {}",
        i, j, x.shape());
  if (i == j) return x;
  const int low = std::min(i, j), high = std::max(i, j);
  return Variable::from_op(
      "transpose", swapped(x.value(), low, high), {x},
      [low, high](const Tensor& dy, Grads grads) { grads[0].add(swapped(dy, low, high)); });
}

Variable reshape(const Variable& x, const Shape& shape) {
  return Variable::from_op(
      "reshape", x.value().reshape(shape), {x},
      [before = x.shape()](const Tensor& dy, Grads grads) { grads[0].add(dy.reshape(before)); });
}

Variable embedding(const Weight& weight, std::span<const std::int32_t> ids,
                   const Shape& ids_shape) {
  check(weight.shape().rank() == 2, "embedding: weight {} is not a matrix", weight.shape());
  check(ids_shape.size() == static_cast<Index>(ids.size()), "embedding: {} ids do not fill {}",
        ids.size(), ids_shape);
  const Index rows = weight.dim(0), width = weight.dim(1);
  std::vector<Index> dims(ids_shape.dims().begin(), ids_shape.dims().end());
  dims.push_back(width);
  Tensor y{Shape(dims)};
  for (std::size_t t = 0; t < ids.size(); ++t) {
    check(ids[t] >= 0 && ids[t] < rows, "embedding: id {} at position {} is not below {}", ids[t],
          t, rows);
    weight_row(weight, ids[t], y.data() + static_cast<Index>(t) * width);
  }
  std::vector<std::int32_t> kept_ids;
  if (weight.requires_grad()) kept_ids.assign(ids.begin(), ids.end());
  return Variable::from_op(
      "embedding", y, {weight.input()},
      [kept_ids, shape = weight.shape(), width](const Tensor& dy, Grads grads) {
        Tensor dw = Tensor::zeros(shape);
        for (std::size_t t = 0; t < kept_ids.size(); ++t)
          for (Index c = 0; c < width; ++c)
            dw.data()[kept_ids[t] * width + c] += dy[static_cast<Index>(t) * width + c];
        grads[0].add(dw);
      });
}

Variable slice(const Variable& x, Index begin, Index end) {
  check(x.shape().rank() >= 2 && x.dim(0) == 1 && begin >= 0 && begin <= end && end <= x.dim(1),
        "slice: tokens {} to {} do not fit {}, expected one row [1, seq_len, ...]", begin, end,
        x.shape());
  const Index width = width_of(x.shape());
  Tensor part(x.shape().with(1, end - begin));
  std::copy_n(x.value().data() + begin * width, part.size(), part.data());
  return Variable::from_op("slice", part, {x},
                           [begin, width, shape = x.shape()](const Tensor& dy, Grads grads) {
                             // Onto what other slices have left: each touches its own tokens alone.
                             if (Tensor* const sum = grads[0].sum()) {
                               Real* const to = sum->data() + begin * width;
                               for (Index i = 0; i < dy.size(); ++i) to[i] += dy[i];
                               return;
                             }
                             Tensor dx = Tensor::zeros(shape);
                             std::ranges::copy(dy.span(), dx.data() + begin * width);
                             grads[0].add(std::move(dx));
                           });
}

Variable concatenate(std::span<const Variable> parts) {
  check(!parts.empty(), "concatenate: no tensors given");
  Index tokens = 0;
  for (const Variable& part : parts) {
    check(
        part.shape().rank() >= 2 && part.dim(0) == 1 &&
            part.shape().with(1, 1) == parts[0].shape().with(1, 1),
        "concatenate: {} does not fit {}, expected rows [1, n, ...] with equal dimensions after n",
        part.shape(), parts[0].shape());
    tokens += part.dim(1);
  }
  Tensor all(parts[0].shape().with(1, tokens));
  Real* to = all.data();
  for (const Variable& part : parts) to = std::ranges::copy(part.value().span(), to).out;
  std::vector<Shape> shapes;
  for (const Variable& part : parts) shapes.push_back(part.shape());
  return Variable::from_op("concatenate", all, parts,
                           [shapes = std::move(shapes)](const Tensor& dy, Grads grads) {
                             const Real* from = dy.data();
                             for (std::size_t i = 0; i < shapes.size(); ++i) {
                               const Index size = shapes[i].size();
                               if (grads[i].wanted()) {
                                 Tensor part(shapes[i]);
                                 std::copy_n(from, size, part.data());
                                 grads[i].add(std::move(part));
                               }
                               from += size;
                             }
                           });
}

}  // namespace focus
