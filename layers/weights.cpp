#include "layers/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "layers/gguf_settings.h"

namespace focus {
namespace {

/// The names of a parameter by every rule of its module, in their order.
std::vector<StoredName> names_of(std::span<const TensorRule> rules, const std::string& ours) {
  const std::size_t kind = ours.rfind('.');  // ".weight", ".bias"
  std::string module = ours.substr(0, kind), layer;
  if (const std::string head = "layers."; ours.starts_with(head)) {
    const std::size_t end = ours.find('.', head.size());
    layer = ours.substr(head.size(), end - head.size());
    module.replace(head.size(), layer.size(), "{}");
  }
  std::vector<StoredName> found;
  for (const TensorRule& rule : rules) {
    if (rule.ours != module) continue;
    std::string theirs = rule.theirs + ours.substr(kind);
    if (const std::size_t at = theirs.find("{}"); at != std::string::npos)
      theirs.replace(at, 2, layer);
    found.push_back({&rule, theirs});
  }
  if (found.empty()) throw std::logic_error("no name in files for " + ours);
  return found;
}

/// The names in GGUF files: gate and up are one tensor where the family has one.
std::vector<StoredName> gguf_names_of(const Family& family, const std::string& ours) {
  const bool in_two = names_of(family.rules, ours).front().rule->parts == 2;
  std::vector<StoredName> found = names_of(gguf_rules(), ours);
  std::erase_if(found, [&](const StoredName& each) { return (each.rule->parts == 2) != in_two; });
  return found;
}

/// What is fused in the family's own files is fused in GGUF's: llama.cpp has one form of each.
StoredName name_of(const Family& family, const std::string& ours,
                   TensorNaming naming = TensorNaming::published) {
  const StoredName published = names_of(family.rules, ours).front();
  if (naming == TensorNaming::published) return published;
  for (const StoredName& each : gguf_names_of(family, ours))
    if (each.rule->parts == published.rule->parts) return each;
  throw std::logic_error("no name in GGUF files for " + ours);
}

/// Under its full name, or as a bare base model saves it.
const TensorInfo* find_published(const TensorSource& source, const Family& family,
                                 const std::string& name) {
  if (const TensorInfo* info = source.find(name)) return info;
  return name.starts_with(family.base_prefix) ? source.find(name.substr(family.base_prefix.size()))
                                              : nullptr;
}

/// Rows in blocks, [out, in], are never transposed, whatever a family's other files hold.
bool is_transposed(const TensorRule& rule, const Shape& shape, Dtype dtype) {
  return rule.transposed && shape.rank() == 2 && !in_blocks(dtype);
}

/// Rows of our part of a tensor: q, k and v of three need not be equal, others have `equal` rows.
struct PartRows {
  Index before, own, all;
};
PartRows rows_of(const TensorRule& rule, const ModelConfig& config, Index equal) {
  if (rule.parts != 3) return {rule.part * equal, equal, rule.parts * equal};
  const Index q = config.num_attention_heads * config.head_dim;
  const Index kv = config.num_key_value_heads * config.head_dim;
  return {rule.part == 0 ? 0 : q + (rule.part - 1) * kv, rule.part == 0 ? q : kv, q + 2 * kv};
}

Shape published_shape(const TensorRule& rule, const ModelConfig& config, const Shape& ours,
                      Dtype dtype = kRealDtype) {
  const Shape whole = ours.with(0, rows_of(rule, config, ours[0]).all);
  return is_transposed(rule, whole, dtype) ? Shape{whole[1], whole[0]} : whole;
}

/// Calls f(first number in ours, first number in theirs, how many) for each run of numbers that lie
/// together in both; `ours` is our parameter's shape, `theirs` the tensor whose part it is.
template <class F>
void for_each_run(const TensorRule& rule, const ModelConfig& config, const Shape& ours, F&& f) {
  const Index rows = ours[0], width = ours.size() / rows;
  if (!rule.by_head) return f(0, rows_of(rule, config, rows).before * width, rows * width);
  const Index run = config.head_dim;
  for (Index row = 0; row < rows; row += run)
    f(row * width, (row * rule.parts + rule.part * run) * width, run * width);
}

void check_shape(const TensorSource& source, const TensorInfo& info, const Shape& wanted) {
  if (!std::ranges::equal(info.shape, wanted.dims()))
    fail("{}: tensor {} has shape [{}], but the config requires {}", source.describe(), info.name,
         fmt::join(info.shape, ", "), wanted);
}

/// Where a parameter of that shape lies in the tensor whose part it is; `pairs`: by the row order
/// of GGUF's llama.
MatrixView view_of(const TensorRule& rule, const ModelConfig& config, const Shape& ours,
                   const std::byte* tensor, NumberFormat format, bool pairs) {
  const bool vector = ours.rank() == 1;
  MatrixView view{.data = tensor,
                  .format = format,
                  .rows = ours[0],
                  .cols = vector ? 1 : ours[1],
                  .transposed = vector || is_transposed(rule, ours, format)};
  const PartRows rows = rows_of(rule, config, ours[0]);
  view.pitch = view.transposed ? rows.all : view.cols;
  if (pairs) view.rotary_pairs = config.head_dim;
  if (rule.parts == 1) return view;
  if (rule.by_head) {
    view.run = config.head_dim;
    view.run_pitch = view.run * rule.parts;
  }
  const Index first_row = rule.by_head ? rule.part * config.head_dim : rows.before;
  return from_number(view, first_row * (view.transposed ? 1 : view.pitch));
}

/// The tensor that a parameter is or is a part of, under the names that the source has.
std::pair<const TensorRule*, const TensorInfo*> find_stored(const TensorSource& source,
                                                            const Family& family,
                                                            const ModelConfig& config,
                                                            const std::string& ours) {
  const bool gguf = source.naming() == TensorNaming::gguf;
  const auto names = gguf ? gguf_names_of(family, ours) : names_of(family.rules, ours);
  for (const auto& [rule, name] : names) {
    const TensorInfo* info = gguf ? source.find(name) : find_published(source, family, name);
    if (info != nullptr) return {rule, info};
  }
  // Where head and embedding are tied, a published file may hold either of the two.
  if (!gguf && config.tie_word_embeddings && ours == "embed_tokens.weight")
    if (const TensorInfo* info = source.find(name_of(family, "lm_head.weight").name))
      return {names.front().rule, info};
  fail("{}: tensor {} is missing; the config describes a {} of {} layers", source.describe(),
       names.front().name, config.model_type, config.num_hidden_layers);
}

/// The number that GGUF files have added to the parameter: those of norms hold what the normed
/// numbers are multiplied by, Gemma's w + 1 too.
Real added_in_gguf(const ModelConfig& config, const std::string& ours) {
  return ours.ends_with("norm.weight") ? static_cast<Real>(config.norm_weight_offset) : 0;
}

/// Tensors that may be there beside the parameters.
bool is_auxiliary(const TensorSource& source, const Family& family, const ModelConfig& config,
                  const std::string& name) {
  if (source.naming() == TensorNaming::gguf)
    return (family.gguf.rope_factors && name == kRopeFactors) ||
           (family.gguf.longrope && (name == kShortFactors || name == kLongFactors));
  const bool ignored = std::ranges::any_of(
      family.ignored, [&](const std::string& ending) { return name.ends_with(ending); });
  return ignored || (config.tie_word_embeddings && name == name_of(family, "lm_head.weight").name);
}

/// Calls f(parameter, where it is stored) for every one; `f` may give the parameter up.
template <class F>
void walk_stored(Decoder& decoder, const TensorSource& source, F&& f) {
  const ModelConfig& config = decoder.config();
  const Family& family = find_family(config.model_type, source.describe());
  const bool gguf = source.naming() == TensorNaming::gguf;
  std::set<std::string> used;
  std::map<std::string, TensorBytes> fused;  // those of which parts are still to come
  for_each_parameter(decoder, [&](const std::string& name, auto& p) {
    const auto [rule, info] = find_stored(source, family, config, name);
    check_shape(source, *info, published_shape(*rule, config, p.shape(), info->dtype));
    TensorBytes& bytes = fused[info->name];
    if (bytes.owner == nullptr) bytes = source.bytes(info->name);
    const bool completes = rule->part + 1 == rule->parts;
    const StoredParameter stored{
        .name = name,
        .published = name_of(family, name).name,
        .info = info,
        .tensor = bytes,
        .shape = p.shape(),
        .numbers = view_of(*rule, config, p.shape(), bytes.bytes.data(), info->dtype,
                           rule->rotary_pairs && family.gguf.rotary_pairs),
        .added = gguf ? added_in_gguf(config, name) : 0,
        .completes = completes};
    if (completes) fused.erase(info->name);
    used.insert(info->name);
    f(p, stored);
  });
  for (const TensorInfo& info : source.tensors()) {
    if (!used.contains(info.name) && !is_auxiliary(source, family, config, info.name))
      fail("{}: tensor {} is not part of a {} model with this config", source.describe(),
           shown(info.name), config.model_type);
  }
}

void detach(Real added, std::span<Real> numbers) {
  if (added == 0) return;
  for (Real& number : numbers) number -= added;
}

/// A tensor of either kind as its bytes.
struct Bytes {
  Dtype dtype;
  Shape shape;
  std::span<std::byte> bytes;
};
Bytes bytes_in(Tensor& x) { return {kRealDtype, x.shape(), std::as_writable_bytes(x.span())}; }
Bytes bytes_in(PackedTensor& x) { return {x.dtype, x.shape, x.bytes}; }
Tensor of_shape(const Tensor&, const Shape& shape) { return Tensor(shape); }
PackedTensor of_shape(const PackedTensor& like, const Shape& shape) {
  return {like.dtype, shape, std::vector<std::byte>(bytes_of(like.dtype, shape.size()))};
}

void bring_to_one_format(std::span<Tensor>) {}
void bring_to_one_format(std::span<PackedTensor> parts) {
  if (std::ranges::all_of(parts, [&](const PackedTensor& p) { return p.dtype == parts[0].dtype; }))
    return;
  for (PackedTensor& part : parts) {
    const Tensor numbers = to_tensor(part.bytes, part.dtype, part.shape);
    part.dtype = Dtype::f32;
    pack(numbers.span(), part.dtype, part.bytes);
  }
}

/// The tensor whose parts those are, in their order.
template <class Stored>
Stored joined(TensorRule rule, const ModelConfig& config, std::vector<Stored> parts) {
  bring_to_one_format(parts);
  const auto [dtype, shape, first] = bytes_in(parts[0]);
  Stored whole = of_shape(parts[0], shape.with(0, rows_of(rule, config, shape[0]).all));
  std::byte* const to = bytes_in(whole).bytes.data();
  rule.part = 0;
  for (Stored& part : parts) {
    const Bytes from = bytes_in(part);
    for_each_run(rule, config, from.shape, [&, format = dtype](Index ours, Index at, Index size) {
      std::memcpy(to + bytes_of(format, at), from.bytes.data() + bytes_of(format, ours),
                  bytes_of(format, size));
    });
    ++rule.part;
  }
  return whole;
}

template <class Stored>
void transpose_if_stored_so(const TensorRule& rule, Stored& x) {
  const Bytes from = bytes_in(x);
  if (!is_transposed(rule, from.shape, from.dtype)) return;
  const Index rows = from.shape[0], cols = from.shape[1];
  const std::size_t number = bytes_of(from.dtype, 1);
  Stored turned = of_shape(x, {cols, rows});
  std::byte* to = bytes_in(turned).bytes.data();
  for (Index j = 0; j < cols; ++j)
    for (Index i = 0; i < rows; ++i, to += number)
      std::memcpy(to, from.bytes.data() + static_cast<std::size_t>(i * cols + j) * number, number);
  x = std::move(turned);
}

}  // namespace

Tensor rows_of_part(const TensorRule& rule, const ModelConfig& config, const Tensor& whole) {
  if (rule.parts == 1) return whole;
  Tensor part(whole.shape().with(0, rows_of(rule, config, whole.dim(0) / rule.parts).own));
  for_each_run(rule, config, part.shape(), [&](Index ours, Index at, Index size) {
    std::copy_n(whole.data() + at, size, part.data() + ours);
  });
  return part;
}

void set_part_rows(const TensorRule& rule, const ModelConfig& config, const Tensor& part,
                   Tensor& whole) {
  for_each_run(rule, config, part.shape(), [&](Index ours, Index at, Index size) {
    std::copy_n(part.data() + ours, size, whole.data() + at);
  });
}

Index PublishedLinear::out() const {
  Index rows = 0;
  for (const Part& part : parts) rows += part.linear->weight.dim(0);
  return rows;
}

std::vector<PublishedLinear> published_linears(Decoder& decoder) {
  const Family& family = find_family(decoder.config().model_type, "model");
  std::vector<PublishedLinear> linears;
  for (std::size_t i = 0; i < decoder.layers().size(); ++i) {
    Attention& attention = decoder.layers()[i].self_attn;
    Mlp& mlp = decoder.layers()[i].mlp;
    const std::string layer = "layers." + std::to_string(i) + ".";
    const std::pair<const char*, Linear*> ours[] = {
        {"self_attn.q_proj", &attention.q_proj}, {"self_attn.k_proj", &attention.k_proj},
        {"self_attn.v_proj", &attention.v_proj}, {"self_attn.o_proj", &attention.o_proj},
        {"mlp.gate_proj", &mlp.gate_proj},       {"mlp.up_proj", &mlp.up_proj},
        {"mlp.down_proj", &mlp.down_proj}};
    for (const auto& [name, linear] : ours) {
      if (!linear->weight.defined()) continue;
      const auto [rule, tensor] = name_of(family, layer + name + ".weight");
      const std::string module = tensor.substr(0, tensor.rfind('.'));
      if (linears.empty() || linears.back().name != module)
        linears.push_back({.name = module, .transposed = rule->transposed, .parts = {}});
      linears.back().parts.push_back({linear, rule, layer + name + ".weight"});
    }
  }
  return linears;
}

std::vector<StoredName> names_in_gguf(const ModelConfig& config, const std::string& ours) {
  return gguf_names_of(find_family(config.model_type, "model"), ours);
}

Tensor read_gguf_part(const TensorSource& source, const TensorInfo& info, const TensorRule& rule,
                      const ModelConfig& config, const Shape& ours) {
  check_shape(source, info, published_shape(rule, config, ours, info.dtype));
  const Family& family = find_family(config.model_type, source.describe());
  const TensorBytes bytes = source.bytes(info.name);
  const MatrixView view = view_of(rule, config, ours, bytes.bytes.data(), info.dtype,
                                  rule.rotary_pairs && family.gguf.rotary_pairs);
  Tensor rows(ours);
  read_rows(view, 0, ours[0], rows.data());
  return rows;
}

void StoredParameter::for_each_block(const std::function<void(std::span<const Real>)>& f) const {
  constexpr Index kBlock = 1 << 18;  // numbers
  const Index rows = std::max<Index>(1, kBlock / std::max<Index>(1, numbers.cols));
  std::vector<Real> block(std::min(rows, numbers.rows) * numbers.cols);
  for (Index i = 0; i < numbers.rows; i += rows) {
    const Index count = std::min(rows, numbers.rows - i);
    read_rows(numbers, i, count, block.data());
    const std::span<Real> read = std::span(block).first(count * numbers.cols);
    detach(added, read);
    f(read);
  }
}

void StoredParameter::read(Tensor& to) const {
  check(to.shape() == shape, "{}: shape {}, expected {}", name, to.shape(), shape);
  parallel_chunks(numbers.rows, rows_at_a_time(numbers), [&](Index begin, Index end) {
    read_rows(numbers, begin, end - begin, to.data() + begin * numbers.cols);
  });
  detach(added, to.span());
}

PackedTensor StoredParameter::read_blocks() const {
  PackedTensor packed{info->dtype, shape, {}};
  const std::size_t line = bytes_of(packed.dtype, numbers.cols);
  packed.bytes.reserve(numbers.rows * line);
  for (Index i = 0; i < numbers.rows; ++i) {
    const MatrixView row = from_number(numbers, numbers.stored_row(i) * numbers.pitch);
    const auto* const from = static_cast<const std::byte*>(row.data);
    packed.bytes.insert(packed.bytes.end(), from, from + line);
  }
  return packed;
}

bool has_other_head(const ModelConfig& config, const TensorSource& source) {
  if (!config.tie_word_embeddings) return false;
  const Family& family = find_family(config.model_type, source.describe());
  const TensorInfo* head = source.find(name_of(family, "lm_head.weight").name);
  const TensorInfo* embedding =
      find_published(source, family, name_of(family, "embed_tokens.weight").name);
  if (head == nullptr || embedding == nullptr) return false;
  if (head->shape != embedding->shape) return true;
  const TensorBytes a = source.bytes(head->name), b = source.bytes(embedding->name);
  if (head->dtype == embedding->dtype) return !std::ranges::equal(a.bytes, b.bytes);
  return !std::ranges::equal(source.read(head->name).span(), source.read(embedding->name).span());
}

void for_each_stored(const ModelConfig& config, const TensorSource& source,
                     const std::function<void(const StoredParameter&)>& f) {
  Decoder decoder(config);
  walk_stored(decoder, source, [&]<class P>(P& p, const StoredParameter& stored) {
    p = P();
    if (stored.completes) source.verify(stored.info->name);
    f(stored);
    trim_pool();
  });
}

void load_weights(Decoder& decoder, const TensorSource& source, std::optional<Precision> frozen) {
  walk_stored(decoder, source, [&]<class P>(P& p, const StoredParameter& stored) {
    if constexpr (std::is_same_v<P, Weight>) {
      if (frozen) {
        p = FrozenMatrix(stored.numbers, stored.tensor.owner, *frozen, stored.name);
        return;
      }
    }
    source.verify(stored.info->name);
    stored.read(p.mutable_value());
  });
}

void freeze_matrices(Decoder& decoder, Precision precision) {
  for_each_parameter(decoder, [&]<class P>(const std::string& name, P& p) {
    if constexpr (std::is_same_v<P, Weight>) {
      p.freeze(precision, name);
      trim_pool();  // buffers of a weight's size would not be asked for again
    }
  });
}

void multiply_in_bf16(Decoder& decoder) {
  for_each_parameter(decoder, [&]<class P>(const std::string& name, P& p) {
    if constexpr (std::is_same_v<P, Weight>) p.multiply_in_bf16(name);
  });
}

std::string gguf_name(const ModelConfig& config, const std::string& ours) {
  return name_of(find_family(config.model_type, "model"), ours, TensorNaming::gguf).name;
}

Tensor to_gguf_order(const ModelConfig& config, const std::string& ours, const Tensor& parameter) {
  const Family& family = find_family(config.model_type, "model");
  const bool pairs =
      family.gguf.rotary_pairs && name_of(family, ours, TensorNaming::gguf).rule->rotary_pairs;
  const Real added = added_in_gguf(config, ours);
  if (!pairs && added == 0) return parameter;
  Tensor stored(parameter.shape());
  if (added != 0)
    std::ranges::transform(parameter.span(), stored.data(), [=](Real x) { return x + added; });
  if (!pairs) return stored;
  const Index half = config.head_dim / 2, width = parameter.size() / parameter.dim(0);
  for (Index row = 0; row < parameter.dim(0); ++row) {
    const Index head = row / config.head_dim * config.head_dim, in_head = row - head;
    const Index from = head + in_head / 2 + in_head % 2 * half;
    std::copy_n(parameter.data() + from * width, width, stored.data() + row * width);
  }
  return stored;
}

template <class Stored>
Publisher<Stored>::Publisher(const ModelConfig& config, Function f, TensorNaming naming)
    : config_(config),
      family_(find_family(config.model_type, "model")),
      f_(std::move(f)),
      naming_(naming) {}

template <class Stored>
void Publisher<Stored>::add(const std::string& name, Stored part) {
  const auto [rule, theirs] = name_of(family_, name, naming_);
  std::vector<Stored>& parts = pending_[theirs];
  parts.push_back(std::move(part));
  if (static_cast<int>(parts.size()) < rule->parts) return;
  Stored whole =
      rule->parts == 1 ? std::move(parts.front()) : joined(*rule, config_, std::move(parts));
  pending_.erase(theirs);
  transpose_if_stored_so(*rule, whole);
  f_(theirs, whole);
}

template class Publisher<Tensor>;
template class Publisher<PackedTensor>;

std::vector<std::pair<std::string, Shape>> published_shapes(const ModelConfig& config,
                                                            TensorNaming naming) {
  const Family& family = find_family(config.model_type, "model");
  Decoder decoder(config);
  std::vector<std::pair<std::string, Shape>> shapes;
  for_each_parameter(decoder, [&](const std::string& name, const Weight& p) {
    const auto [rule, theirs] = name_of(family, name, naming);
    if (rule->part + 1 == rule->parts)
      shapes.emplace_back(theirs, published_shape(*rule, config, p.shape()));
  });
  return shapes;
}

void for_each_published(Decoder& decoder, const std::function<Tensor(const Variable&)>& select,
                        const PublishedFunction& f) {
  Publisher<Tensor> publisher(decoder.config(), f);
  for_each_parameter(decoder,
                     [&](const std::string& name, Variable& p) { publisher.add(name, select(p)); });
}

}  // namespace focus
