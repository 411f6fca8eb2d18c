#include "focus/training/metrics.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/support/temp_folder.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Metrics : public testing::Test {
 protected:
  std::string content() const { return read_text(path_); }

  const TempFolder folder_;
  const fs::path path_ = folder_ / "metrics.jsonl";
};

TEST_F(Metrics, WritesALinePerRecordAtOnce) {
  MetricsFile file(path_);
  file.write({{"step", 1}, {"loss", 2.5}});
  EXPECT_EQ(content(), "{\"step\":1,\"loss\":2.5}\n");
  file.write({{"step", 2}, {"loss", NAN}});
  EXPECT_EQ(content(), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null}\n");
}

TEST_F(Metrics, ANewRunReplacesTheOldFile) {
  std::ofstream(path_) << "old\n";
  MetricsFile file(path_);
  EXPECT_EQ(content(), "");
}

TEST_F(Metrics, ResumingDropsLaterRecordsAndATornLine) {
  const std::string kept = "{\"note\":\"start\"}\n{\"step\":1}\n{\"step\":2}\n";
  std::ofstream(path_) << kept << "{\"step\":3}\n{\"step\":4,\"lo";
  {
    MetricsFile file(path_, 2);
    EXPECT_EQ(content(), kept);
    file.write({{"step", 3}, {"again", true}});
  }
  EXPECT_EQ(content(), kept + "{\"step\":3,\"again\":true}\n");
  EXPECT_EQ(read_metrics(path_).size(), 4u);
  EXPECT_EQ(files_in(folder_.path()), 1u);
}

TEST_F(Metrics, WhatAPowerCutLeftHolesInIsDroppedFromThereOn) {
  const std::string kept = "{\"step\":1}\n{\"step\":2}\n";
  std::ofstream(path_) << kept << "{\"ste" << std::string(6, '\0') << "}\n{\"step\":4}\n";
  EXPECT_EQ(read_metrics(path_).size(), 2u);
  const MetricsFile file(path_, 2);
  EXPECT_EQ(content(), kept);
}

TEST_F(Metrics, ResumingWithoutAFileStartsOne) {
  MetricsFile file(path_, 7);
  file.write({{"step", 8}});
  EXPECT_EQ(content(), "{\"step\":8}\n");
}

TEST_F(Metrics, ABrokenLineInTheMiddleIsAnErrorAndTheFileStays) {
  const std::string broken = "{\"step\":1}\nnonsense\n{\"step\":2}\n";
  std::ofstream(path_) << broken;
  EXPECT_THAT(error_of([&] { MetricsFile(path_, 1); }), HasSubstr("metrics.jsonl:2:"));
  EXPECT_EQ(content(), broken);
}

TEST_F(Metrics, RefusesAMissingFolder) {
  EXPECT_THROW(MetricsFile(folder_ / "none/metrics.jsonl"), std::runtime_error);
}

}  // namespace
}  // namespace focus
