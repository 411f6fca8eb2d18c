#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace focus {

/// Every tag of a page that is opened is closed in the right order.
inline void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.starts_with("meta") || tag.ends_with('/')) continue;
    const std::string name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (tag[0] != '/') {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

}  // namespace focus
