// Groups of keys in a store and in the exchange folder. Groups of tokens: the golden stores.
#include "focus/method/focus_files.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <stdexcept>

#include "data/tensors/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

FocusConfig adapter_of_keys() {
  FocusConfig config = tiny_keys();
  config.summary.num_selected_groups = 3;
  config.summary.block = 8;
  config.summary.sinks = 2;
  return config;
}
const FocusShape kShape{
    .hidden_size = 24, .num_layers = 2, .kv_heads = 3, .head_dim = 6, .heads = 6};

std::unique_ptr<FocusModel> keys_model(std::uint64_t seed = 1) {
  Rng rng(seed);
  auto model = std::make_unique<FocusModel>(adapter_of_keys(), kShape, rng);
  for (KeyGroups& groups : key_layers(*model)) {
    fit_key_groups(groups, randn({50, 3, 6}, seed), seed);
    groups.summary_bias = Variable(randn({3, 4}, seed + 1));
    groups.bias = Variable(randn({3, 4}, seed + 2));
    groups.needs = uniform({6}, seed + 3, 0.1, 2);
    groups.summary_width = uniform({6}, seed + 4, 0, 1);
    seed += 3;
  }
  return model;
}

void expect_same_groups(FocusModel& actual, FocusModel& expected, double accepted) {
  ASSERT_EQ(key_layers(actual).size(), key_layers(expected).size());
  for (Index layer = 0; layer < kShape.num_layers; ++layer) {
    std::map<std::string, Tensor> found;
    actual.grouping().visit_tensors(
        layer, [&](std::string_view name, Tensor& tensor) { found[std::string(name)] = tensor; });
    EXPECT_EQ(found.size(), 7u);
    expected.grouping().visit_tensors(layer, [&](std::string_view name, Tensor& tensor) {
      EXPECT_LE(relative_difference(found.at(std::string(name)), tensor), accepted) << name;
    });
    EXPECT_EQ(actual.grouping().updates(layer), 50);
  }
  EXPECT_EQ(actual.config().grouping.name, "keys");
  EXPECT_EQ(actual.config().summary.num_selected_groups, 3);
  EXPECT_EQ(actual.config().summary.block, 8);
  EXPECT_EQ(actual.config().summary.sinks, 2);
  EXPECT_EQ(actual.shape().kv_heads, 3);
  EXPECT_EQ(actual.shape().heads, 6);
  EXPECT_EQ(actual.mode.name(), expected.mode.name());
}

TEST(FocusFiles, KeysThroughAStoreAndBack) {
  const TempFolder temp;
  const auto model = keys_model();
  {
    StoreWriter store(temp.path() / "keys.h5", "adapter");
    write_focus(store, *model, "of the base");
    store.commit();
  }
  const SavedFocus saved = open_focus(temp.path() / "keys.h5");
  EXPECT_EQ(saved.base_fingerprint, "of the base");
  EXPECT_EQ(saved.num_parameters(), 2 * 3 * 4 * (6 + 2));
  expect_same_groups(*read_focus(saved, "of the base", "base.h5"), *model, 0);
  EXPECT_THROW(read_focus(saved, "of another", "base.h5"), std::runtime_error);
  const auto other = keys_model(40);
  restore_focus(saved, *other);
  expect_same_groups(*other, *model, 0);
}

TEST(FocusFiles, KeysThroughAFolderAndBack) {
  const TempFolder temp;
  const auto model = keys_model();
  write_focus_folder(temp.path(), *model, "of the base");
  EXPECT_TRUE(has_focus(temp.path()));
  const SavedFocus saved = open_focus_folder(temp.path());
  EXPECT_EQ(saved.base_fingerprint, "of the base");
  expect_same_groups(*read_focus(saved), *model, tolerance(0, 1e-7));  // a folder is float32
}

TEST(FocusFiles, NeedsAndWidthsThatAreNoneAreRefused) {
  const auto refuses = [](Tensor KeyGroups::*of, Real wrong) {
    const TempFolder temp;
    const auto model = keys_model();
    (key_layers(*model)[1].*of).data()[2] = wrong;
    write_focus_folder(temp.path(), *model, "of the base");
    EXPECT_THROW(read_focus(open_focus_folder(temp.path())), std::runtime_error) << wrong;
  };
  for (const Real wrong : {Real(-1), std::numeric_limits<Real>::quiet_NaN()}) {
    refuses(&KeyGroups::needs, wrong);
    refuses(&KeyGroups::summary_width, wrong);
  }
  refuses(&KeyGroups::summary_width, Real(1.01));
}

TEST(FocusFiles, KeysOfAnotherShapeAreRefused) {
  const TempFolder temp;
  const auto model = keys_model();
  write_focus_folder(temp.path(), *model, "of the base");
  const auto put = [&](const Tensor& summary_bias) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (Index i = 0; i < 2; ++i)
      model->grouping().visit_tensors(i, [&](std::string_view name, Tensor& tensor) {
        const Tensor& stored = name == "beta" ? summary_bias : tensor;
        if (stored.defined()) tensors.emplace_back(fmt::format("layers.{}.{}", i, name), stored);
      });
    write_safetensors(temp.path() / kFocusWeightsFile, std::move(tensors));
  };
  put(randn({3, 4}, 1));
  EXPECT_NO_THROW(read_focus(open_focus_folder(temp.path())));
  for (const Tensor& wrong : {randn({4, 3}, 1), randn({3, 5}, 1), randn({12}, 1), Tensor()}) {
    put(wrong);
    EXPECT_THROW(read_focus(open_focus_folder(temp.path())), std::runtime_error);
  }
}

}  // namespace
}  // namespace focus
