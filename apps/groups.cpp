#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "data/files/durable_file.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/statistics/groups_report.h"

namespace focus::app {
namespace {

struct GroupsArguments {
  ModelOptions model;
  EvalSettings settings;
  std::vector<std::string> texts, checkpoints;
  std::string against, out;
  bool overwrite = false;
};

GroupsReport described(const CLI::App& app, GroupsArguments& o) {
  LoadedModel model = o.model.load();
  take_fitted_context(app, model, o.settings);
  const EvalSettings settings = o.settings.for_model(model);
  const TextWindows text =
      windows_for(model, read_texts(model, Texts::of_files(o.texts), settings), settings.context);
  if (!o.against.empty()) check_other_groups(model, o.against);
  for (const std::string& path : o.checkpoints) check_other_groups(model, path);
  GroupsReport report = describe_groups(model, text, settings.context, share_bar("groups"));
  report.adapter = o.model.adapter;
  return report;
}

void compare_with_others(const GroupsArguments& o, GroupsReport& report) {
  const auto groupings = [&](const std::string& path) {
    ModelOptions options = o.model;
    options.adapter = path;
    if (is_whole_model(path)) options.base = std::exchange(options.adapter, "");
    LoadedModel other = options.load();
    other.where = path;  // for messages
    return other_groupings(other, report, share_bar("groups of " + path));
  };
  if (!o.against.empty()) {
    report.against = layer_agreement(report.groupings, groupings(o.against));
    report.against->first = report.adapter.empty() ? report.model : report.adapter;
    report.against->second = o.against;
  }
  std::string before_name;
  std::vector<GroupAssignments> before;
  for (const std::string& path : o.checkpoints) {
    std::vector<GroupAssignments> now = groupings(path);
    if (!before.empty()) {
      report.checkpoints.push_back(layer_agreement(before, now));
      report.checkpoints.back().first = before_name;
      report.checkpoints.back().second = std::filesystem::path(path).stem().string();
    }
    before = std::move(now);
    before_name = std::filesystem::path(path).stem().string();
  }
}

}  // namespace

int run_groups(Arguments arguments) {
  GroupsArguments o;
  CLI::App app(
      "Statistics of the groups of a Focus model on a text: sizes, balance, typical tokens, "
      "purity, a passage coloured by group, agreement between layers, adapters and "
      "checkpoints. Writes groups.html, a page, and groups.json.",
      "focus groups");
  o.model.add_to(app);
  app.add_option("--text", o.texts, "text files (.txt, .xz) or folders")->required();
  app.add_option("--out", o.out, "folder for groups.html and groups.json")
      ->type_name(kFolder)
      ->required();
  app.add_option("--against", o.against,
                 "compare with another adapter of this base, or another model");
  app.add_option("--checkpoints", o.checkpoints,
                 "a run's folder, or checkpoints in order: the share of tokens that keep their "
                 "group from each checkpoint to the next");
  app.add_flag("--overwrite", o.overwrite, "replace existing files");
  add_settings(app, only(config_fields(o.settings), {"separator", "context", "max_tokens"}));
  parse_arguments(app, arguments);
  const std::filesystem::path folder = o.out;
  for (const char* name : {"groups.html", "groups.json"})
    refuse_existing((folder / name).string(), o.overwrite);

  o.checkpoints = expand_checkpoints(o.checkpoints);
  GroupsReport report = described(app, o);
  compare_with_others(o, report);
  fmt::print("{}", groups_table(report));

  const std::string page = groups_page(report);
  make_folder_durably(folder);
  write_json((folder / "groups.json").string(), struct_to_json(report));
  write_file_durably(folder / "groups.html", std::string_view(page));
  fmt::print("{}\n", (folder / "groups.html").string());
  return 0;
}

}  // namespace focus::app
