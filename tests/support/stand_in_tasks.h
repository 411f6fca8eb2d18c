#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temp_folder.h"

namespace focus {

/// Items of every benchmark in a folder, made up: 40 of piqa, two of each other.
inline void write_stand_in_tasks(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "piqa");
  std::string items, labels;
  for (int i = 0; i < 40; ++i) {
    items += nlohmann::json({{"goal", "goal " + std::to_string(i)},
                             {"sol1", "a fox" + std::string(static_cast<std::size_t>(i % 7), 'x')},
                             {"sol2", "hens"}})
                 .dump() +
             "\n";
    labels += i % 3 == 0 ? "0\n" : "1\n";
  }
  write_text(folder / "piqa" / "valid.jsonl", items);
  write_text(folder / "piqa" / "valid-labels.lst", labels);
  write_text(folder / "lambada_test.jsonl",
             "{\"text\":\"Once there was a fox\"}\n{\"text\":\"The end came soon\"}\n");
  write_text(folder / "hellaswag.jsonl",
             "{\"query\":\"A fox: It\",\"choices\":[\"ran\",\"flew\"],\"gold\":0}\n"
             "{\"query\":\"Hens: They\",\"choices\":[\"swam\",\"sat\"],\"gold\":1}\n");
  write_text(folder / "arc_easy.jsonl",
             "{\"query\":\"Why?\",\"choices\":[\"so\",\"not so\"],\"gold\":1}\n"
             "{\"query\":\"Who?\",\"choices\":[\"a fox\",\"hens\"],\"gold\":0}\n");
  write_text(folder / "mc_task.json",
             "[{\"question\":\"Who?\",\"mc1_targets\":{\"A fox.\":1,\"Hens.\":0}},"
             "{\"question\":\"Why?\",\"mc1_targets\":{\"So.\":0,\"Not so.\":1}}]");
}

}  // namespace focus
